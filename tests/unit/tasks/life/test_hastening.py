"""A task that waits for a cause to pass runs as soon as the cause is gone; nothing else about it changes."""

from datetime import timedelta

import pytest

from delegation.tasks.life import decisions
from delegation.tasks.life.model import LanePlace, Status, Task
from delegation.tasks.life.transitions import CHECK_QUEUED
from tests.kit.tasks.builders import HOUR, NOW, submitted

CODE = "NEIGHBOUR_UNREADABLE"


def waiting(**fields: object) -> Task:
    values: dict[str, object] = {
        "status": Status.RETRY_SCHEDULED,
        "error_code": CODE,
        "next_scheduled_run_ts": NOW + HOUR,
        "due_at": NOW + HOUR,
    }
    return submitted(**{**values, **fields})


def test_a_waiting_task_is_due_now_and_has_no_new_version() -> None:
    task = waiting()
    after = decisions.hasten(task, CODE, NOW)
    assert (after.next_scheduled_run_ts, after.due_at) == (NOW, NOW)
    assert after == task.evolve(next_scheduled_run_ts=NOW, due_at=NOW)
    assert decisions.hasten(after, CODE, NOW) is after


def test_a_queued_task_waits_for_its_admission_from_now_on() -> None:
    task = waiting(admission=LanePlace(lane="normal/tenant/bucket/TABLE_PURGE/small"))
    assert task.is_queued
    after = decisions.hasten(task, CODE, NOW)
    assert (after.next_scheduled_run_ts, after.due_at, after.admission.admitted_ts) == (NOW, NOW + CHECK_QUEUED, None)
    assert after.is_queued


@pytest.mark.parametrize(
    "fields",
    [
        {"error_code": "POLARIS_UNAVAILABLE"},
        {"status": Status.SUBMITTED, "error_code": None},
        {"next_scheduled_run_ts": NOW - timedelta(seconds=1)},
    ],
)
def test_a_task_that_waits_for_something_else_is_unchanged(fields: dict[str, object]) -> None:
    task = waiting(**fields)
    assert decisions.hasten(task, CODE, NOW) is task
