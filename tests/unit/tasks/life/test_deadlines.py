"""A task past its deadline ends as FAILURE, unless its work has begun to change what it works on."""

from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.tasks.life import decisions, outcomes
from delegation.tasks.life.model import AdoptedChildren, Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import InvalidProperty, Lease, Policies, RetryPolicy
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND, acquired, started, submitted

POLICIES = Policies(default=RetryPolicy(), by_type={})
DEADLINE = NOW + HOUR


def due_by(**fields: object) -> Task:
    return submitted(deadline_ts=DEADLINE, **fields)


def claimed(task: Task, now: timedelta) -> Task:
    decided = decisions.claim(
        task, "w", NOW + now, POLICIES, lambda at: Lease.lasting(HOUR, at), ended_attempt=task.attempt_count or None
    )
    return decided[-1] if isinstance(decided, tuple) else decided


def test_the_properties_give_a_deadline_per_task_type() -> None:
    name = "delegation.task.{}.deadline-duration"
    assert Policies.from_properties({}).deadline("REPORT", NOW) is None
    some = Policies.from_properties({name.format("REPORT"): "2h", name.format("default"): "1d"})
    assert some.deadline("REPORT", NOW) == NOW + 2 * HOUR
    assert some.deadline("OTHER", NOW) == NOW + 24 * HOUR
    with pytest.raises(InvalidProperty, match=r"delegation\.task\.REPORT\.deadline-duration"):
        Policies.from_properties({name.format("REPORT"): "soon"})


def test_the_property_of_a_type_precedes_the_behaviors_own_deadline_and_that_the_default() -> None:
    own = replace(POLICIES, declared_deadlines={"REPORT": HOUR})
    assert own.deadline("REPORT", NOW) == NOW + HOUR
    assert replace(own, deadlines={"default": 2 * HOUR}).deadline("REPORT", NOW) == NOW + HOUR
    assert replace(own, deadlines={"REPORT": 3 * HOUR}).deadline("REPORT", NOW) == NOW + 3 * HOUR


@pytest.mark.parametrize("kind", ["transient", "handed-over", "throttled", "refused", "lost", "interrupted"])
def test_no_attempt_follows_that_would_begin_after_the_deadline(kind: str) -> None:
    held = acquired(due_by())
    error = AttemptError("REASON", "it broke", ErrorClass(kind))
    assert outcomes.after_error(held, error, DEADLINE - 2 * MINUTE, POLICIES).status is Status.RETRY_SCHEDULED
    late = outcomes.after_error(held, error, DEADLINE, POLICIES)
    assert (late.status, late.error_code) == (Status.FAILURE, "DEADLINE_EXCEEDED")
    assert "REASON" in (late.result_summary or "")


def test_a_retry_that_would_wait_beyond_the_deadline_is_not_scheduled() -> None:
    error = AttemptError("REASON", "it broke", ErrorClass.TRANSIENT)
    after = outcomes.after_error(acquired(due_by()), error, DEADLINE - 10 * SECOND, POLICIES)
    assert after.error_code == "DEADLINE_EXCEEDED"


def test_a_waiting_task_past_its_deadline_is_not_acquired() -> None:
    assert claimed(due_by(), HOUR - SECOND).is_held
    after = claimed(due_by(), HOUR)
    assert (after.status, after.error_code) == (Status.FAILURE, "DEADLINE_EXCEEDED")


def test_a_waiting_task_past_its_deadline_is_not_dispatched() -> None:
    after = decisions.reconcile(due_by(), DEADLINE, POLICIES, ended_attempt=None)
    assert (after.status, after.error_code, after.dispatches.count) == (Status.FAILURE, "DEADLINE_EXCEEDED", 0)


@pytest.mark.parametrize("kind", ["transient", "handed-over", "lost"])
def test_no_deadline_stops_a_purge_after_its_first_delete(kind: str) -> None:
    deleting = started(acquired(due_by()), effects=True)
    error = AttemptError("REASON", "it broke", ErrorClass(kind))
    waiting = outcomes.after_error(deleting, error, DEADLINE + HOUR, POLICIES)
    assert waiting.status is Status.RETRY_SCHEDULED
    assert claimed(waiting, 4 * HOUR).is_held
    assert decisions.reconcile(waiting, DEADLINE + 9 * HOUR, POLICIES, ended_attempt=None).dispatches.count == 1


def test_a_parent_past_its_deadline_waits_for_its_children() -> None:
    parent = acquired(due_by(family=AdoptedChildren(children=("child",))))
    error = AttemptError("REASON", "it broke", ErrorClass.TRANSIENT)
    waiting = outcomes.after_error(parent, error, DEADLINE, POLICIES)
    assert waiting.status is Status.RETRY_SCHEDULED
    assert outcomes.parked_error(waiting.pending_result).code == "DEADLINE_EXCEEDED"
    assert claimed(waiting, 2 * HOUR).is_held
