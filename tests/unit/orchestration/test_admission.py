"""Admission by several processes that crash, pause and read a late index: the caps hold, and no place is lost."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from delegation.orchestration.dispatch import Admission, Dispatcher, Inbox, MalformedDispatch, execution_not_started
from delegation.orchestration.failures import Step
from delegation.orchestration.steps import Steps
from delegation.orchestration.sweep import sweep
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.declared import TaskType, TaskTypes
from delegation.tasks.life.lanes import Caps, Running, Traits
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.hooks import ANY_TASK
from tests.kit.tasks.builders import HOUR, MINUTE, SECOND, Clock
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service

TASK_TYPE = "TABLE_PURGE"
TASK_TYPES = frozenset({TASK_TYPE})
TYPES = TaskTypes(
    [
        TaskType(name=TASK_TYPE, traits=Traits),
        *(TaskType(name=name, is_housekeeping=True) for name in ("STORE_MAINTENANCE", "REFERENCE_INDEX")),
    ]
)
TRANSIENT = AttemptError("TIMEOUT", "timed out", ErrorClass.TRANSIENT)
HANDED_OVER = AttemptError("HANDED_OVER", "no time left", ErrorClass.HANDED_OVER)


class Crashed(BaseException):
    """The process ended."""


class LateStore(MemoryTaskStore):
    """A store whose `running` shows what it was before the last `late` writes."""

    def __init__(self, late: int) -> None:
        super().__init__()
        self._past: list[Sequence[Running]] = []
        self._late = late

    def apply(self, change: Any) -> Task:
        self._past.append(super().running())
        return super().apply(change)

    def running(self) -> Sequence[Running]:
        return self._past[-self._late] if len(self._past) >= self._late else super().running()


class NotedAdmission:
    """Tasks with limits, and admission of which every dispatch is noted."""

    def __init__(self, limits: Caps | None = Caps(everything=2), store: MemoryTaskStore | None = None) -> None:  # noqa: B008
        self.clock = Clock()
        self.store = store or MemoryTaskStore()
        self.queue = Queue()
        self.policies = Policies(RetryPolicy(max_attempts=3), {}, limits=limits)
        self.tasks = task_service(self.store, self.policies, self.queue, clock=self.clock, types=TYPES)
        self.started: list[tuple[str, int]] = []
        self.admission = self.admitting(limits)
        self.count = 0

    def admitting(self, limits: Caps | None, start: Callable[[str, int], object] | None = None) -> Admission:
        note = start or (lambda task_id, n: self.started.append((task_id, n)))
        return Admission(self.tasks, self.store, TASK_TYPES, note, limits=limits)

    def submit(self, tenant: str = "sales", **fields: Any) -> str:
        self.count += 1
        task_id = f"00000000-0000-4000-8000-{self.count:012d}"
        task, _ = self.tasks.submission.create(
            self.tasks.submission.first(**{"task_id": task_id, "task_type": TASK_TYPE, "payload": tenant, **fields})
        )
        return task.task_id

    def acquire(self, task_id: str) -> Task:
        return self.tasks.leases.acquire(task_id, "run", lambda now: Lease.lasting(HOUR, now))

    def sweep(self) -> None:
        for one in sweep(self.tasks, TASK_TYPES, deadline=self.clock() + MINUTE, clock=self.clock):
            assert one.error is None

    @property
    def places(self) -> int:
        return len(MemoryTaskStore.running(self.store))


# ---- waiting


def test_a_queued_task_is_neither_dispatched_nor_acquired_nor_failed_however_long_it_waits() -> None:
    site = NotedAdmission()
    task_id = site.submit()
    waiting = site.tasks.reads.get(task_id)
    assert (waiting.is_queued, waiting.dispatches.count) == (True, 0)
    assert site.tasks.dispatching.dispatch(task_id) == waiting
    assert site.acquire(task_id) == waiting
    for _ in range(60):
        site.clock.advance(timedelta(days=1))
        site.sweep()
    after = site.tasks.reads.get(task_id)
    assert (after.status, after.dispatches.count, after.version) == (Status.SUBMITTED, 0, 1)
    assert after.revision <= waiting.revision + 60 / 7  # one write a week
    assert site.admission.run() == 1
    assert site.started == [(task_id, 1)]


def test_a_submission_and_the_end_of_a_task_wake_the_dispatcher() -> None:
    site = NotedAdmission()
    task_id = site.submit()
    assert site.queue.sent == [(ANY_TASK, 0)]
    site.admission.run()
    steps = Steps(site.tasks, TASK_TYPES)
    step = Step.of(steps.acquire(Step(task_id, 1), site.clock() + MINUTE))
    site.tasks.leases.succeed(task_id, step.attempt, "done")
    assert steps.complete(step)["next"] == "succeeded"
    assert site.queue.sent[1:] == [(task_id, 0)]


def test_tasks_that_wait_start_after_the_limits_were_removed() -> None:
    site = NotedAdmission()
    site.submit(task_type="NEWER")  # a newer deployment starts it
    ids = [site.submit() for _ in range(5)]
    assert site.admitting(None).run() == 5
    assert [task_id for task_id, _ in site.started] == ids


# ---- ends of attempts


def test_a_retry_after_a_backoff_gives_its_place_and_waits_again() -> None:
    site = NotedAdmission(Caps(everything=1))
    first, second = site.submit(), site.submit()
    site.admission.run()
    site.acquire(first)
    waiting = site.tasks.leases.end_attempt(first, 1, TRANSIENT)
    assert (waiting.is_queued, waiting.status, site.places) == (True, Status.RETRY_SCHEDULED, 0)
    assert Steps(site.tasks, TASK_TYPES).acquire(Step(first, 1), site.clock() + MINUTE)["next"] == "stop"
    site.admission.run({first})
    assert site.started == [(first, 1), (second, 1)]
    site.tasks.operators.cancel(second)
    assert site.admission.run({second}) == 0  # its backoff has not ended
    site.clock.advance(MINUTE)
    site.admission.run()
    assert site.started[-1] == (first, 2)


def test_a_task_that_is_handed_over_keeps_its_place() -> None:
    site = NotedAdmission(Caps(everything=1))
    task_id = site.submit()
    site.submit()
    site.admission.run()
    site.acquire(task_id)
    assert (site.tasks.leases.end_attempt(task_id, 1, HANDED_OVER).is_queued, site.places) == (False, 1)
    assert site.admission.run() == 0
    assert site.acquire(task_id).attempt_count == 2


def test_a_lost_attempt_is_dispatched_again_in_its_place() -> None:
    site = NotedAdmission(Caps(everything=1))
    task_id = site.submit()
    site.admission.run()
    site.acquire(task_id)
    site.clock.advance(2 * HOUR)
    site.sweep()
    assert site.queue.sent[-1] == (task_id, 2)
    assert (site.tasks.reads.get(task_id).error_code, site.places) == ("LOST", 1)


def test_a_synchronous_task_runs_at_once_and_counts() -> None:
    site = NotedAdmission(Caps(everything=1))
    task_id = site.submit(synchronous=True)
    site.submit()
    assert site.acquire(task_id).is_held
    assert site.admission.run() == 0


# ---- crashes


def test_a_crash_after_the_register_is_written_costs_ten_seconds_of_a_place() -> None:
    site = NotedAdmission(Caps(everything=1))
    task_id = site.submit()

    def crash(point: str) -> None:
        if point == "before apply":
            raise Crashed

    site.store.fault = crash
    with pytest.raises(Crashed):
        site.admission.run()
    site.store.fault = lambda _point: None
    assert site.admission.run() == 0
    site.clock.advance(10 * SECOND)
    assert site.admission.run() == 1
    assert site.started == [(task_id, 1)]


def test_a_dispatch_that_was_never_sent_gives_its_place_back_and_is_repeated() -> None:
    site = NotedAdmission(Caps(everything=1))
    task_id, other = site.submit(), site.submit()

    def refuses(_task_id: str, _n: int) -> None:
        raise execution_not_started("Step Functions answered ThrottlingException")

    assert site.admitting(Caps(everything=1), refuses).run() == 0
    assert site.places == 1
    site.clock.advance(MINUTE)
    site.sweep()
    assert (site.places, site.tasks.reads.get(task_id).is_queued) == (0, True)
    site.admission.run()
    assert site.started == [(other, 1)]
    site.tasks.operators.cancel(other)
    site.clock.advance(HOUR)
    site.admission.run()
    assert site.started[-1] == (task_id, 2)


def test_twenty_admissions_without_an_attempt_fail_the_task_and_free_its_place() -> None:
    site = NotedAdmission(Caps(everything=1))
    task_id = site.submit()
    while not site.tasks.reads.get(task_id).is_terminal:
        site.clock.advance(HOUR)
        site.sweep()
        site.admission.run()
    assert (site.tasks.reads.get(task_id).error_code, len(site.started), site.places) == ("DISPATCH_FAILED", 20, 0)


# ---- several processes


@pytest.mark.parametrize("late", [1, 3, 10])
def test_an_index_that_lags_admits_no_task_too_many(late: int) -> None:
    site = NotedAdmission(Caps(everything=10), LateStore(late))
    for _ in range(40):
        site.submit()
    for _ in range(12):
        site.admission.run()
        assert site.places <= 10
    site.clock.advance(SECOND)
    assert site.places == 10


def test_processes_that_admit_at_the_same_time_stay_within_the_cap() -> None:
    site = NotedAdmission(Caps(everything=7))
    for _ in range(40):
        site.submit()
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _n: site.admitting(Caps(everything=7)).run(), range(24)))
    assert sum(counts) == site.places == len(set(site.started)) == 7


# ---- messages


class Machine:
    """A Step Functions client that notes the executions."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def start_execution(self, *, name: str, **_more: str) -> None:
        self.names.append(name)


def message(task_id: str, n: int) -> str:
    return json.dumps({"task_id": task_id, "n": n})


def test_a_batch_of_messages_admits_once_and_starts_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    site, machine = NotedAdmission(), Machine()
    ids = [site.submit() for _ in range(3)]
    dispatcher = Dispatcher(machine, "machine")
    inbox = Inbox(dispatcher, Admission(site.tasks, site.store, TASK_TYPES, dispatcher.start_execution, limits=Caps(2)))
    passes: list[object] = []
    run = inbox.admission.run
    monkeypatch.setattr(inbox.admission, "run", lambda ended: passes.append(ended) or run(ended))
    other = "00000000-0000-4000-8000-00000000000a"
    bodies = [message(ANY_TASK, 0), message(other, 3), message(ANY_TASK, 0)]
    assert [inbox.take(body) for body in bodies] == ["admission", "started", "admission"]
    assert inbox.admit() == 2
    assert inbox.admit() == 0
    assert machine.names == [f"{other}-3", f"{ids[0]}-1", f"{ids[1]}-1"]
    assert passes == [{ANY_TASK}]
    with pytest.raises(MalformedDispatch, match="n: must be"):
        inbox.take(message(other, -1))


def test_the_store_fails_before_anything_is_admitted() -> None:
    site = NotedAdmission()
    site.submit()

    def down(point: str) -> None:
        if point == "before running":
            raise StoreUnavailable("no answer")

    site.store.fault = down
    with pytest.raises(StoreUnavailable):
        site.admission.run()
