"""What is recorded of an error that the work of a behavior raised, and what a worker logs of an attempt."""

import logging
from datetime import datetime

import pytest

from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status
from delegation.tasks.work.behaviors import Behavior, FunctionBehavior, Run
from tests.kit.tasks.builders import HOUR
from tests.kit.tasks.sites import ADD, ONE, Site, Sum, Total


def broken(_parameters: Sum, _run: Run) -> Total:
    raise ValueError("no such account; client_secret=hunter2")


BROKEN = Behavior("ADD", Sum, broken, result=Total)


def an_hour(now: datetime) -> Lease:
    return Lease.lasting(HOUR, now)


def test_an_unexpected_error_leaves_its_type_message_and_redacted_traceback() -> None:
    site = Site()
    task_id = site.client().submit(BROKEN, ONE).task_id
    site.worker("w", BROKEN).run_once()
    head = site.head(task_id)
    assert head.result_summary == "ValueError: no such account; client_secret=***"
    text = head.result_extended or ""
    assert "test_errors_recorded.py" in text
    assert "in broken" in text
    assert "hunter2" not in head.model_dump_json()


def test_an_unexpected_error_ends_the_attempt_in_a_lambda_too() -> None:
    site = Site()
    service = site.service()
    task_id = site.client().submit(BROKEN, ONE).task_id
    held = service.leases.acquire(task_id, "execution-1", an_hour)
    after = FunctionBehavior(service, BROKEN, monotonic=site.seconds).run(held, hand_over_at=site.clock.now + HOUR)
    assert (after.status, after.error_code) == (Status.RETRY_SCHEDULED, "UNEXPECTED_ERROR")
    assert "in broken" in (after.result_extended or "")


def test_a_worker_logs_begin_takeover_and_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "delegation")
    site = Site()
    site.client().submit(ADD, ONE)
    site.service().leases.acquire(site.client().submit(ADD, ONE).task_id, "dies", an_hour)
    site.clock.advance(HOUR)
    site.worker("w", ADD).run_once()
    site.client().submit(ADD, Sum(left=2, right=2))
    site.worker("w", ADD).run_once()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("delegation.tasks.work.worker")]
    assert said == ["attempt taken over", "attempt ended", "attempt began", "attempt ended"]
