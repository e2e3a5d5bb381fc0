"""Workers and limits: a worker takes what waits for a place by the decision of the dispatcher, if one runs or not."""

import json
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from delegation.tasks.admission import Admission, WorkersAdmission
from delegation.tasks.life.declared import TaskType, TaskTypes
from delegation.tasks.life.lanes import Caps, Traits
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import DispatchPolicy, Policies, RetryPolicy
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.testing import TaskHarness
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.hooks import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import Worker, WorkerSettings
from tests.kit.tasks.builders import HOUR, MINUTE, SECOND, Clock
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service

TASK_TYPE = "acme.work"


class Parameters(BaseModel):
    model_config = ConfigDict(extra="allow")


def traits_of(payload: str) -> Traits:
    return Traits(**json.loads(payload))


class AdmittingWorkers:
    """A process that submits and has a queue, workers without one, and a store that they share."""

    def __init__(self, caps: Caps | None) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        self.queue = Queue()
        self.caps = caps
        self.front = self._service(self.queue, MINUTE)
        self.ran: list[str] = []
        self.working: Callable[[str], None] = lambda _task_id: None

    def _service(self, queue: Any, grace: timedelta) -> TaskService:
        types = TaskTypes([TaskType(name=TASK_TYPE, traits=traits_of)])
        return task_service(
            self.store,
            Policies(RetryPolicy(), {}, dispatch=DispatchPolicy(grace=grace), limits=self.caps),
            queue,
            clock=self.clock,
            types=types,
        )

    def submit(self, task_id: str, **fields: Any) -> Task:
        traits = {"tenant": "sales", "bucket": "lake", **fields}
        first = self.front.submission.first(task_id=task_id, task_type=TASK_TYPE, payload=json.dumps(traits))
        self.clock.advance(timedelta(milliseconds=1))
        return self.front.submission.create(first)[0]

    def worker(self, name: str) -> Worker:
        tasks = self._service(NoDispatchQueue(), timedelta(0))

        def work(_parameters: Parameters, run: AttemptContext) -> None:
            self.ran.append(run.task.task_id)
            self.working(run.task.task_id)

        behaviors = Behaviors([FunctionBehavior(tasks, Behavior(TASK_TYPE, Parameters, work), monotonic=self._seconds)])
        admission = WorkersAdmission(tasks, self.store, behaviors.task_types)
        settings = WorkerSettings(owner=name)
        return Worker(tasks, behaviors, settings, monotonic=self._seconds, waits=_until_done, admission=admission)

    def _seconds(self) -> float:
        return self.clock().timestamp()


def _until_done(work: Any, _seconds: float) -> bool:
    work.exception()
    return True


def test_a_worker_takes_a_task_that_waits_for_a_place_where_no_dispatcher_runs() -> None:
    site = AdmittingWorkers(Caps(everything=1))
    assert site.submit("a").is_queued
    after = site.worker("w").run_once()
    assert (after.task_id, after.status) == ("a", Status.SUCCESS)


def test_workers_do_not_exceed_a_cap_and_take_the_next_task_at_once_when_a_place_is_free() -> None:
    site = AdmittingWorkers(Caps(everything=1))
    site.submit("a")
    site.submit("b")
    meanwhile: list[Task | None] = []
    other = site.worker("other")

    def working(task_id: str) -> None:
        if task_id == "a":
            meanwhile.append(other.run_once())

    site.working = working
    worker = site.worker("w")
    assert worker.run_once() is not None
    assert (meanwhile, site.ran) == ([None], ["a"])
    assert worker.run_once() is not None
    assert (worker.run_once(), site.ran) == (None, ["a", "b"])


def test_workers_begin_with_the_highest_priority_and_share_between_tenants() -> None:
    site = AdmittingWorkers(Caps(everything=2))
    for n in range(3):
        site.submit(f"many-{n}")
    site.submit("other", tenant="ops")
    site.submit("urgent", priority=9)
    second: list[str] = []

    def working(task_id: str) -> None:
        if task_id == "many-0":
            site.working = lambda _task_id: None
            beside = site.worker("beside").run_once()
            second.append(beside.task_id if beside else "")

    site.working = working
    worker = site.worker("w")
    while worker.run_once() is not None:
        pass
    assert site.ran[:2] == ["urgent", "many-0"]
    assert second == ["other"]
    assert sorted(site.ran) == ["many-0", "many-1", "many-2", "other", "urgent"]


def test_a_worker_beside_a_dispatcher_stays_within_the_cap() -> None:
    site = AdmittingWorkers(Caps(everything=1))
    site.submit("a")
    site.submit("b")
    started: list[str] = []
    dispatcher = Admission(
        site.front, site.store, {TASK_TYPE}, lambda task_id, _n: started.append(task_id), limits=site.caps
    )
    assert dispatcher.run() == 1
    worker = site.worker("w")
    assert worker.run_once() is None
    site.clock.advance(HOUR)  # the execution never began: the task is due for everybody
    assert worker.run_once() is not None
    assert (started, site.ran) == (["a"], ["a"])
    assert worker.run_once() is not None
    assert site.ran == ["a", "b"]


def test_a_task_of_a_newer_release_is_left_to_its_workers() -> None:
    site = AdmittingWorkers(Caps(everything=1))
    site.submit("a")
    head = site.store._heads["a"]
    site.store._heads["a"] = head.evolve(payload_version=2)
    assert site.worker("w").run_once() is None
    assert site.ran == []


@pytest.mark.parametrize("cap", ["1", "3"])
def test_limits_hold_in_a_deployment_of_workers_alone(cap: str) -> None:
    running: list[int] = []

    def work(_parameters: Parameters, _run: AttemptContext) -> None:
        running.append(len(harness.store.running()))

    plain: Behavior[Parameters, Any] = Behavior("acme.plain", Parameters, work)
    harness = TaskHarness(plain, properties={"delegation.limits.all": cap})
    handles = [harness.submit(plain, Parameters()) for _ in range(5)]
    assert all(handle.get().is_queued for handle in handles)
    harness.run_until_idle()
    assert {handle.get().status for handle in handles} == {Status.SUCCESS}
    assert running == [1] * 5


def test_a_worker_says_to_a_dispatcher_that_a_place_is_free() -> None:
    site = AdmittingWorkers(Caps(everything=1))
    site.submit("a")
    worker = site.worker("w")
    sent: list[str] = []
    worker._tasks.messages = SimpleNamespace(wake=sent.append)  # type: ignore[assignment]
    worker.run_once()
    assert sent == ["a"]
    site.clock.advance(SECOND)
