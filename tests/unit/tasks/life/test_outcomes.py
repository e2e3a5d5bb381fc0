"""What follows an attempt that ended without success, by a table and by random sequences of errors."""

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.life import outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import AdoptedChildren, Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND, acquired, started, submitted

LATER = NOW + MINUTE
POLICIES = Policies(default=RetryPolicy(max_attempts=3), by_type={"REPORT": RetryPolicy(max_attempts=1)})
CAP = 20
ERRORS = ("transient", "permanent", "throttled", "lost", "handed-over")


def error(kind: str, code: str = "REASON") -> AttemptError:
    return AttemptError(code, "it broke", ErrorClass(kind))


def held(attempt: int = 1, *, running: bool = False, effects: bool = False, **fields: Any) -> Task:
    task = acquired(submitted(attempt_count=attempt - 1, **fields))
    return started(task, effects=effects) if running else task


def after(task: Task, kind: str, policies: Policies = POLICIES) -> Task:
    return outcomes.after_error(task, error(kind), LATER, policies)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(
    ("kind", "attempt", "expected", "excused"),
    [
        ("transient", 1, "RETRY_SCHEDULED", 0),
        ("transient", 2, "RETRY_SCHEDULED", 0),
        ("transient", 3, "FAILURE", 0),
        ("permanent", 1, "FAILURE", 0),
        ("throttled", 1, "RETRY_SCHEDULED", 1),
        ("throttled", 3, "RETRY_SCHEDULED", 1),
        ("lost", 1, "RETRY_SCHEDULED", 0),
        ("lost", 3, "FAILURE", 0),
        ("handed-over", 1, "RETRY_SCHEDULED", 1),
        ("handed-over", 3, "RETRY_SCHEDULED", 1),
    ],
)
def test_decisions(kind: str, attempt: int, expected: str, excused: int, running: bool) -> None:
    ended = after(held(attempt, running=running), kind)
    assert (ended.status, ended.attempts_excused, ended.error_code) == (expected, excused, "REASON")
    assert ended.attempt_count == attempt


@pytest.mark.parametrize(("children", "expected"), [((), "FAILURE"), (("child",), "RETRY_SCHEDULED")])
def test_a_task_cancelled_just_before_its_work_postpones_ends_at_once_unless_it_has_children(children, expected):
    """The cancellation came after the last checkpoint; the task would keep its wait, of a day, and its caller too."""
    task = held(running=True, cancel_requested=True, family=AdoptedChildren(children=children))
    ended = outcomes.after_error(task, error("waiting"), LATER, POLICIES, wait=24 * HOUR)
    assert (ended.status, ended.error_code) == (expected, "REASON" if children else t.CANCELLED)


def test_the_limit_is_that_of_the_task_type() -> None:
    assert after(held(1, task_type="REPORT"), "transient").status is Status.FAILURE
    assert after(held(1, task_type="TABLE_PURGE"), "transient").status is Status.RETRY_SCHEDULED


@pytest.mark.parametrize("kind", ["transient", "throttled"])
def test_an_error_waits_for_the_backoff(kind: str) -> None:
    ended = after(held(), kind)
    assert ended.next_scheduled_run_ts == LATER + timedelta(seconds=30)
    assert ended.due_at == LATER + timedelta(seconds=90)


@pytest.mark.parametrize("kind", ["lost", "handed-over"])
def test_a_lost_or_handed_over_attempt_is_retried_at_once(kind: str) -> None:
    assert after(held(), kind).next_scheduled_run_ts == LATER


# ---- failing before the first delete


@pytest.mark.parametrize(("kind", "running"), list(product(["transient", "permanent", "throttled"], [False, True])))
def test_a_synchronous_task_that_fails_before_its_first_delete_is_not_retried(kind: str, running: bool) -> None:
    ended = after(held(running=running, synchronous=True), kind)
    assert (ended.status, ended.effects_began_ts) == (Status.FAILURE, None)


# ---- throttling


def test_a_limited_number_of_attempts_is_excused_for_throttling() -> None:
    task = held()
    for n in range(1, CAP + 1):
        waiting = after(task, "throttled")
        assert (waiting.status, waiting.attempts_excused, waiting.throttled_count) == (Status.RETRY_SCHEDULED, n, n)
        task = acquired(waiting)
    assert [task.attempt_count, task.unexcused_attempts] == [CAP + 1, 1]
    for unexcused in (1, 2):
        waiting = after(task, "throttled")
        assert (waiting.status, waiting.attempts_excused) == (Status.RETRY_SCHEDULED, CAP)
        assert waiting.unexcused_attempts == unexcused
        task = acquired(waiting)
    assert after(task, "throttled").status is Status.FAILURE


# ---- cancelling and loss


def test_a_cancelled_parent_waits_for_its_children() -> None:
    ended = after(
        held(running=True).evolve(cancel_requested=True, family=AdoptedChildren(children=("child",))), "waiting"
    )
    assert (ended.status, ended.cancel_requested) == (Status.RETRY_SCHEDULED, True)


@pytest.mark.parametrize("kind", [kind.value for kind in ErrorClass if kind is not ErrorClass.WAITING])
def test_a_cancelled_task_ends_with_its_attempt_whatever_the_error(kind: str) -> None:
    ended = after(held(running=True).evolve(cancel_requested=True), kind)
    assert (ended.status, ended.error_code) == (Status.FAILURE, "CANCELLED")


def test_a_holder_is_lost_from_its_deadline_and_not_before() -> None:
    task = acquired(submitted(), lease=HOUR)
    assert outcomes.after_loss(task, NOW + HOUR - SECOND, POLICIES) is task
    beat = t.renew(task, 1, Lease(NOW + 2 * HOUR, NOW + HOUR))
    assert outcomes.after_loss(beat, NOW + HOUR, POLICIES) is beat
    lost = outcomes.after_loss(task, NOW + HOUR, POLICIES)
    assert (lost.status, lost.error_code, lost.next_scheduled_run_ts) == (Status.RETRY_SCHEDULED, "LOST", NOW + HOUR)
    assert "the lease of worker-1 ended at 2026-11-21T13:00:00Z" in (lost.result_summary or "")


@pytest.mark.parametrize("make", [submitted, lambda: after(held(), "transient"), lambda: after(held(), "permanent")])
def test_only_a_held_task_can_be_lost(make: Any) -> None:
    task = make()
    assert outcomes.after_loss(task, NOW + 1000 * HOUR, POLICIES) is task


def test_the_loss_of_the_last_attempt_is_a_failure() -> None:
    ended = outcomes.after_loss(held(3), NOW + HOUR, POLICIES)
    assert (ended.status, ended.error_code) == (Status.FAILURE, "LOST")


# ---- random sequences of errors

KINDS = st.sampled_from(ERRORS)
LIVES = st.lists(st.tuples(KINDS, st.booleans(), st.booleans()), max_size=60)


@given(life=LIVES, limit=st.integers(1, 6), synchronous=st.booleans(), new_plan=st.booleans())
def test_unexcused_attempts_never_exceed_the_policy(life, limit, synchronous, new_plan):
    """Whatever ends the attempts of a task, the last one allowed is the last one made."""
    policies = replace(POLICIES, default=RetryPolicy(max_attempts=limit))
    task, now, throttled = submitted(synchronous=synchronous), NOW, 0
    for kind, deletes, running in life:
        holder = acquired(task, now=now)
        assert 1 <= holder.unexcused_attempts <= limit
        assert holder.attempt_count == task.attempt_count + 1
        if running or deletes:
            holder = started(holder, now, effects=deletes)
        ended = outcomes.after_error(holder, error(kind), now, policies)
        throttled += kind == "throttled" and ended.attempts_excused > holder.attempts_excused
        assert throttled <= CAP
        assert ended.attempts_excused - holder.attempts_excused in (0, 1)
        untouched = synchronous and ended.effects_began_ts is None and kind not in {"lost", "handed-over"}
        if ended.status is Status.FAILURE:
            assert untouched or kind == "permanent" or holder.unexcused_attempts == limit
            now += MINUTE
            task = t.resubmit(
                ended, now, payload="{}", synchronous=synchronous, grace=MINUTE, restarted={} if new_plan else None
            )
            assert task.unexcused_attempts == 0
            throttled = 0
        else:
            assert ended.status is Status.RETRY_SCHEDULED
            assert not untouched
            assert kind != "permanent"
            task, now = ended, ended.next_scheduled_run_ts or now
