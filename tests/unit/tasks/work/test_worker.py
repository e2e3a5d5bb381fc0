"""A worker: which task it leases, which engine it uses, and how long it renews a lease."""

import itertools
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from pydantic import BaseModel

from delegation import items
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Lease, LeasePolicy
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.codec import due_bucket
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.submit import Tasks
from delegation.tasks.work.attempt_context import AttemptContext, WorkOutlivedLease, renew_every
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import DueHints, Worker, WorkerSettings, lease_next_available_task
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND, Clock, submitted
from tests.kit.tasks.services import task_service
from tests.unit.tasks.work.shared_time import SharedTime

TASK_TYPE = "TABLE_PURGE"
AT_MOST = 60.0
"""Seconds that a gate blocks work: a worker that does not notice fails its test instead of hanging it."""
SHORT = {
    "delegation.task.lease.lost-timeout-duration": "400ms",
    "delegation.task.lease.clock-drift-duration": "100ms",
}


def service(store: MemoryTaskStore, properties: dict[str, str] | None = None, clock: object = None) -> TaskService:
    return task_service(store, properties or {}, clock=clock or Clock(NOW + HOUR))


def lasting(now: datetime) -> Lease:
    return Lease.lasting(HOUR, now)


@dataclass
class Chooses:
    """A TaskBehavior that chooses one engine, None after having ended the attempt."""

    tasks: TaskService
    engine: str | None
    ran: list[Task] = field(default_factory=list)
    task_types: frozenset[str] = frozenset({TASK_TYPE})

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        return self.engine

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        self.ran.append(task)
        return self.tasks.leases.succeed(task.task_id, task.attempt_count, "ran here")


def chosen(engine: str | None) -> tuple[TaskService, Chooses]:
    """Return a service with a due task, and the behavior that chooses its engine."""
    store = MemoryTaskStore()
    store.apply(Create(submitted("x", due_at=NOW)))
    tasks = service(store)
    return tasks, Chooses(tasks, engine)


@dataclass
class Elsewhere:
    """An engine that does its work at once."""

    tasks: TaskService
    driven: list[Task] = field(default_factory=list)

    def drive(self, task: Task, stopping: threading.Event) -> Task:
        self.driven.append(task)
        return self.tasks.leases.succeed(task.task_id, task.attempt_count, "ran elsewhere")


def worker_of(tasks: TaskService, behavior: object, **arguments: object) -> Worker:
    return Worker(tasks, Behaviors([behavior]), WorkerSettings(owner="w"), **arguments)


def test_tasks_of_unknown_types_hide_no_others_however_many_they_are() -> None:
    store = MemoryTaskStore()
    beside = (f"newer-{n}" for n in itertools.count())
    foreign = set(itertools.islice((name for name in beside if due_bucket(name) == due_bucket("mine")), 30))
    for task_id in foreign:
        store.apply(Create(submitted(task_id, task_type="NEWER", due_at=NOW)))
    store.apply(Create(submitted("mine", due_at=NOW + MINUTE)))
    due_hints = DueHints(candidates=5)
    assert lease_next_available_task(service(store), "w", {TASK_TYPE}, lasting, due_hints=due_hints).task_id == "mine"
    assert len(due_hints.foreign.ids & foreign) >= 5
    assert due_hints.foreign.ids <= foreign
    heads = [store.get(task_id) for task_id in foreign]
    assert {(head.status, head.version, head.revision) for head in heads} == {(Status.SUBMITTED, 1, 1)}


@pytest.mark.parametrize(
    ("engine", "where", "ran"),
    [("inline", "ran here", (1, 0)), ("spark", "ran elsewhere", (0, 1)), (None, None, (0, 0))],
    ids=["inline", "spark", "ended while it was prepared"],
)
def test_the_behavior_chooses_where_a_task_runs(engine: str | None, where: str | None, ran: tuple[int, int]) -> None:
    tasks, behavior = chosen(engine)
    spark = Elsewhere(tasks)
    assert worker_of(tasks, behavior, engines={"spark": spark}).run_once().result_summary == where
    assert (len(behavior.ran), len(spark.driven)) == ran


def test_without_a_job_service_a_large_task_runs_inline_and_records_it() -> None:
    after = worker_of(*chosen("spark")).run_once()
    assert (after.result_summary, after.engine) == ("ran here", "inline")


def test_a_task_leased_by_a_stopping_worker_is_handed_over_before_its_work_and_the_worker_ends() -> None:
    tasks, behavior = chosen("inline")
    worker = worker_of(tasks, behavior)
    worker.stop()
    after = worker.run_once()
    assert (after.status, after.error_code, after.attempts_excused) == (Status.RETRY_SCHEDULED, "HANDED_OVER", 1)
    assert behavior.ran == []
    worker.run()


@pytest.mark.parametrize("hours", [0, 1], ids=["at once", "after hours of work"])
def test_an_unavailable_store_does_not_end_a_worker(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = partial(items.each_item, seconds=itertools.count(step=3600 * hours).__next__)
    monkeypatch.setattr("delegation.tasks.work.worker.each_item", slow)
    tasks, behavior = chosen("inline")
    rounds = itertools.count()

    def unavailable_at_first(point: str) -> None:
        if point == "before due" and next(rounds) < 2:
            raise StoreUnavailable("away")

    tasks.reads.store.fault = unavailable_at_first
    worker = Worker(tasks, Behaviors([behavior]), WorkerSettings("w", poll=timedelta(0)))
    run = behavior.run

    def run_and_stop(task: Task, *, hand_over_at: datetime | None) -> Task:
        worker.stop()
        return run(task, hand_over_at=hand_over_at)

    behavior.run = run_and_stop
    worker.run()
    assert tasks.reads.get("x").status is Status.SUCCESS


@pytest.mark.parametrize(("lost", "drift"), [(3600, 5), (60, 5), (12, 5), (6, 1), (0.4, 0.1)])
def test_a_renewal_that_fails_once_is_still_before_the_recheck_less_the_drift(lost: float, drift: float) -> None:
    lease = LeasePolicy(timedelta(seconds=lost), timedelta(seconds=drift))
    recheck = lease.lost_timeout / 2
    assert 2 * renew_every(lease) <= recheck - lease.clock_drift


class Nothing(BaseModel):
    pass


class Harness:
    """A store, a short lease on real clocks, and a task whose work blocks between two checkpoints."""

    def __init__(self) -> None:
        self.store = MemoryTaskStore()
        self.tasks = service(self.store, SHORT, clock=lambda: datetime.now(UTC))
        self.begun, self.gate = threading.Event(), threading.Event()
        behavior = Behavior("HANGS", Nothing, self.work)
        self.worker = worker_of(self.tasks, FunctionBehavior(self.tasks, behavior))
        self.task_id = Tasks(self.tasks).submit(behavior, Nothing()).task_id

    def work(self, _parameters: Nothing, _run: AttemptContext) -> None:
        self.begun.set()
        self.gate.wait(AT_MOST)


@pytest.fixture
def harness():
    made = Harness()
    yield made
    made.gate.set()


def test_hanging_work_ends_its_process_before_the_lease_ends(harness: Harness) -> None:
    with pytest.raises(WorkOutlivedLease):
        harness.worker.run_once()
    head = harness.tasks.reads.get(harness.task_id)
    assert head.status is Status.RUNNING
    assert head.lease.lost_not_before == head.lease.acquired_ts + harness.tasks.policies.lease.lost_timeout


def test_a_holder_ends_its_process_when_the_store_does_not_answer_renewals(harness: Harness) -> None:
    hanging = threading.Event()

    def hang(_point: str) -> None:
        if harness.begun.is_set():
            hanging.wait(AT_MOST)

    harness.store.fault = hang
    with pytest.raises(WorkOutlivedLease):
        harness.worker.run_once()
    hanging.set()


def test_work_that_progresses_keeps_a_lease_much_shorter_than_itself() -> None:
    """It takes ten leases, in a time that passes only while all threads wait."""
    time = SharedTime(threads=3)  # they work, renew the lease, and watch it
    store = MemoryTaskStore()
    tasks = service(store, {"delegation.task.lease.lost-timeout-duration": "1m"}, clock=time.clock)
    leases: set[datetime | None] = set()

    def work(_parameters: Nothing, run: AttemptContext) -> None:
        for _ in range(600):
            time.wait(1)
            run.checkpoint()
            leases.add(run.task.lease.lost_not_before)

    behavior = Behavior("MOVES", Nothing, work)
    Tasks(tasks).submit(behavior, Nothing())
    runnable = FunctionBehavior(tasks, behavior, monotonic=time.monotonic)
    after = worker_of(tasks, runnable, monotonic=time.monotonic, waits=time.done_within).run_once()
    assert (after.status, after.attempt_count) == (Status.SUCCESS, 1)
    assert after.last_status_change_ts == NOW + 10 * MINUTE
    assert len(leases) > 10


def test_work_without_progress_loses_a_lease_much_shorter_than_itself() -> None:
    """The same worker and time, but without progress: the lease is not renewed beyond its first length."""
    time = SharedTime(threads=3)
    tasks = service(MemoryTaskStore(), {"delegation.task.lease.lost-timeout-duration": "1m"}, clock=time.clock)
    behavior = Behavior("HANGS", Nothing, lambda _parameters, _run: time.wait(600))
    Tasks(tasks).submit(behavior, Nothing())
    runnable = FunctionBehavior(tasks, behavior, monotonic=time.monotonic)
    with pytest.raises(WorkOutlivedLease):
        worker_of(tasks, runnable, monotonic=time.monotonic, waits=time.done_within).run_once()
    assert MINUTE - 5 * SECOND <= time.clock() - NOW < MINUTE
    time.end()
