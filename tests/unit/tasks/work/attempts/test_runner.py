"""What the runner of all behaviors does when an engine is chosen, a job begins and work succeeds."""

import logging
from collections.abc import Callable
from typing import NoReturn

import pytest

from delegation.errors import RunHandedOver
from delegation.tasks.errors import LeaseLost, StoreUnavailable
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import ErrorClass
from delegation.tasks.work.attempt_context import AttemptRunner, ending_of
from tests.kit.tasks.builders import HOUR
from tests.kit.tasks.harness import an_hour
from tests.kit.tasks.sites import ADD, ONE, Permanent, Site


@pytest.fixture
def held(site: Site) -> Task:
    return site.service().leases.acquire(site.client().submit(ADD, ONE).task_id, "execution-1", an_hour)


def runner_of(site: Site) -> AttemptRunner:
    return AttemptRunner(site.service(), lambda _task, error: ending_of(error, lambda _error: ErrorClass.PERMANENT))


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def choose() -> NoReturn:
        raise error

    return choose


def test_the_engine_that_was_chosen_is_returned_and_nothing_is_written(site: Site, held: Task) -> None:
    assert runner_of(site).prepare(held, lambda: "spark") == "spark"
    assert site.head(held.task_id) == held


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Permanent("no such catalog"), Status.FAILURE, "PERMANENT"),
        (RunHandedOver("t", "too long for a request"), Status.RETRY_SCHEDULED, "HANDED_OVER"),
    ],
)
def test_what_ends_an_attempt_before_its_engine_is_chosen_is_recorded(site, held, error, status, code):
    assert runner_of(site).prepare(held, raising(error)) is None
    head = site.head(held.task_id)
    assert (head.status, head.error_code) == (status, code)


def test_a_former_holder_chooses_no_engine_and_the_driver_gets_errors_of_the_store(site: Site, held: Task) -> None:
    lost = LeaseLost(held.task_id, attempt=1, current=2, status="RUNNING")
    assert runner_of(site).prepare(held, raising(lost)) is None
    with pytest.raises(StoreUnavailable):
        runner_of(site).prepare(held, raising(StoreUnavailable("throttled")))
    assert site.head(held.task_id) == held


def test_a_job_begins_for_the_attempt_that_holds_the_task_alone(site, held, caplog):
    caplog.set_level(logging.INFO, "delegation")
    assert runner_of(site).begin_job(held.task_id, 1) == held
    said = [(one.getMessage(), one.task_id, one.attempt) for one in caplog.records]  # type: ignore[attr-defined]
    assert said == [("job began", held.task_id, 1)]
    site.clock.advance(HOUR)
    site.service().dispatching.presume_lost(held.task_id)
    with pytest.raises(LeaseLost):
        runner_of(site).begin_job(held.task_id, 1)


def test_a_success_has_the_summary_the_details_and_the_fields_of_the_work(site: Site, held: Task) -> None:
    after = runner_of(site).run(
        held, lambda: runner_of(site).succeed(held, "planned", {"files_planned": 3}, {"engine": "spark"})
    )
    assert (after.status, after.result_summary, after.engine) == (Status.SUCCESS, "planned", "spark")
    assert after.details == {"files_planned": 3}
