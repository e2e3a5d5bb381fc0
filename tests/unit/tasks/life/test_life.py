"""Every status combined with every event that can happen to a task, through the service and its store.

Events that the table does not list for a status change no status. Together with `test_transitions.test_arrows`, which
tries all 36 pairs of statuses, this shows that exactly these changes are possible.
"""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise, product

import pytest

from delegation.tasks.errors import IllegalTransition, LeaseLost, StoreUnavailable
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.life.transitions import ARROWS, resubmit
from delegation.tasks.stores.base import Advance, Create
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.kit.tasks.builders import (
    HOUR,
    MINUTE,
    Clock,
    acquired,
    failed,
    retried,
    started,
    submitted,
    succeeded,
)
from tests.kit.tasks.services import task_service

HELD = pytest.mark.parametrize("status", [Status.ACQUIRING_RESOURCES, Status.RUNNING])
S, A, R, W, OK, F = "SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "RETRY_SCHEDULED", "SUCCESS", "FAILURE"


class Harness:
    """A service, a clock an hour after everything was due, and a task of some status."""

    def __init__(self, status: Status, *, attempts: int = 3, **fields: object) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        self.service = task_service(
            self.store, Policies(default=RetryPolicy(max_attempts=attempts), by_type={}), clock=self.clock
        )
        task = self.store.apply(Create(submitted(**fields)))
        lives: dict[str, list[Callable[[Task], Task]]] = {
            S: [],
            A: [acquired],
            R: [acquired, started],
            W: [acquired, started, retried],
            OK: [acquired, started, succeeded],
            F: [acquired, started, failed],
        }
        for step in lives[status.value]:
            task = self.store.apply(Advance(task, step(task)))
        self.task_id = task.task_id
        self.before = task
        self.clock.advance(2 * MINUTE)  # a retry is due, a lease of an hour has not ended

    @property
    def path(self) -> list[str]:
        """The statuses that the event led through."""
        return [row.status.value for row in self.store.history(self.task_id, after=self.before.version)]


def lasting(now: object) -> Lease:
    return Lease.lasting(HOUR, now)  # type: ignore[arg-type]


def end_attempt(kind: ErrorClass) -> Callable[[Harness], object]:
    error = AttemptError(kind.name, "it failed", kind)
    return lambda harness: harness.service.leases.end_attempt(harness.task_id, harness.before.attempt_count, error)


def holder_is_lost(harness: Harness) -> None:
    harness.clock.advance(HOUR)
    check(harness)


def never_dispatched(harness: Harness) -> None:
    """Twenty dispatches started no attempt, and the task is due again."""
    harness.service.writes.change(
        harness.task_id,
        lambda task, _now: (
            task
            if task.is_terminal
            else task.evolve(dispatches=task.dispatches.evolve(count=task.dispatches.base + 20))
        ),
    )
    harness.clock.advance(MINUTE)
    check(harness)


def check(harness: Harness) -> None:
    """The sweeper checks a task whose lease has not ended; without a queue it cannot dispatch."""
    with contextlib.suppress(StoreUnavailable):
        harness.service.dispatching.reconcile(harness.task_id)


def resubmit_it(harness: Harness) -> None:
    harness.service.writes.change(
        harness.task_id,
        lambda task, now: resubmit(task, now, payload="{}", synchronous=False, grace=MINUTE, restarted=None),
    )


def acquire(harness: Harness) -> None:
    harness.service.leases.acquire(harness.task_id, "another", lasting)


EVENTS: dict[str, tuple[Callable[[Harness], object], dict[str, list[str]]]] = {
    "acquired": (acquire, {S: [A], W: [A]}),
    "its attempt begins": (lambda h: h.service.leases.start(h.task_id, h.before.attempt_count, effects=True), {A: [R]}),
    "its attempt succeeds": (
        lambda h: h.service.leases.succeed(h.task_id, h.before.attempt_count, "done"),
        {A: [R, OK], R: [OK]},
    ),
    "a transient error": (end_attempt(ErrorClass.TRANSIENT), {A: [W], R: [W]}),
    "throttled": (end_attempt(ErrorClass.THROTTLED), {A: [W], R: [W]}),
    "handed over": (end_attempt(ErrorClass.HANDED_OVER), {A: [W], R: [W]}),
    "a permanent error": (end_attempt(ErrorClass.PERMANENT), {A: [F], R: [F]}),
    "its holder is lost": (holder_is_lost, {A: [W], R: [W]}),
    "cancelled": (lambda h: h.service.operators.cancel(h.task_id), {S: [F], W: [F]}),
    "cannot be dispatched": (never_dispatched, {S: [F], W: [F]}),
    "checked by the sweeper": (check, {}),
    "a heartbeat": (lambda h: h.service.leases.heartbeat(h.task_id, h.before.attempt_count, lasting), {}),
    "submitted again": (resubmit_it, {OK: [S], F: [S]}),
}


@pytest.mark.parametrize(("status", "event"), list(product(Status, EVENTS)))
def test_what_can_happen_to_a_task(status: Status, event: str) -> None:
    act, table = EVENTS[event]
    harness = Harness(status)
    if status.value in table:
        act(harness)
        assert harness.path == table[status.value]
        return
    try:
        act(harness)
    except (LeaseLost, IllegalTransition):
        assert harness.store.get(harness.task_id) == harness.before
    assert harness.path == []
    assert harness.service.reads.get(harness.task_id).status is status


@HELD
def test_a_held_task_that_is_cancelled_ends_with_its_attempt_or_its_lease(status: Status) -> None:
    for act in (
        end_attempt(ErrorClass.TRANSIENT),
        holder_is_lost,
        lambda harness: (harness.clock.advance(HOUR), acquire(harness)),
    ):
        harness = Harness(status)
        harness.service.operators.cancel(harness.task_id)
        assert harness.path == []
        act(harness)
        assert harness.path == [F]
        assert harness.service.reads.get(harness.task_id).error_code == "CANCELLED"


def test_a_recurring_task_is_submitted_in_the_write_that_ends_it() -> None:
    for act, end in ((EVENTS["its attempt succeeds"][0], OK), (end_attempt(ErrorClass.PERMANENT), F)):
        harness = Harness(Status.RUNNING, recurrence_seconds=60)
        act(harness)
        assert harness.path == [end, S]
        again = harness.service.reads.get(harness.task_id)
        assert again.next_scheduled_run_ts == harness.clock() + timedelta(seconds=60)


def test_a_recurring_task_that_ends_before_it_sees_its_cancellation_does_not_recur() -> None:
    harness = Harness(Status.RUNNING, recurrence_seconds=60)
    harness.service.operators.cancel(harness.task_id)
    EVENTS["its attempt succeeds"][0](harness)
    assert harness.path == [OK, S, F]
    head = harness.service.reads.get(harness.task_id)
    assert (head.error_code, head.due_at) == ("CANCELLED", None)


def test_ending_an_attempt_twice_is_safe_also_after_a_cancellation() -> None:
    """The answer to the first was lost; the second finds what the first recorded, and writes nothing."""
    harness = Harness(Status.RUNNING)
    harness.service.operators.cancel(harness.task_id)
    end_attempt(ErrorClass.TRANSIENT)(harness)
    first = harness.service.reads.get(harness.task_id)
    end_attempt(ErrorClass.TRANSIENT)(harness)
    assert harness.service.reads.get(harness.task_id) == first
    assert harness.path == [F]


def test_the_events_cover_every_change_of_status_but_the_two_straight_to_running() -> None:
    """Those two are for work that begins as it is leased; `test_transitions.test_arrows` makes them."""
    covered = set()
    for _act, table in EVENTS.values():
        for source, path in table.items():
            covered |= set(pairwise([source, *path]))
    allowed = {(source.value, target.value) for source, targets in ARROWS.items() for target in targets}
    assert allowed - covered == {(S, R), (W, R)}
    assert covered <= allowed
