"""Hand-overs are excused while the task makes progress between them, otherwise only a limited number of times."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.life import outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import AdoptedChildren, Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Policies, RetryPolicy
from tests.kit.tasks.builders import MINUTE, NOW, acquired, submitted

POLICIES = Policies(default=RetryPolicy(max_attempts=3), by_type={})
TIME_IS_UP = AttemptError("HANDED_OVER", "no time left", ErrorClass.HANDED_OVER)
LAMBDA = timedelta(minutes=14)
EXCUSED, ALLOWED = 20, 3


def hand_overs(
    change: Callable[[Task, int], Task], limit: int = 200, wait: timedelta | None = None
) -> tuple[int, Task]:
    """Hand a task over again and again, each time after `change`; return how often, and the task at the end."""
    task, now = submitted(), NOW
    for number in range(1, limit + 1):
        held = change(acquired(task, now=now), number)
        now += LAMBDA
        task = outcomes.after_error(held, TIME_IS_UP, now, POLICIES, wait=wait)
        if task.is_terminal:
            return number, task
        now = task.next_scheduled_run_ts or now
    return limit, task


def restarted(task: Task, _number: int) -> Task:
    return task.evolve(progress_ts=NOW)


def test_counts_that_start_again_are_no_progress() -> None:
    """The reports of an attempt differ a little from those of the one before; `progress_ts` is always written."""
    assert hand_overs(restarted)[0] == EXCUSED + ALLOWED
    shaken = [840, 843, 841, 839, 842]
    number, task = hand_overs(lambda task, n: task.with_details({"pages": shaken[n % 5], "run": {"rows": n % 7}}))
    assert (task.status, task.error_code) == (Status.FAILURE, "HANDED_OVER")
    assert "made no progress" in task.result_summary
    assert number <= EXCUSED + ALLOWED + 7


@pytest.mark.parametrize(
    "change",
    [
        lambda task, n: task.with_details({"files_deleted": 100 * n}),
        lambda task, n: task.with_details({"details": {"cursor": f"page-{n}"}}),
        lambda task, n: task.with_details({"plan_segments": [{"id": str(i)} for i in range(n)]}),
        lambda task, n: task.evolve(family=AdoptedChildren(children=tuple(f"child-{i}" for i in range(n)))),
    ],
    ids=["a-count-grows", "a-cursor-moves", "a-plan-grows", "children-are-added"],
)
def test_work_that_continues_where_it_stopped_may_be_handed_over_for_ever(change: Callable[[Task, int], Task]) -> None:
    number, task = hand_overs(change)
    assert (number, task.status, task.unexcused_attempts) == (200, Status.RETRY_SCHEDULED, 0)


def test_a_hand_over_that_waits_for_something_is_excused() -> None:
    """A purge waits for the reference index, which may take longer than any number of attempts."""
    number, task = hand_overs(restarted, wait=MINUTE)
    assert (number, task.unexcused_attempts) == (200, 0)


def test_a_new_submission_begins_to_count_anew() -> None:
    _number, task = hand_overs(restarted, limit=10)
    failed = t.fail(task, NOW, code="X", summary="x")
    again = t.resubmit(failed, NOW, payload="{}", synchronous=False, grace=MINUTE, restarted={})
    numbers = count(1)
    while not again.is_terminal and next(numbers) <= EXCUSED:
        again = outcomes.after_error(acquired(again), TIME_IS_UP, NOW, POLICIES)
        assert again.unexcused_attempts == 0


NUMBERS = st.integers(0, 50)
LEAVES: st.SearchStrategy[Any] = NUMBERS | st.sampled_from(["a", "b"])


@given(st.dictionaries(st.sampled_from("xyz"), LEAVES, max_size=3))
def test_details_that_do_not_change_are_no_progress(details: dict[str, Any]) -> None:
    number, _task = hand_overs(lambda task, _n: task.with_details(details))
    assert EXCUSED + ALLOWED <= number <= EXCUSED + ALLOWED + 1
