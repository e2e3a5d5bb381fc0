"""A driver interrupted at each of its calls, before or after it took effect, and run again: one outcome."""

from collections.abc import Callable
from datetime import datetime

import pytest

from delegation.removal.attempt import PlanSegment
from delegation.removal.details import published
from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable, TaskError
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.kit.tasks.builders import HOUR, MINUTE, SECOND, Clock, submitted
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service

SEGMENT = PlanSegment(id="1/0", sha256="ab")
TRANSIENT = AttemptError("TIMEOUT", "timed out", ErrorClass.TRANSIENT)


class Interruptions:
    """Counts the points at which a store can fail, and fails at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.points: list[str] = []

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if len(self.points) - 1 == self.at:
            raise OutcomeUnknown(point) if point.startswith("after") else StoreUnavailable(point)


class Driver:
    """What the API, an execution and its engine do with one task; each step may be repeated."""

    def __init__(self, interruptions: Interruptions) -> None:
        self.store = MemoryTaskStore(interruptions)
        self.clock = Clock()
        self.queue = Queue()
        self.service = task_service(self.store, queue=self.queue, clock=self.clock)
        self.first = submitted()

    def succeed(self) -> Task:
        task_id = self.accept()
        held = self.service.leases.acquire(task_id, "run-1", lasting)
        if held.is_terminal:
            return held
        attempt = held.attempt_count
        plan = PurgeDetails.of(
            self.service.writes.change(
                task_id, lambda task, _now: published(task, attempt, SEGMENT, seen=0, files_planned=3)
            )
        ).plan_segments
        assert plan == (SEGMENT,)
        self.service.leases.start(task_id, attempt, effects=True)
        self.service.leases.heartbeat(task_id, attempt, lasting, progress_ts=self.clock())
        return self.service.leases.succeed(task_id, attempt, "deleted 3 files")

    def cancel(self) -> Task:
        task_id = self.accept()
        self.service.leases.acquire(task_id, "run-1", lasting)
        asked = self.service.operators.cancel(task_id)
        return self.service.leases.end_attempt(task_id, 1, TRANSIENT) if asked.is_held else asked

    def lose(self) -> Task:
        """The holder sends no heartbeat for an hour; the sweeper finds the task."""
        task_id = self.accept()
        first = self.service.leases.acquire(task_id, "run-1", lasting)
        if not first.is_terminal and first.attempt_count == 1:
            self.clock.now = max(self.clock.now, first.lease.lost_not_before or self.clock.now)
            self.service.dispatching.reconcile(task_id)
        held = self.service.leases.acquire(task_id, "run-2", lasting)
        return held if held.is_terminal else self.service.leases.succeed(task_id, held.attempt_count, "deleted 3 files")

    def accept(self) -> str:
        self.store.apply(Create(self.first))
        self.service.dispatching.dispatch(self.first.task_id)
        return self.first.task_id


def lasting(now: datetime) -> Lease:
    return Lease.lasting(HOUR, now)


LIVES: dict[Callable[[Driver], Task], tuple[Status, int, list[str]]] = {
    Driver.succeed: (Status.SUCCESS, 1, ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]),
    Driver.cancel: (Status.FAILURE, 1, ["SUBMITTED", "ACQUIRING_RESOURCES", "FAILURE"]),
    Driver.lose: (
        Status.SUCCESS,
        2,
        ["SUBMITTED", "ACQUIRING_RESOURCES", "RETRY_SCHEDULED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"],
    ),
}


def points(life: Callable[[Driver], Task]) -> list[str]:
    calm = Interruptions()
    life(Driver(calm))
    return calm.points


CASES = [
    pytest.param(life, at, id=f"{life.__name__}-{at}-{point.replace(' ', '-')}")
    for life in LIVES
    for at, point in enumerate(points(life))
]


@pytest.mark.parametrize(("life", "at"), CASES)
def test_an_interrupted_life_ends_like_an_uninterrupted_one(life: Callable[[Driver], Task], at: int) -> None:
    driver = Driver(Interruptions(at))
    with pytest.raises(TaskError):
        life(driver)
    driver.clock.advance(SECOND)
    life(driver)
    status, attempts, statuses = LIVES[life]
    task = driver.service.reads.get(driver.first.task_id)
    rows = driver.store.history(task.task_id)
    assert (task.status, task.attempt_count) == (status, attempts)
    assert [row.status.value for row in rows] == statuses
    assert [row.version for row in rows] == list(range(1, len(rows) + 1))
    assert list(driver.store.due(driver.clock() + 1000 * HOUR)) == []


@pytest.mark.parametrize("at", range(len(points(Driver.succeed))))
def test_a_task_abandoned_at_any_call_is_found_by_the_sweeper(at: int) -> None:
    """After the interruption no former process continues: the index alone must lead to an outcome."""
    interruptions = Interruptions(at)
    driver = Driver(interruptions)
    with pytest.raises(TaskError):
        driver.succeed()
    driver.store.fault = lambda _point: None
    task_id = driver.first.task_id
    if driver.store.get(task_id) is None:
        assert interruptions.points[-1] == "before apply"
        return
    for _ in range(200):
        task = driver.service.reads.get(task_id)
        if task.is_terminal:
            break
        driver.clock.advance(MINUTE)
        for entry in driver.store.due(driver.clock()):
            driver.service.dispatching.reconcile(entry.task_id)
        sent, driver.queue.sent = driver.queue.sent, []
        for _task, n in sent:
            held = driver.service.leases.acquire(task_id, f"run-{n}", lasting)
            if held.lease.owner == f"run-{n}":
                driver.service.leases.succeed(task_id, held.attempt_count, "deleted 3 files")
    assert driver.service.reads.get(task_id).status is Status.SUCCESS
