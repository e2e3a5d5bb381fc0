"""A pause: work stops at its next batch, nothing fails, no attempt counts, and all of it continues afterwards."""

import threading
from datetime import timedelta

import pytest

from delegation.idempotency.keys import RequestInProgress
from delegation.orchestration.dispatch import Admission, Dispatcher, Inbox
from delegation.orchestration.job_engine import JobEngine
from delegation.orchestration.steps import Steps
from delegation.tasks.life.declared import TaskType, TaskTypes
from delegation.tasks.life.lanes import Caps, Traits
from delegation.tasks.life.model import Caller, Labels, Status
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.pauses import EVERYTHING, MemoryPauseStore, PauseControl, PauseMode, PauseScope, ReadPauses
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import lease_next_available_task
from delegation.wiring.types import TYPES
from tests.kit.lakes.lake import busy_table, filled
from tests.kit.tasks.builders import HOUR, MINUTE, SECOND, Clock
from tests.kit.tasks.driven import TASK_TYPES, Driven, FixedEngine
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service
from tests.kit.tasks.sites import ADD, ONE, Site, Sum
from tests.kit.worlds.service import World
from tests.services import change_service

OPS = Caller(client_id="ops")


class Switch:
    """Pauses a service at once: its record is read at each look."""

    def __init__(self, tasks: TaskService, types: TaskTypes = TYPES) -> None:
        self.store = MemoryPauseStore()
        self.control = PauseControl(self.store, tasks.clock)
        self.looks = 0
        self.at: int | None = None
        self.mode = PauseMode.STOP
        change_service(tasks, pauses=ReadPauses(self.read, types, monotonic=self.next_look))

    def next_look(self) -> float:
        self.looks += 1
        return self.looks * 100.0

    def read(self):
        if self.looks == self.at:
            self.on(mode=self.mode)
        return self.store.read()

    def on(self, scope: PauseScope = EVERYTHING, mode: PauseMode = PauseMode.STOP) -> None:
        self.control.pause(scope, by=OPS, reason="upgrade", mode=mode)

    def off(self, scope: PauseScope = EVERYTHING) -> None:
        self.control.resume(scope)


def resumed(world: World) -> None:
    """Sweep and drive until no dispatch is left, after the waits of the retry and of the dispatch grace."""
    for _ in range(3):
        world.clock.advance(2 * MINUTE)
        world.sweep()
        world.drive()


# ---- a purge in the state machine


@pytest.mark.parametrize("look", [1, 2, 4, 5, 6, 8, 12, 20])
def test_a_purge_that_is_paused_anywhere_continues_where_it_stopped(look: int) -> None:
    world = filled(World(), "orders")
    switch = Switch(world.tasks)
    task_id = world.submit(world.identity("orders")).task_id
    switch.at = switch.looks + look
    world.drive()
    before = world.tasks.reads.get(task_id)
    if not switch.control.shown().pauses:
        assert before.status is Status.SUCCESS  # it was over before that look
        return
    assert before.status in {Status.SUBMITTED, Status.RETRY_SCHEDULED, Status.SUCCESS}
    assert before.unexcused_attempts <= (before.status is Status.SUCCESS)
    if before.status is Status.RETRY_SCHEDULED:
        text = f"task {task_id} was paused by ops since 2026-11-21T12:00:00Z (all): upgrade"
        assert (before.error_code, before.attempts_excused) == ("PAUSED", 1)
        assert text in before.result_summary
    left = dict(world.objects.objects)
    for _ in range(30):
        world.clock.advance(10 * MINUTE)
        world.sweep()
        world.drive()
    assert world.tasks.reads.get(task_id) == before
    assert world.objects.objects == left
    switch.off()
    resumed(world)
    after = world.tasks.reads.get(task_id)
    assert (after.status, after.unexcused_attempts) == (Status.SUCCESS, 1)
    assert world.objects.objects == {}


def test_a_drain_lets_what_runs_finish_and_starts_nothing() -> None:
    world = World()
    for name in ("orders", "items"):
        busy_table(world.lake, name)
    switch = Switch(world.tasks)
    orders = world.submit(world.identity("orders")).task_id
    switch.at = switch.looks + 5  # the purge of orders has begun
    switch.mode = PauseMode.DRAIN
    world.drive()
    items = world.submit(world.identity("items")).task_id
    resumed(world)
    assert [world.tasks.reads.get(one).status for one in (orders, items)] == [Status.SUCCESS, Status.SUBMITTED]


def test_a_synchronous_request_is_answered_at_once_and_repeated_after_the_pause() -> None:
    world = filled(World(), "orders")
    switch = Switch(world.tasks)
    switch.on()
    began, body = world.clock(), world.body("orders")
    with pytest.raises(RequestInProgress) as waiting:
        world.execute(body, key="0190d7f6-0000-7000-8000-000000000001")
    assert world.clock() == began
    assert world.tasks.reads.get(waiting.value.task_id).status is Status.SUBMITTED
    switch.off()
    resumed(world)
    assert world.execute(body, key="0190d7f6-0000-7000-8000-000000000001").status == 200


# ---- Spark jobs


def test_no_job_is_started_for_a_paused_task(driven: Driven) -> None:
    switch = Switch(driven.tasks)
    driven.acquire()
    switch.on()
    assert driven.start()["next"] == "complete"
    assert driven.jobs.started == []
    assert (driven.task.error_code, driven.task.unexcused_attempts) == ("PAUSED", 0)


@pytest.mark.parametrize("state", ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING"])
def test_a_job_that_waits_to_start_is_cancelled_and_a_running_one_hands_over_itself(driven: Driven, state: str) -> None:
    switch = Switch(driven.tasks)
    driven.acquire()
    driven.start()
    driven.jobs.become(driven.step.job, state)
    switch.on(mode=PauseMode.DRAIN)
    assert driven.beat()["next"] == "heartbeat"
    switch.off()
    switch.on()
    if state == "RUNNING":
        assert (driven.beat()["next"], driven.jobs.cancelled) == ("heartbeat", [])
        return
    assert driven.beat()["next"] == "complete"
    assert driven.jobs.cancelled == [driven.step.job]
    assert (driven.task.status, driven.task.error_code) == (Status.RETRY_SCHEDULED, "PAUSED")
    assert driven.steps.complete(driven.step)["next"] == "wait"
    driven.clock.advance(30 * SECOND)
    assert driven.acquire()["next"] == "stop"
    assert driven.task.unexcused_attempts == 0


@pytest.mark.parametrize("begun", [False, True])
def test_prepare_hands_over_before_it_loads_a_table_and_not_work_that_has_begun(driven: Driven, begun: bool) -> None:
    """The first of two calls of Prepare hangs until the second is answered, the work has begun and a pause has come."""
    switch, engine = Switch(driven.tasks), FixedEngine("inline")
    driven.acquire()
    if begun:
        driven.tasks.holding(driven.task).leases.note(driven.task_id, 1, engine="inline")
    switch.on()
    steps = Steps(driven.tasks, TASK_TYPES, behaviors=Behaviors([engine]), jobs=driven.jobs)
    answer = steps.prepare(driven.step, driven.clock() + MINUTE)
    assert driven.task.is_held is begun
    if not begun:
        assert (answer["next"], engine.asked, driven.task.error_code) == ("complete", 0, "PAUSED")


def test_a_job_whose_id_was_not_stored_is_not_handed_over_as_if_there_were_none(driven: Driven) -> None:
    switch = Switch(driven.tasks)
    driven.acquire()
    started = driven.jobs.start(driven.step.job, [], ())
    switch.on()
    assert driven.start()["next"] == "heartbeat"
    assert (driven.task.is_held, driven.task.job_run_id) == (True, started)


def test_a_worker_ends_its_job_too(driven: Driven) -> None:
    switch = Switch(driven.tasks)
    switch.on()
    change_service(driven.tasks, pauses=NotBefore(driven.tasks.pauses, 2))
    task = driven.tasks.leases.acquire(driven.task_id, "worker:1", lambda now: Lease.lasting(HOUR, now))
    after = JobEngine(driven.tasks, driven.jobs, wait=lambda _event, _seconds: None).drive(task, threading.Event())
    assert (after.status, after.error_code, driven.jobs.cancelled) == (
        Status.RETRY_SCHEDULED,
        "PAUSED",
        [f"{driven.task_id}-1"],
    )


class NotBefore:
    """A lookout that shows the pause only after so many looks."""

    def __init__(self, lookout, looks: int) -> None:
        self._lookout, self._looks = lookout, looks

    def start(self, task):
        return self._shown(self._lookout.start(task))

    def work(self, task):
        return self._shown(self._lookout.work(task))

    def everything(self):
        return self._shown(self._lookout.everything())

    def _shown(self, found):
        self._looks -= 1
        return None if self._looks >= 0 else found


# ---- workers, the sweeper, admission


def test_a_worker_hands_over_and_leases_nothing_until_the_pause_ends() -> None:
    site = Site()
    task_id = site.client().submit(ADD, ONE).task_id
    tasks = site.service()
    switch = Switch(tasks)

    def add_slowly(parameters: Sum, run: AttemptContext):
        run.checkpoint()
        return ADD.work(parameters, run)

    slow = Behavior("ADD", Sum, add_slowly, result=ADD.result, identify=ADD.identify)
    worker = site.worker("w1", slow)
    worker._tasks = tasks
    worker._behaviors = Behaviors([FunctionBehavior(tasks, slow, monotonic=site.seconds)])
    switch.at = switch.looks + 3
    after = worker.run_once()
    assert (after.status, after.error_code, after.unexcused_attempts) == (Status.RETRY_SCHEDULED, "PAUSED", 0)
    site.clock.advance(HOUR)
    assert worker.run_once() is None
    switch.off()
    assert worker.run_once() is not None
    assert site.head(task_id).status is Status.SUCCESS


def test_a_poll_while_everything_is_paused_queries_nothing() -> None:
    site = Site()
    site.client().submit(ADD, ONE)
    tasks = site.service()
    switch = Switch(tasks)
    switch.on()
    site.store.fault = pytest.fail
    assert lease_next_available_task(tasks, "w", {"ADD"}, lambda now: Lease.lasting(HOUR, now)) is None


def test_a_task_whose_holder_died_is_noted_as_lost_and_not_dispatched(driven: Driven) -> None:
    switch = Switch(driven.tasks)
    driven.acquire()
    switch.on()
    driven.clock.advance(HOUR)
    for _ in range(3):
        driven.tasks.dispatching.reconcile(driven.task_id)
        driven.clock.advance(HOUR)
    assert (driven.task.status, driven.task.error_code, driven.queue.sent) == (Status.RETRY_SCHEDULED, "LOST", [])
    switch.off()
    driven.tasks.dispatching.reconcile(driven.task_id)
    assert driven.queue.sent == [(driven.task_id, 2)]


def test_however_long_a_pause_lasts_no_dispatch_is_counted(driven: Driven) -> None:
    switch = Switch(driven.tasks)
    switch.on()
    for _ in range(200):
        driven.clock.advance(10 * MINUTE)
        driven.tasks.dispatching.reconcile(driven.task_id)
        driven.tasks.dispatching.dispatch(driven.task_id)
    assert (driven.task.status, driven.task.dispatches.count) == (Status.SUBMITTED, 1)
    assert driven.tasks.operators.cancel(driven.task_id).error_code == "CANCELLED"


class AdmissionSite:
    """Tasks of two tables in lanes of one tenant, at most one running."""

    def __init__(self) -> None:
        self.clock, self.store, self.started = Clock(), MemoryTaskStore(), []
        policies = Policies(RetryPolicy(max_attempts=3), {}, limits=Caps(everything=1))
        types = TaskTypes([TaskType(name="TABLE_PURGE", traits=lambda _payload: Traits("sales"), labels=Labels)])
        self.tasks = task_service(self.store, policies, Queue(), clock=self.clock, types=types)
        self.switch = Switch(self.tasks, types)
        start = lambda task_id, _n: self.started.append(task_id)  # noqa: E731
        self.admission = Admission(self.tasks, self.store, TASK_TYPES, start, limits=policies.limits)

    def submit(self, table: str, number: int) -> str:
        task_id = f"00000000-0000-4000-8000-{number:012d}"
        first = self.tasks.submission.first(task_id=task_id, task_type="TABLE_PURGE", payload=table)
        return self.tasks.submission.create(first)[0].task_id


def test_a_paused_table_does_not_keep_others_of_its_lane_from_starting() -> None:
    site = AdmissionSite()
    site.switch.on(PauseScope(table="orders"))
    orders, items = site.submit("orders", 1), site.submit("items", 2)
    for _ in range(3):
        site.admission.run()
        site.clock.advance(timedelta(seconds=11))
    assert site.started == [items]
    held = site.tasks.leases.acquire(items, "run", lambda now: Lease.lasting(HOUR, now))
    site.tasks.leases.succeed(items, held.attempt_count, "done")
    site.switch.off(PauseScope(table="orders"))
    site.clock.advance(MINUTE)
    site.admission.run({items})
    assert site.started == [items, orders]


def test_while_everything_is_paused_nothing_is_admitted_and_no_execution_started() -> None:
    site = AdmissionSite()
    site.switch.on()
    task_id = site.submit("orders", 1)
    assert site.admission.run() == 0
    assert Inbox(Dispatcher(None, "arn"), site.admission).take(f'{{"task_id": "{task_id}", "n": 1}}') == "paused"
    assert site.tasks.reads.get(task_id).dispatches.count == 0
