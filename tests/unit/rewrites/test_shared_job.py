"""The Spark job of the shared worker: what starts it, what it leases, and what follows when it dies."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.orchestration.failures import Step
from delegation.removal.behaviors import KILLED_TWICE
from delegation.rewrites.behavior import SHARED, SHARED_WAIT, SharedWorkerTask, is_left
from delegation.rewrites.context import RewriteAttempt
from delegation.rewrites.fence import Gate
from delegation.rewrites.shared_job import LeftRewrites, RewriteWorkerBehavior, WorkerJob, release_former
from delegation.rewrites.task_type import ANY_TASK, COMPACTION_TASK_TYPE, LOSSES, WORKER_ID
from delegation.rewrites.terms import tasks_at_once
from delegation.rewrites.worker import Places, SessionWorker, SharedSession, SharedWorker, WorkerLimits
from delegation.tasks.errors import RunPostponed
from delegation.tasks.life.lanes import Caps, Traits
from delegation.tasks.life.model import Caller, KilledAttempts, Status, Task
from delegation.tasks.life.policy import InvalidProperty, Lease
from delegation.tasks.pauses import EVERYTHING, PauseRecord, ReadPauses, WorkPause
from delegation.tasks.stores.base import DueEntry
from delegation.tasks.work.behaviors import Behaviors, BehaviorWhenNeeded
from delegation.tasks.work.hooks import INLINE, SPARK
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import WorkerSettings
from delegation.wiring.types import TYPES, default_properties
from tests.kit.lakes.lake import filled
from tests.kit.tasks.services import task_service
from tests.kit.worlds.rewriting import NOTHING, RewritingWorld
from tests.unit.rewrites.test_worker import Died, StandIn, codes

STATES = {"prepare", "inline", "spark", "complete"}


class SharingWorld(RewritingWorld):
    """The service with a shared worker, whose jobs run in the process of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = StandIn()
        self.asked: list[Task] = []
        self.is_idle = False
        self.watching: Callable[[SharedWorker], object] = lambda _worker: None
        self.worker = RewriteWorkerBehavior(tasks=self.tasks, worker_of=self._worker_of, monotonic=self.seconds)
        self.deploy(compaction=replace(self.compaction, shared=SharedWorkerTask(self.tasks)), worker=self.worker)

    def _worker_of(self, session: SharedSession, owner: str) -> SharedWorker:
        dispatch = replace(self.tasks.policies.dispatch, grace=timedelta(0))
        own = self.tasks.having(policies=replace(self.tasks.policies, dispatch=dispatch))
        behavior = replace(self.compaction, tasks=own, session=session)
        behaviors = Behaviors([BehaviorWhenNeeded(frozenset({COMPACTION_TASK_TYPE}), lambda: behavior)])
        stop = threading.Event()
        workers = [
            SessionWorker(
                own,
                behaviors,
                WorkerSettings(f"{owner}/{number}", poll=timedelta(milliseconds=2)),
                places=session.places,
                stop=stop,
                admission=LeftRewrites(own, self.store, behaviors.task_types, places=session.places),
            )
            for number in range(2)
        ]
        return SharedWorker(own, session, workers, WorkerLimits(2), stop, poll_seconds=0.005)

    def work(self, job: WorkerJob) -> str:
        """Do the work of a job, until what was asked for has ended or waits for something else."""
        worker = job.worker(SharedSession(self.engine, lambda: True))
        if self.is_idle:
            worker._stop.set()

        def look() -> None:
            job.checkpoint()
            self.watching(worker)
            if not any(self.is_open(task) for task in self.asked):
                worker._stop.set()

        return worker.run(look)

    def is_open(self, task: Task) -> bool:
        head = self.tasks.reads.get(task.task_id)
        return head.is_held or (head.status is Status.RETRY_SCHEDULED and head.details.get("next_engine") != "spark")

    def ask(self, *names: str) -> list[Task]:
        self.asked = [self.accepted(self.request(COMPACTION_TASK_TYPE, name)) for name in names]
        return self.asked

    def head(self, task: Task | str) -> Task:
        return self.tasks.reads.get(task if isinstance(task, str) else task.task_id)

    def executions(self) -> None:
        """Run the executions of all dispatches sent so far, until each ends or waits."""
        while self.queue.sent:
            task_id, n = self.queue.sent.pop(0)
            if n > 0:
                self.execution(task_id, n)

    def execution(self, task_id: str, n: int) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self.steps.acquire(Step.of({"task_id": task_id, "n": n}), self.deadline())
        while state["next"] in STATES:
            step = Step.of(state)
            match state["next"]:
                case "prepare":
                    state = self.steps.prepare(step, self.deadline())
                case "inline":
                    state = self.steps.run_inline(step, self.clock() + timedelta(minutes=15))
                case "complete":
                    state = self.steps.complete(step)
                case _ if task_id == WORKER_ID:
                    assert self.steps.start_job(step)["next"] == "heartbeat"
                    self.worker.run_job(self.work, task_id, step.attempt)
                    self.jobs.become(step.job, "SUCCESS")
                    state = step.to("complete")
                case _:
                    state = self.run_spark(step)
        return state


@pytest.fixture
def world() -> SharingWorld:
    return filled(SharingWorld(), "a", "b", "c")


def test_one_job_rewrites_many_tables_and_their_attempts_that_waited_for_it_do_not_count(world: SharingWorld) -> None:
    tasks = world.ask("a", "b", "c")
    world.executions()
    heads = [world.head(task) for task in tasks]
    assert [(head.status, head.engine, head.unexcused_attempts) for head in heads] == [(Status.SUCCESS, "spark", 1)] * 3
    assert {code for task in tasks for code in codes(world, task)} == {"POSTPONED"}
    assert [name for name, _ in world.jobs.started] == [f"{WORKER_ID}-1"]
    assert world.jobs.folders == [(WORKER_ID, f"results/{WORKER_ID}", ANY_TASK, f"results/{ANY_TASK}")]
    assert world.head(WORKER_ID).status is Status.SUCCESS
    assert sorted(world.engine.began) == ["a", "b", "c"]


def test_a_rewrite_that_finds_nothing_starts_no_worker(world: SharingWorld) -> None:
    world.kind.plan_now = NOTHING
    (a,) = world.ask("a")
    world.executions()
    assert world.head(a).status is Status.SUCCESS
    assert world.tasks.reads.find(WORKER_ID) is None


def test_a_rewrite_that_the_worker_missed_starts_it_again(world: SharingWorld) -> None:
    (a,) = world.ask("a")
    world.is_idle = True  # the worker ends without it
    world.executions()
    assert world.head(WORKER_ID).status is Status.SUCCESS
    assert codes(world, a) == ["POSTPONED"]
    world.is_idle = False
    world.clock.advance(SHARED_WAIT + timedelta(minutes=2))
    world.sweep()
    world.executions()
    assert world.head(a).status is Status.SUCCESS
    assert len(world.jobs.started) == 2


def test_an_open_worker_is_not_submitted_again(world: SharingWorld) -> None:
    SharedWorkerTask(world.tasks).start()
    world.queue.sent.clear()  # it waits for its execution
    world.ask("a")
    world.executions()
    assert [row.status for row in world.history(WORKER_ID)] == [Status.SUBMITTED]


def test_the_next_job_releases_what_a_job_held_that_died(world: SharingWorld) -> None:
    a, b = world.ask("a", "b")

    both = threading.Barrier(2)

    def dies(_gate: Gate, _attempt: RewriteAttempt) -> None:
        both.wait(30)
        raise Died

    world.engine.acts = {"a": dies, "b": dies}
    with pytest.raises(Died):
        world.executions()
    held = [world.head(task) for task in (a, b)]
    assert all(head.is_held and (head.lease.owner or "").startswith("rewrites:1/") for head in held)
    world.engine.acts = {}
    for thread in threading.enumerate():
        if thread.name.startswith("rewrites:1/"):
            thread.join(30)
    world.tasks._draining.clear()  # the next job is another process
    failed = world.head(WORKER_ID)
    world.jobs.become(f"{WORKER_ID}-1", "FAILED")
    world.steps.complete(Step(WORKER_ID, failed.dispatches.count, attempt=1, holder=failed.lease.owner))
    assert world.head(WORKER_ID).error_code == "JOB_FAILED"
    world.clock.advance(timedelta(minutes=3))
    world.sweep()
    world.watching = lambda _worker: world.clock.advance(timedelta(milliseconds=200))
    world.executions()
    heads = [world.head(task) for task in (a, b)]
    assert [(head.status, codes(world, head).count("LOST")) for head in heads] == [(Status.SUCCESS, 1)] * 2
    assert world.clock() < (held[0].lease.lost_not_before or world.clock())


def test_a_table_that_was_lost_twice_gets_a_job_of_its_own(world: SharingWorld) -> None:
    (a,) = world.ask("a")
    held = world.tasks.leases.acquire(a.task_id, "rewrites:1/1", world_lease(world))
    world.tasks.leases.note(a.task_id, held.attempt_count, details={LOSSES: 2})
    world.tasks.operators.release(a.task_id, held.attempt_count, "the job died")
    world.clock.advance(timedelta(minutes=2))
    world.sweep()
    world.asked = []
    world.executions()
    assert world.tasks.reads.find(WORKER_ID) is None
    assert [name for name, _ in world.jobs.started] == [f"{a.task_id}-3"]
    assert world.head(a).status is Status.SUCCESS


def test_a_cancelled_worker_hands_its_tables_over(world: SharingWorld) -> None:
    (a,) = world.ask("a")
    begun = threading.Event()

    def works(_gate: Gate, _attempt: RewriteAttempt) -> None:
        begun.set()
        for _ in range(3_000):
            if world.tasks.is_draining:
                world.sleep(2)
                return
            threading.Event().wait(0.01)

    def cancels(_worker: SharedWorker) -> None:
        if begun.is_set():
            world.tasks.operators.cancel(WORKER_ID)
            world.sleep(2)

    world.engine.acts, world.watching = {"a": works}, cancels
    world.executions()
    worker = world.head(WORKER_ID)
    assert (worker.status, worker.error_code) == (Status.FAILURE, "CANCELLED")
    assert (world.head(a).is_held, codes(world, a)) == (False, ["POSTPONED", "HANDED_OVER"])
    world.engine.acts, world.watching = {}, lambda _worker: None
    world.tasks._draining.clear()  # the next job is another process
    world.clock.advance(timedelta(minutes=2))
    world.sweep()
    world.executions()
    assert world.head(a).status is Status.SUCCESS
    assert [name for name, _ in world.jobs.started] == [f"{WORKER_ID}-1", f"{WORKER_ID}-2"]


def test_it_takes_only_what_was_left_to_it(world: SharingWorld) -> None:
    a, b = world.ask("a", "b")
    left = left_rewrites(world)
    assert left.admit_one() is None  # both wait for their executions
    leave(world, a, SPARK)
    leave(world, b)
    assert left.admit_one() == b.task_id
    assert world.head(b).next_scheduled_run_ts == world.clock()
    assert world.head(a).next_scheduled_run_ts == world.clock() + SHARED_WAIT
    assert left_rewrites(world, engines={SPARK}).admit_one() == a.task_id


def test_it_takes_what_was_left_to_it_in_a_deployment_with_limits(world: SharingWorld) -> None:
    limited = with_limit(world, 100)
    queue_left(limited, world)
    assert left_rewrites(world, limited).admit_one() == "left"
    assert not world.head("left").is_queued


def test_what_was_left_to_it_waits_while_there_is_no_room(world: SharingWorld) -> None:
    limited = with_limit(world, 1)
    queue_left(limited, world)
    before = world.head("left")
    other = limited.submission.first(task_id="other", task_type="DROP", payload="{}", traits=Traits())
    limited.submission.create(other)
    limited.dispatching.admit("other")
    left = left_rewrites(world, limited)
    assert left.admit_one() is None
    assert world.head("left") == before  # not due before its time: it would only wait for the worker again
    limited.operators.cancel("other")
    world.clock.advance(timedelta(seconds=30))
    assert left.admit_one() == "left"


def test_an_unreadable_task_hides_nothing_that_was_left(world: SharingWorld) -> None:
    a, b = world.ask("a", "b")
    for task in (a, b):
        leave(world, task)
    world.store.make_unreadable(a.task_id)
    left = left_rewrites(world)
    assert [left.admit_one(), left.admit_one()] == [b.task_id, b.task_id]


def test_a_paused_rewrite_is_left_where_it_is(world: SharingWorld) -> None:
    (a,) = world.ask("a")
    leave(world, a)
    pause = WorkPause(EVERYTHING, world.clock(), Caller(client_id="operator"), "an incident")
    pauses = ReadPauses(lambda: PauseRecord().with_pause(pause), TYPES, monotonic=world.seconds)
    paused = task_service(world.store, default_properties(), clock=world.clock, types=TYPES, pauses=pauses)
    assert left_rewrites(world, paused).admit_one() is None
    assert world.head(a).next_scheduled_run_ts == world.clock() + SHARED_WAIT
    assert left_rewrites(world).admit_one() == a.task_id


def test_a_rewrite_whose_attempts_here_were_killed_twice_gets_a_job_of_its_own(world: SharingWorld) -> None:
    (a,) = world.ask("a")
    leave(world, a)
    assert world.compaction.prepare(world.head(a)) == INLINE
    killed = KilledAttempts(count=KILLED_TWICE)
    world.tasks.writes.change(a.task_id, lambda current, _now: current.model_copy(update={"killed": killed}))
    assert world.compaction.prepare(world.head(a)) == SPARK


def test_the_workers_of_a_job_do_not_all_try_the_same_rewrite(world: SharingWorld) -> None:
    for task in world.ask("a", "b", "c"):
        leave(world, task)
    first = {next(left_rewrites(world)._left()).task_id for _ in range(60)}
    assert len(first) == 3


def test_a_suspect_is_left_until_there_is_a_place_for_it(world: SharingWorld) -> None:
    (a,) = world.ask("a")
    leave(world, a, losses=1)
    left = left_rewrites(world)
    with left._places.taken(1, lambda: None):
        assert left.admit_one() is None
        assert world.head(a).next_scheduled_run_ts == world.clock() + SHARED_WAIT
    assert left.admit_one() == a.task_id


def test_a_rewrite_waits_for_an_open_worker_without_another_decision(world: SharingWorld) -> None:
    SharedWorkerTask(world.tasks).start()
    world.queue.sent.clear()  # the worker waits for its execution
    (a,) = world.ask("a")
    world.executions()
    world.clock.advance(SHARED_WAIT + timedelta(minutes=2))
    world.sweep()
    world.queue.sent = [sent for sent in world.queue.sent if sent[0] == a.task_id]
    world.executions()
    assert codes(world, a) == ["POSTPONED"] * 2
    assert is_left(world.head(a), {SHARED})
    assert len(world.kind.first_attempts) == 1


def test_an_unreadable_task_does_not_keep_a_job_from_beginning(world: SharingWorld) -> None:
    a, b = world.ask("a", "b")
    for task in (a, b):
        world.tasks.leases.acquire(task.task_id, "rewrites:1/1", world_lease(world))
    world.store.make_unreadable(a.task_id)
    release_former(world.tasks)
    assert world.head(b).error_code == "LOST"


def test_an_attempt_that_ends_while_it_is_released_is_left_alone(
    world: SharingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = world.ask("a")
    held = world.tasks.leases.acquire(a.task_id, "rewrites:1/1", world_lease(world))
    world.compaction._runner.run(held, postponed)
    monkeypatch.setattr(TaskReads, "due", lambda _reads, _until, limit: [DueEntry(a.task_id, world.clock())][:limit])
    monkeypatch.setattr(TaskReads, "find", lambda _reads, _task_id: held)
    release_former(world.tasks)
    monkeypatch.undo()
    assert world.head(a).error_code == "POSTPONED"


def left_rewrites(
    world: SharingWorld, tasks: TaskService | None = None, engines: Collection[str] = (SHARED,)
) -> LeftRewrites:
    tasks = tasks or world.tasks
    return LeftRewrites(tasks, world.store, {COMPACTION_TASK_TYPE}, places=Places(), engines=engines)


def leave(world: SharingWorld, task: Task, engine: str = SHARED, losses: int | None = None) -> None:
    """End an attempt at a task that leaves it to an engine."""
    held = world.tasks.leases.acquire(task.task_id, "execution", world_lease(world))
    world.tasks.leases.note(task.task_id, held.attempt_count, details={"next_engine": engine, LOSSES: losses})
    world.compaction._runner.run(held, postponed)


def with_limit(world: SharingWorld, everything: int) -> TaskService:
    return world.tasks.having(policies=replace(world.tasks.policies, limits=Caps(everything=everything)))


def queue_left(limited: TaskService, world: SharingWorld) -> None:
    """Leave a rewrite to the worker that needs a place."""
    first = limited.submission.first(task_id="left", task_type=COMPACTION_TASK_TYPE, payload="{}", traits=Traits())
    limited.submission.create(first)
    limited.dispatching.admit("left")
    leave(world, first)
    assert world.head("left").is_queued


def postponed() -> Task:
    raise RunPostponed("later", SHARED_WAIT)


def world_lease(world: SharingWorld) -> Any:
    return lambda now: Lease.lasting(timedelta(hours=1), now)


def test_a_process_without_jobs_leaves_the_worker_to_another_one(world: SharingWorld) -> None:
    SharedWorkerTask(world.tasks).start()
    held = world.tasks.leases.acquire(WORKER_ID, "worker", world_lease(world))
    after = world.worker.run(held, hand_over_at=None)
    assert (after.status, after.error_code, after.unexcused_attempts) == (Status.RETRY_SCHEDULED, "POSTPONED", 0)
    assert "delegation worker --engine spark" in (after.result_summary or "")


@pytest.mark.parametrize(("text", "number"), [(None, 0), ("0", 0), ("4", 4), ("99", 99)])
def test_how_many_tables_are_rewritten_at_a_time(text: str | None, number: int) -> None:
    name = "delegation.rewrite-worker.tasks-at-once"
    assert tasks_at_once({} if text is None else {name: text}) == number


@pytest.mark.parametrize(
    ("name", "text"),
    [("tasks-at-once", "100"), ("tasks-at-once", "-1"), ("tasks-at-once", "many"), ("task-at-once", "4")],
)
def test_a_wrong_property_of_the_worker_is_named(name: str, text: str) -> None:
    with pytest.raises(InvalidProperty, match=f"delegation.rewrite-worker.{name}"):
        tasks_at_once({f"delegation.rewrite-worker.{name}": text})
