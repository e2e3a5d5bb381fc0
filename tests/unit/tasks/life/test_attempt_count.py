"""Nothing lowers `attempt_count`: it is the fencing token."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.errors import IllegalTransition, LeaseLost, TaskError
from delegation.tasks.life import decisions, outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores.base import Advance, Create, Revise, TaskChange
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, Clock, submitted
from tests.kit.tasks.services import task_service

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


class CountedStore(MemoryTaskStore):
    """Checks each write."""

    def apply(self, change: TaskChange) -> Task:
        if isinstance(change, Advance | Revise):
            assert change.after.attempt_count >= change.before.attempt_count
        return super().apply(change)


CALLS = st.sampled_from(
    ["acquire", "acquire-late", "start", "end", "lose", "succeed", "cancel", "retry", "reconcile", "resubmit"]
)


@given(st.lists(CALLS, max_size=30))
def test_no_call_of_the_service_lowers_it(calls: list[str]) -> None:
    store, clock = CountedStore(), Clock()
    service = task_service(store, POLICIES, clock=clock)
    task_id = store.apply(Create(submitted(recurrence_seconds=60))).task_id
    highest = 0
    acts: dict[str, Callable[[int], object]] = {
        "acquire": lambda _attempt: service.leases.acquire(task_id, "w", lease),
        "acquire-late": lambda _attempt: clock.advance(3 * HOUR) and service.leases.acquire(task_id, "v", lease),
        "start": lambda attempt: service.leases.start(task_id, attempt),
        "end": lambda attempt: service.leases.end_attempt(task_id, attempt, error(ErrorClass.TRANSIENT)),
        "lose": lambda _attempt: clock.advance(3 * HOUR) and service.dispatching.presume_lost(task_id),
        "succeed": lambda attempt: service.leases.succeed(task_id, attempt, "done"),
        "cancel": lambda _attempt: service.operators.cancel(task_id),
        "retry": lambda _attempt: service.operators.retry(task_id),
        "reconcile": lambda _attempt: clock.advance(HOUR) and service.dispatching.reconcile(task_id),
        "resubmit": lambda _attempt: service.submission.create(submitted(task_id)),
    }
    for call in calls:
        clock.advance(MINUTE)
        highest = max(highest, service.reads.get(task_id).attempt_count)
        with suppress(TaskError):
            acts[call](highest)
        assert service.reads.get(task_id).attempt_count >= highest
