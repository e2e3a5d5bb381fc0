"""Nothing lowers `attempt_count`: it is the fencing token."""

from collections.abc import Callable
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.errors import IllegalTransition, LeaseLost
from delegation.tasks.life import decisions, outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, submitted

POLICIES = Policies(default=RetryPolicy(max_attempts=3), by_type={})
ERRORS = st.sampled_from(list(ErrorClass))


def lease(now: datetime) -> Lease:
    return Lease.lasting(HOUR, now)


def error(kind: ErrorClass) -> AttemptError:
    return AttemptError("REASON", "it broke", kind)


Change = Callable[[Task, datetime], Task | tuple[Task, ...]]
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.sampled_from(["a", "b"]).map(
        lambda owner: (
            lambda task, now: decisions.claim(task, owner, now, POLICIES, lease, ended_attempt=task.attempt_count)
        )
    ),
    st.just(lambda task, now: decisions.reconcile(task, now, POLICIES, ended_attempt=task.attempt_count)),
    st.just(lambda task, now: outcomes.after_loss(task, now, POLICIES)),
    ERRORS.map(
        lambda kind: (
            lambda task, now: decisions.end_attempt(task, task.attempt_count, error(kind), now, POLICIES, wait=None)
        )
    ),
    st.booleans().map(lambda effects: lambda task, now: t.start(task, task.attempt_count, now, effects=effects)),
    st.just(lambda task, now: decisions.succeed(task, task.attempt_count, now, "done")),
    st.just(decisions.cancel),
    st.booleans().map(
        lambda anew: (
            lambda task, now: t.resubmit(
                task, now, payload="{}", synchronous=False, grace=MINUTE, restarted={} if anew else None
            )
        )
    ),
    st.just(lambda task, _now: t.renew(task, task.attempt_count, lease(NOW))),
)


@given(st.lists(st.tuples(CHANGES, st.integers(0, 90)), max_size=40), st.booleans())
def test_no_change_of_a_task_lowers_it(changes: list[tuple[Change, int]], recurs: bool) -> None:
    task, now = submitted(recurrence_seconds=60 if recurs else None), NOW
    for change, minutes in changes:
        now += timedelta(minutes=minutes)
        try:
            decided = change(task, now)
        except (LeaseLost, IllegalTransition):
            continue
        for after in decided if isinstance(decided, tuple) else (decided,):
            grown = after.attempt_count - task.attempt_count
            assert grown in (0, 1)
            assert (grown == 1) == (after.is_held and not task.is_held)
            task = after
