"""DESIGN §2 as one table: every status times everything that can happen to a task, through the service and its store.

What the table does not name changes no status. Together with `test_transitions.test_arrows`, which tries all 36 pairs
of statuses, it says that exactly these arrows exist.
"""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise, product

import pytest

from delegation.tasks.errors import IllegalTransition, LeaseLost, StoreUnavailable
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Policies, RetryPolicy
from delegation.tasks.life.transitions import ARROWS, resubmit, transition
from delegation.tasks.stores.base import Advance, Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from tests.unit.tasks.builders import (
    HOUR,
    MINUTE,
    Clock,
    acquired,
    failed,
    retried,
    stamp,
    started,
    submitted,
    succeeded,
)

S, A, R, W, OK, F = "SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "RETRY_SCHEDULED", "SUCCESS", "FAILURE"


class House:
    """A service, a clock an hour after everything was due, and a task of some status."""

    def __init__(self, status: Status, *, attempts: int = 3, **fields: object) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        policies = Policies(default=RetryPolicy(max_attempts=attempts), by_type={})
        self.service = TaskService(self.store, policies, NoDispatchQueue(), clock=self.clock)
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
        self.clock.advance(2 * MINUTE)  # a retry is due, a lease of an hour is not over

    @property
    def path(self) -> list[str]:
        """The statuses that the event led through."""
        return [row.status.value for row in self.store.history(self.task_id, after=self.before.version)]


def lasting(now: object) -> Lease:
    return Lease.lasting(HOUR, now)  # type: ignore[arg-type]


def give_back(kind: ErrorClass) -> Callable[[House], object]:
    error = AttemptError(kind.name, "it broke", kind)
    return lambda house: house.service.give_back(house.task_id, house.before.attempt_count, error)


def holder_is_lost(house: House) -> None:
    house.clock.advance(HOUR)
    look(house)


def never_dispatched(house: House) -> None:
    """Twenty dispatches led to nothing, and its time has come once more."""
    house.service.change(
        house.task_id,
        lambda task, _now: task if task.is_terminal else task.evolve(dispatch_count=task.dispatch_base + 20),
    )
    house.clock.advance(MINUTE)
    look(house)


def look(house: House) -> None:
    """The sweeper looks at a task before its lease is over; without a queue it cannot dispatch."""
    with contextlib.suppress(StoreUnavailable):
        house.service.reconcile(house.task_id)


def by_a_person(house: House) -> None:
    house.service.change(
        house.task_id,
        lambda task, now: resubmit(task, now, payload="{}", synchronous=False, grace=MINUTE, anew=None),
    )


def acquire(house: House) -> None:
    house.service.acquire(house.task_id, "somebody", lasting)


EVENTS: dict[str, tuple[Callable[[House], object], dict[str, list[str]]]] = {
    "somebody acquires": (acquire, {S: [A], W: [A]}),
    "its attempt begins": (lambda h: h.service.start(h.task_id, h.before.attempt_count, effects=True), {A: [R]}),
    "its attempt succeeds": (
        lambda h: h.service.succeed(h.task_id, h.before.attempt_count, "done"),
        {A: [R, OK], R: [OK]},
    ),
    "a passing error": (give_back(ErrorClass.TRANSIENT), {A: [W], R: [W]}),
    "throttled": (give_back(ErrorClass.THROTTLED), {A: [W], R: [W]}),
    "handed over": (give_back(ErrorClass.HANDED_OVER), {A: [W], R: [W]}),
    "an error for good": (give_back(ErrorClass.PERMANENT), {A: [F], R: [F]}),
    "its holder is lost": (holder_is_lost, {A: [W], R: [W]}),
    "cancelled": (lambda h: h.service.cancel(h.task_id), {S: [F], W: [F]}),
    "cannot be dispatched": (never_dispatched, {S: [F], W: [F]}),
    "looked at": (look, {}),
    "a heartbeat": (lambda h: h.service.heartbeat(h.task_id, h.before.attempt_count, lasting), {}),
    "asked for again": (by_a_person, {OK: [S], F: [S]}),
}


@pytest.mark.parametrize(("status", "event"), list(product(Status, EVENTS)))
def test_what_can_happen_to_a_task(status: Status, event: str) -> None:
    act, table = EVENTS[event]
    house = House(status)
    if status.value in table:
        act(house)
        assert house.path == table[status.value]
        return
    try:
        act(house)
    except (LeaseLost, IllegalTransition):
        assert house.store.get(house.task_id) == house.before
    assert house.path == []
    assert house.service.get(house.task_id).status is status


@pytest.mark.parametrize("status", [Status.ACQUIRING_RESOURCES, Status.RUNNING])
def test_a_holder_that_is_lost_is_replaced_through_a_retry(status: Status) -> None:
    house = House(status)
    house.clock.advance(HOUR)
    acquire(house)
    assert house.path == [W, A]


@pytest.mark.parametrize("status", [Status.ACQUIRING_RESOURCES, Status.RUNNING])
def test_the_last_attempt_that_is_lost_or_errs_is_a_failure(status: Status) -> None:
    for act in (give_back(ErrorClass.TRANSIENT), holder_is_lost):
        house = House(status, attempts=1)
        act(house)
        assert house.path == [F]


@pytest.mark.parametrize("status", [Status.ACQUIRING_RESOURCES, Status.RUNNING])
def test_a_held_task_that_is_cancelled_ends_with_its_attempt_or_its_lease(status: Status) -> None:
    for act in (
        give_back(ErrorClass.TRANSIENT),
        holder_is_lost,
        lambda house: (house.clock.advance(HOUR), acquire(house)),
    ):
        house = House(status)
        house.service.cancel(house.task_id)
        assert house.path == []
        act(house)
        assert house.path == [F]
        assert house.service.get(house.task_id).error_code == "CANCELLED"


def test_a_recurring_task_is_submitted_in_the_write_that_ends_it() -> None:
    for act, end in ((EVENTS["its attempt succeeds"][0], OK), (give_back(ErrorClass.PERMANENT), F)):
        house = House(Status.RUNNING, recurrence_seconds=60)
        act(house)
        assert house.path == [end, S]
        again = house.service.get(house.task_id)
        assert again.next_scheduled_run_ts == house.clock() + timedelta(seconds=60)


def test_a_recurring_task_that_ends_before_it_sees_its_cancellation_does_not_recur() -> None:
    house = House(Status.RUNNING, recurrence_seconds=60)
    house.service.cancel(house.task_id)
    EVENTS["its attempt succeeds"][0](house)
    assert house.path == [OK, S, F]
    head = house.service.get(house.task_id)
    assert (head.error_code, head.due_at) == ("CANCELLED", None)


def test_giving_back_twice_is_safe_also_after_a_cancellation() -> None:
    """The answer of the first was lost; the second finds what the first recorded, and writes nothing."""
    house = House(Status.RUNNING)
    house.service.cancel(house.task_id)
    give_back(ErrorClass.TRANSIENT)(house)
    first = house.service.get(house.task_id)
    give_back(ErrorClass.TRANSIENT)(house)
    assert house.service.get(house.task_id) == first
    assert house.path == [F]


def test_the_tables_of_this_page_walk_every_arrow_but_the_two_straight_to_running() -> None:
    """Those two are for work that begins as it is leased; `transition` allows them, and nothing else."""
    walked = set()
    for _act, table in EVENTS.values():
        for source, path in table.items():
            walked |= set(pairwise([source, *path]))
    straight = {(S, R), (W, R)}
    allowed = {(source.value, target.value) for source, targets in ARROWS.items() for target in targets}
    assert walked | straight == allowed
    assert walked & straight == set()
    for source, _target in straight:
        held = acquired(submitted())
        lease = {name: getattr(held, name) for name in ("lease_owner", "lease_acquired_ts", "lost_not_before")}
        house = House(Status(source))
        after = transition(
            house.before,
            Status.RUNNING,
            held.created_ts,
            **lease,
            recheck_not_before=held.recheck_not_before,
            next_scheduled_run_ts=None,
            attempt_count=house.before.attempt_count + 1,
        )
        assert house.store.apply(Advance(house.before, stamp(house.before, after))).status is Status.RUNNING
