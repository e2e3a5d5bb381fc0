"""What is recorded of an error that the work of a behavior raised, and what a worker logs of an attempt."""

import asyncio
import logging
import sys
from typing import Any

import pytest

from delegation.tasks.life.declared import Retry
from delegation.tasks.life.model import Status
from delegation.tasks.submit import Parent
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from polaris_common.errors import DelegationError
from tests.kit.tasks.builders import HOUR
from tests.kit.tasks.harness import an_hour
from tests.kit.tasks.sites import ADD, ONE, Site, Sum, Total


def broken(_parameters: Sum, _run: AttemptContext) -> Total:
    raise ValueError("no such account; client_secret=hunter2")


BROKEN = Behavior("ADD", Sum, broken, result=Total)


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


def exits(_parameters: Sum, _run: AttemptContext) -> Total:
    sys.exit("out of licences")


async def exits_later(_parameters: Sum, _run: AttemptContext) -> Total:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0)).add_done_callback(lambda _done: sys.exit(3))
        await asyncio.sleep(60)
    return Total(total=0)


@pytest.mark.parametrize("work", [exits, exits_later])
def test_work_that_exits_fails_its_attempt_and_the_worker_lives(work: Any) -> None:
    site = Site()
    task_id = site.client().submit(Behavior("ADD", Sum, work, result=Total), ONE).task_id
    site.worker("w", Behavior("ADD", Sum, work, result=Total)).run_once()
    assert (site.head(task_id).status, site.head(task_id).error_code) == (Status.RETRY_SCHEDULED, "UNEXPECTED_ERROR")
    assert "sys.exit" in (site.head(task_id).result_summary or "")


@pytest.mark.parametrize("text", ["a lone surrogate: \ud83d", "x" * 2_000_000, "client_secret=" + "hunter2" * 100_000])
@pytest.mark.parametrize("kind", [ValueError, DelegationError])
@pytest.mark.parametrize("has_children", [False, True])
def test_an_error_text_of_any_kind_is_recorded_within_bounds(text, kind, has_children):
    def fails(_parameters: Sum, _run: AttemptContext) -> Total:
        raise kind(text)

    def with_child(parameters: Sum, run: AttemptContext) -> Total:
        client = site.client()
        client.submit(ADD, ONE, parent=Parent(run.task.task_id, run.task.attempt_count))
        return fails(parameters, run)

    site = Site()
    behavior = Behavior(
        "FAILS", Sum, with_child if has_children else fails, result=Total, retry=Retry(attempts=1, on=(KeyError,))
    )
    task_id = site.client().submit(behavior, ONE).task_id
    site.worker("w", behavior).run_once()
    head = site.head(task_id)
    assert head.error_code is not None
    stored = head.model_dump_json()
    assert len(stored.encode()) < 100_000
    assert "hunter2" not in stored
