"""A lost attempt that was never started is excused once, and no other."""

from typing import Any

import pytest

from delegation.tasks.life.model import AdoptedChildren, Status, Task
from delegation.tasks.life.outcomes import START_REFUSED, excused_loss
from delegation.tasks.life.transitions import LOST
from tests.kit.tasks.builders import in_status, submitted


def lost(**fields: Any) -> Task:
    return submitted().evolve(
        **{"status": Status.RETRY_SCHEDULED, "attempt_count": 3, "error_code": LOST, "engine": None, **fields}
    )


def test_a_lost_attempt_that_was_never_started_is_excused_once() -> None:
    task = lost()
    excused = excused_loss(task, 3)
    assert (excused.attempts_excused, excused.starts_refused, excused.error_code) == (1, 1, START_REFUSED)
    assert excused_loss(excused, 3) is excused


@pytest.mark.parametrize(
    "task",
    [
        lost(attempt_count=4),
        lost(error_code="TIMEOUT"),
        lost(engine="SPARK"),
        in_status(Status.FAILURE, attempt_count=3, error_code=LOST),
        in_status(Status.RUNNING, attempt_count=3),
        lost(family=AdoptedChildren(children=("p",)), cancel_requested=True),
        lost(family=AdoptedChildren(children=("p",)), pending_result="null"),
    ],
    ids=["a later attempt", "another error", "with an engine", "ended", "held", "a cancelled parent", "a done parent"],
)
def test_any_other_stays_as_it_is(task: Task) -> None:
    assert excused_loss(task, 3) is task


def test_a_parent_whose_work_is_not_done_is_excused_too() -> None:
    assert excused_loss(lost(family=AdoptedChildren(children=("p",))), 3).attempts_excused == 1
