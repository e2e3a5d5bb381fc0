"""The shared worker: several tables in one session, and what becomes of them if it stops, loses a lease, or dies."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.polaris.answers import PolarisUnavailable
from delegation.rewrites.behavior import SHARED_WAIT
from delegation.rewrites.commits import ATTEMPT, TASK_ID
from delegation.rewrites.context import Performed, Rewrite, RewriteAttempt
from delegation.rewrites.errors import RewriteEngineFailed
from delegation.rewrites.fence import Gate
from delegation.rewrites.task_type import COMPACTION_TASK_TYPE, LOSSES
from delegation.rewrites.worker import Places, SessionWorker, SharedSession, SharedWorker, WorkerLimits
from delegation.tasks.errors import RunPostponed
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.policy import Lease, Policies
from delegation.tasks.pauses import EVERYTHING, PauseRecord, ReadPauses, WorkPause
from delegation.tasks.work.attempt_context import WorkOutlivedLease
from delegation.tasks.work.behaviors import Behaviors, BehaviorWhenNeeded
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.timestamps import elapsed
from delegation.wiring.types import TYPES, default_properties
from tests.kit.lakes.lake import filled, rows
from tests.kit.tasks.services import task_service
from tests.kit.worlds.rewriting import NOTHING, RewritingWorld

AT_MOST = 30.0
"""Seconds that a test waits for a thread before it fails."""
SOON = timedelta(seconds=2)
"""Longer than an attempt works between two reads of its task."""


class Died(BaseException):
    """The process ended: nothing in it continues."""


@dataclass
class MortalStore:
    """The task store as one process reaches it, until the process dies."""

    store: Any
    dead: threading.Event

    def __getattr__(self, name: str) -> Any:
        if self.dead.is_set():
            raise Died
        return getattr(self.store, name)


Act = Callable[[Gate, RewriteAttempt], object]


def at_once(_gate: Gate, _attempt: RewriteAttempt) -> None:
    """Rewrite in no time, as an act."""


@dataclass
class StandIn:
    """A RewriteEngine without Spark; `acts` are what it does with a table, nothing if none is given."""

    acts: dict[str, Act] = field(default_factory=dict)
    began: list[str] = field(default_factory=list)
    iceberg_version: str = "1.12.0"

    def perform(self, gate: Gate, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
        self.began.append(gate.identifier.name)
        self.acts.get(gate.identifier.name, at_once)(gate, attempt)
        return Performed(groups=1, groups_done=1)


class Process:
    """A shared worker in a process of its own, on the store of a world."""

    def __init__(self, world: RewritingWorld, name: str = "w", *, at_once: int = 2, **limits: timedelta) -> None:
        self.world = world
        self.dead, self.stop = threading.Event(), threading.Event()
        self.on_poll: Callable[[], None] = lambda: None
        self.pauses = PauseRecord()
        policies = Policies.from_properties(default_properties())
        self.tasks = task_service(
            MortalStore(world.store, self.dead),
            replace(policies, dispatch=replace(policies.dispatch, grace=timedelta(0))),
            clock=world.clock,
            types=TYPES,
            pauses=ReadPauses(lambda: self.pauses, TYPES, monotonic=world.seconds),
        )
        self.engine, self.jvm = StandIn(), True
        self.session = SharedSession(self.engine, lambda: self.jvm)
        behavior = replace(world.compaction, tasks=self.tasks, session=self.session)
        behaviors = Behaviors([BehaviorWhenNeeded(frozenset({COMPACTION_TASK_TYPE}), lambda: behavior)])
        poll = timedelta(milliseconds=2)
        workers = [
            SessionWorker(
                self.tasks,
                behaviors,
                WorkerSettings(f"{name}/{number}", poll=poll),
                places=self.session.places,
                stop=self.stop,
            )
            for number in range(at_once)
        ]
        self.worker = SharedWorker(
            self.tasks,
            self.session,
            workers,
            WorkerLimits(at_once, **limits),
            self.stop,
            now=self._seconds,
            poll_seconds=0.005,
        )

    def _seconds(self) -> float:
        self.on_poll()
        return elapsed()

    def until(self, is_done: Callable[[], bool]) -> None:
        """Work until something is so, and leave the tasks that run then to their ends."""

        def poll() -> None:
            if is_done():
                self.stop.set()

        self.on_poll = poll
        self.worker.run()

    def until_ended(self, *tasks: Task) -> list[Task]:
        """Work until these tasks have ended, and return them."""
        reads = self.world.tasks.reads
        self.until(lambda: all(reads.get(task.task_id).is_terminal for task in tasks))
        return [reads.get(task.task_id) for task in tasks]

    def dies(self, gate: Gate, attempt: RewriteAttempt) -> None:
        """End the process, as an act."""
        self.dead.set()
        raise Died

    def with_it(self, gate: Gate, attempt: RewriteAttempt) -> None:
        """Work until the process dies, as an act."""
        assert self.dead.wait(AT_MOST)
        raise Died

    def works(self, gate: Gate, attempt: RewriteAttempt) -> None:
        """Work until the attempt has to stop, as an act."""
        give_up = threading.Event()
        for _ in range(int(AT_MOST / 0.01)):
            self.world.sleep(SOON.total_seconds())
            attempt.checkpoint()
            give_up.wait(0.01)


@pytest.fixture
def world() -> RewritingWorld:
    return filled(RewritingWorld(), "a", "b", "c", "d")


def asked(world: RewritingWorld, *names: str) -> list[Task]:
    """Return the tasks of tables that workers may lease, because no execution started them in time."""
    tasks = [world.accepted(world.request(COMPACTION_TASK_TYPE, name)) for name in names]
    world.clock.advance(timedelta(minutes=2))
    return tasks


def together(acts: Mapping[str, Act]) -> dict[str, Act]:
    """Return acts that begin when all of them are to begin."""
    all_there = threading.Barrier(len(acts))

    def waiting(act: Act) -> Act:
        def act_then(gate: Gate, attempt: RewriteAttempt) -> None:
            all_there.wait(AT_MOST)
            act(gate, attempt)

        return act_then

    return {name: waiting(act) for name, act in acts.items()}


def codes(world: RewritingWorld, task: Task) -> list[str]:
    """Return how the attempts at a task ended that had another one after them."""
    return [str(row.error_code) for row in world.history(task.task_id) if row.status is Status.RETRY_SCHEDULED]


def losses_noted(world: RewritingWorld, task: Task) -> int:
    return int(world.tasks.reads.get(task.task_id).details.get(LOSSES, 0))


def lost_leases(world: RewritingWorld) -> None:
    """Let so much time pass that the leases of a process that died have ended."""
    world.clock.advance(timedelta(hours=2))


def test_several_tables_are_rewritten_at_a_time_each_in_its_own_attempt(world: RewritingWorld) -> None:
    process = Process(world)
    process.engine.acts = together(dict.fromkeys("ab", at_once))
    ended = process.until_ended(*asked(world, "a", "b"))
    assert [(task.status, task.engine, task.attempt_count) for task in ended] == [(Status.SUCCESS, "spark", 1)] * 2
    assert len({task.lease.owner for task in world.history(ended[0].task_id)}) > 1
    assert world.jobs.started == []


def test_no_more_tables_are_rewritten_at_a_time_than_it_may(world: RewritingWorld) -> None:
    process, inside, most = Process(world, at_once=2), [], []

    def notes(gate: Gate, _attempt: RewriteAttempt) -> None:
        inside.append(gate.identifier.name)
        most.append(len(inside))
        inside.remove(gate.identifier.name)

    process.engine.acts = dict.fromkeys("abcd", notes)
    process.until_ended(*asked(world, "a", "b", "c", "d"))
    assert sorted(process.engine.began) == ["a", "b", "c", "d"]
    assert max(most) <= 2


def test_two_workers_share_one_queue_and_no_table_is_rewritten_twice(world: RewritingWorld) -> None:
    tasks = asked(world, "a", "b", "c", "d")
    processes = [Process(world, name) for name in ("one", "other")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda process: process.until_ended(*tasks), processes))
    assert sorted(name for process in processes for name in process.engine.began) == ["a", "b", "c", "d"]
    assert {world.tasks.reads.get(task.task_id).attempt_count for task in tasks} == {1}


def test_a_dry_run_is_left_to_others(world: RewritingWorld) -> None:
    dry = world.accepted(world.request(COMPACTION_TASK_TYPE, "a", **{"dry-run": "true"}))
    Process(world).until_ended(*asked(world, "b"))
    assert world.tasks.reads.get(dry.task_id).status is Status.SUBMITTED


def test_a_table_without_work_costs_the_session_nothing(world: RewritingWorld) -> None:
    world.kind.plan_now = NOTHING
    process = Process(world)
    (task,) = process.until_ended(*asked(world, "a"))
    assert (task.status, task.result_summary) == (Status.SUCCESS, NOTHING.summary)
    assert process.engine.began == []


def test_the_tasks_of_a_stopped_worker_are_handed_over_and_continued(world: RewritingWorld) -> None:
    tasks = asked(world, "a", "b")
    process = Process(world)
    process.engine.acts = dict.fromkeys("ab", process.works)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(process.worker.run)
        wait_until(lambda: len(process.engine.began) == 2)
        process.worker.stop()
        running.result(AT_MOST)
    assert [codes(world, task) for task in tasks] == [["HANDED_OVER"], ["HANDED_OVER"]]
    ended = Process(world, "next").until_ended(*tasks)
    assert [(task.status, task.attempts_excused, LOSSES in task.details) for task in ended] == [
        (Status.SUCCESS, 1, False),
        (Status.SUCCESS, 1, False),
    ]


def test_a_cancelled_task_ends_and_the_others_go_on(world: RewritingWorld) -> None:
    a, b = asked(world, "a", "b")
    process = Process(world)

    def cancelled(gate: Gate, attempt: RewriteAttempt) -> None:
        world.tasks.operators.cancel(a.task_id)
        process.works(gate, attempt)

    process.engine.acts = {"a": cancelled}
    first, second = process.until_ended(a, b)
    assert (first.status, first.error_code, second.status) == (Status.FAILURE, "CANCELLED", Status.SUCCESS)


def test_a_pause_stops_what_runs_and_what_would_begin(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    process = Process(world)

    def paused(gate: Gate, attempt: RewriteAttempt) -> None:
        pause = WorkPause(EVERYTHING, world.clock(), Caller(client_id="operator"), "an incident")
        process.pauses = PauseRecord().with_pause(pause)
        world.clock.advance(timedelta(minutes=1))
        process.works(gate, attempt)

    process.engine.acts = {"a": paused}
    process.until(lambda: bool(codes(world, a)))
    assert codes(world, a) == ["PAUSED"]
    assert process.engine.began == ["a"]


def test_a_lease_that_is_lost_in_spark_ends_only_its_attempt(world: RewritingWorld) -> None:
    a, b = asked(world, "a", "b")
    process = Process(world)

    def released(gate: Gate, attempt: RewriteAttempt) -> None:
        if attempt.attempt == 1:
            process.tasks.operators.release(a.task_id, 1, "an operator released it")
            process.works(gate, attempt)

    process.engine.acts = {"a": released}
    first, second = process.until_ended(a, b)
    assert (first.status, first.attempt_count, second.status) == (Status.SUCCESS, 2, Status.SUCCESS)
    assert codes(world, a) == ["LOST"]


def test_a_commit_after_the_lease_is_lost_is_refused(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    process, refused = Process(world), []

    def commits_late(gate: Gate, attempt: RewriteAttempt) -> None:
        if attempt.attempt == 1:
            process.tasks.operators.release(a.task_id, 1, "an operator released it")
            world.sleep(SOON.total_seconds())
            try:
                gate.checkpoint()
            except BaseException as error:
                refused.append(type(error).__name__)
                raise

    process.engine.acts = {"a": commits_late}
    process.until_ended(a)
    assert refused == ["LeaseLost"]


def test_a_worker_that_dies_between_lease_and_start_costs_one_attempt(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    process = Process(world)
    apply, writes = world.store.apply, []

    def apply_and_die(change: Any) -> Task:
        after: Task = apply(change)
        writes.append(after.status)
        if not process.dead.is_set() and after.status is Status.ACQUIRING_RESOURCES:
            process.dead.set()
        return after

    world.store.apply = apply_and_die
    with pytest.raises(Died):
        process.worker.run()
    del world.store.apply
    assert writes[-1] is Status.ACQUIRING_RESOURCES
    lost_leases(world)
    (after,) = Process(world, "next").until_ended(a)
    assert (after.status, after.attempt_count, codes(world, a)) == (Status.SUCCESS, 2, ["LOST"])


def commits(world: RewritingWorld, gate: Gate, attempt: RewriteAttempt) -> None:
    gate.checkpoint()
    marks = {TASK_ID: attempt.task_id, ATTEMPT: str(attempt.attempt)}
    world.lake.table(gate.identifier.name).append(rows(9), snapshot_properties=marks)


@pytest.mark.parametrize("committed", [False, True])
def test_a_worker_that_dies_in_or_after_a_commit_is_continued_by_what_the_table_says(
    world: RewritingWorld, *, committed: bool
) -> None:
    (a,) = asked(world, "a")
    process = Process(world)

    def commits_and_dies(gate: Gate, attempt: RewriteAttempt) -> None:
        if committed:
            commits(world, gate, attempt)
            world.kind.plan_now = NOTHING
        process.dies(gate, attempt)

    process.engine.acts = {"a": commits_and_dies}
    with pytest.raises(Died):
        process.worker.run()
    lost_leases(world)
    following = Process(world, "next")
    following.engine.acts = {"a": lambda gate, attempt: commits(world, gate, attempt)}
    (after,) = following.until_ended(a)
    assert (after.status, after.details["files_added"]) == (Status.SUCCESS, 1)
    assert following.engine.began == ([] if committed else ["a"])


def test_a_table_that_always_kills_costs_the_others_one_attempt_and_ends_alone(world: RewritingWorld) -> None:
    tasks = asked(world, "a", "b", "c", "d")
    beside: list[list[str]] = []

    def are_done() -> bool:
        heads = [world.tasks.reads.get(task.task_id) for task in tasks]
        if not any(head.is_held for head in heads):
            world.clock.advance(timedelta(seconds=31))  # those that were postponed are due again
        return all(head.is_terminal for head in heads)

    for number in range(20):
        process = Process(world, f"w{number}", at_once=4)
        beside.append(process.engine.began)

        def dies_by_itself(gate: Gate, attempt: RewriteAttempt, process: Process = process) -> None:
            # Not in the moment in which another attempt is postponed.
            wait_until(lambda: not any(world.tasks.reads.get(task.task_id).is_held for task in tasks[1:]))
            process.dies(gate, attempt)

        process.engine.acts = {"a": dies_by_itself}
        if number == 0:
            process.engine.acts = together({**dict.fromkeys("bcd", process.with_it), "a": process.dies})
        try:
            process.until(are_done)
        except Died:
            lost_leases(world)
        else:
            break
    ended, *rest = [world.tasks.reads.get(task.task_id) for task in tasks]
    assert (ended.status, ended.error_code) == (Status.FAILURE, "LOST")
    assert [(task.status, task.unexcused_attempts) for task in rest] == [(Status.SUCCESS, 2)] * 3
    first, second, *later = [began for began in beside if "a" in began]
    assert sorted(first) == ["a", "b", "c", "d"]
    assert second[-1] == "a"
    assert len(later) == ended.unexcused_attempts - 2 > 0
    assert codes(world, tasks[0]).count("LOST") == ended.unexcused_attempts - 1


def test_losses_are_counted_in_a_row(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    held = [0, 1, 2]
    for losses in held:
        process = Process(world, f"w{losses}")

        def notes(gate: Gate, attempt: RewriteAttempt, process: Process = process, losses: int = losses) -> None:
            assert losses_noted(world, a) == losses + 1
            process.dies(gate, attempt)

        process.engine.acts = {"a": notes}
        with pytest.raises(Died):
            process.worker.run()
        lost_leases(world)
    process = Process(world)

    def stops(gate: Gate, attempt: RewriteAttempt) -> None:
        process.worker.stop()
        process.works(gate, attempt)

    process.engine.acts = {"a": stops}
    process.worker.run()
    assert (codes(world, a)[-1], losses_noted(world, a)) == ("HANDED_OVER", 3)
    (after,) = Process(world, "last").until_ended(a)
    assert (after.status, LOSSES in after.details) == (Status.SUCCESS, False)


def lost_in_a_session(world: RewritingWorld, *tasks: Task) -> None:
    """Let the process die that works on these tasks."""
    process = Process(world, "dies", at_once=len(tasks))
    first, *rest = (TYPES.labels(task).target or "" for task in tasks)
    names = [name.rpartition(".")[2] for name in (first, *rest)]
    process.engine.acts = together({**dict.fromkeys(names, process.with_it), names[0]: process.dies})
    with pytest.raises(Died):
        process.worker.run()
    lost_leases(world)


def test_an_attempt_that_is_postponed_stays_a_suspect(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    lost_in_a_session(world, a)
    process = Process(world)
    with process.session.places.taken(1, lambda: None):
        process.until(lambda: codes(world, a)[-1:] == ["POSTPONED"])
    world.clock.advance(SHARED_WAIT)
    following, seen = Process(world, "next"), []
    following.engine.acts = {"a": lambda _gate, _attempt: seen.append(losses_noted(world, a))}
    following.until_ended(a)
    assert seen == [2]


def test_what_decides_without_spark_keeps_the_losses(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    lost_in_a_session(world, a)
    lease = world.tasks.policies.lease.lost_timeout
    held = world.tasks.leases.acquire(a.task_id, "other", lambda now: Lease.lasting(lease, now))
    assert world.compaction.run(held, hand_over_at=None).error_code == "HANDED_OVER"
    assert losses_noted(world, a) == 1


def test_the_loss_of_a_process_without_spark_makes_no_suspect(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    lease = world.tasks.policies.lease.lost_timeout
    world.tasks.leases.acquire(a.task_id, "other", lambda now: Lease.lasting(lease, now))
    lost_leases(world)
    process, seen = Process(world), []
    process.engine.acts = {"a": lambda _gate, _attempt: seen.append(losses_noted(world, a))}
    (after,) = process.until_ended(a)
    assert (seen, codes(world, a), after.status) == ([1], ["LOST"], Status.SUCCESS)


def test_an_error_of_the_table_clears_its_losses(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    lost_in_a_session(world, a)
    process = Process(world)

    def refused(_gate: Gate, _attempt: RewriteAttempt) -> None:
        raise PolarisUnavailable("the catalog does not answer", status=503)

    process.engine.acts = {"a": refused}
    process.until(lambda: len(codes(world, a)) > 1)
    assert (losses_noted(world, a), codes(world, a)[0]) == (0, "LOST")


def test_an_engine_that_failed_is_a_loss_although_its_jvm_still_answers(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    lost_in_a_session(world, a)
    process = Process(world)

    def fails(_gate: Gate, _attempt: RewriteAttempt) -> None:
        raise RewriteEngineFailed("the Spark job failed or its JVM ended")

    process.engine.acts = {"a": fails}
    process.until(lambda: len(codes(world, a)) > 1)
    assert (losses_noted(world, a), codes(world, a)) == (2, ["LOST", "ENGINE_FAILED"])


def held_of(world: RewritingWorld, process: Process) -> int:
    owners = {worker.owner for worker in process.worker._workers}
    heads = [entry for entry in world.tasks.reads.store.heads(limit=100).entries if isinstance(entry, Task)]
    return sum(head.is_held and head.lease.owner in owners for head in heads)


def test_three_tables_that_always_kill_do_not_fail_the_others(world: RewritingWorld) -> None:
    filled(world, *"efgh")
    killers, others = asked(world, *"abc"), asked(world, *"defgh")
    tasks = [*killers, *others]
    for number in range(80):
        process = Process(world, f"w{number}", at_once=4)

        def dies(gate: Gate, attempt: RewriteAttempt, process: Process = process) -> None:
            # Not in the moment in which another attempt is postponed.
            wait_until(lambda: process.dead.is_set() or held_of(world, process) == process.session.places._present)
            process.dies(gate, attempt)

        process.engine.acts = dict.fromkeys("abc", dies)

        def are_done(process: Process = process) -> bool:
            if not held_of(world, process):
                world.clock.advance(timedelta(seconds=31))  # those that were postponed are due again
            return all(world.tasks.reads.get(task.task_id).is_terminal for task in tasks)

        try:
            process.until(are_done)
        except Died:
            lost_leases(world)
        else:
            break
    assert {world.tasks.reads.get(task.task_id).error_code for task in killers} == {"LOST"}
    ended = [world.tasks.reads.get(task.task_id) for task in others]
    assert {task.status for task in ended} == {Status.SUCCESS}
    assert max(task.unexcused_attempts for task in ended) <= 6


def test_a_session_that_ends_ends_its_worker_and_fails_only_what_ran_in_it(world: RewritingWorld) -> None:
    a, b, c = asked(world, "a", "b", "c")
    process, both = Process(world), threading.Barrier(2)

    def ends_the_jvm(_gate: Gate, _attempt: RewriteAttempt) -> None:
        both.wait(AT_MOST)
        process.jvm = False
        raise RewriteEngineFailed("the JVM ended")

    process.engine.acts = dict.fromkeys("abc", ends_the_jvm)
    with pytest.raises(RewriteEngineFailed, match="session"):
        process.worker.run()
    assert len(process.engine.began) == 2
    ended = {task.task_id: [code for code in codes(world, task) if code != "HANDED_OVER"] for task in (a, b, c)}
    assert sorted(ended.values()) == [[], ["ENGINE_FAILED"], ["ENGINE_FAILED"]]


def test_a_lost_session_leases_nothing_more_until_its_process_ends(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    process = Process(world, at_once=1)
    process.jvm, process.worker._poll_seconds = False, 0.5
    with pytest.raises(RewriteEngineFailed, match="session"):
        process.worker.run()
    assert codes(world, a) == ["HANDED_OVER"]


def test_the_budget_ends_the_leasing_and_not_the_attempt(world: RewritingWorld) -> None:
    a, b = asked(world, "a", "b")
    seconds = [0.0]
    process = Process(world, at_once=1, budget=timedelta(seconds=100))
    process.worker._now = lambda: seconds[0]

    def outlasts(_gate: Gate, _attempt: RewriteAttempt) -> None:
        seconds[0] = 150.0
        assert process.stop.wait(AT_MOST)

    process.engine.acts = dict.fromkeys("ab", outlasts)
    process.worker.run()
    statuses = [world.tasks.reads.get(task.task_id).status for task in (a, b)]
    assert sorted(statuses) == [Status.SUBMITTED, Status.SUCCESS]


def test_an_attempt_that_runs_after_twice_the_budget_is_handed_over(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    seconds = [0.0]
    process = Process(world, budget=timedelta(seconds=100))
    process.worker._now = lambda: seconds[0]

    def outlasts(gate: Gate, attempt: RewriteAttempt) -> None:
        seconds[0] = 200.0
        process.works(gate, attempt)

    process.engine.acts = {"a": outlasts}
    process.worker.run()
    assert codes(world, a) == ["HANDED_OVER"]


def test_it_ends_when_it_has_been_idle(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    process = Process(world, idle=timedelta(minutes=3))
    seconds = [0.0]
    process.session.places.now = lambda: seconds[0]
    process.session.places._left_at = 0.0

    def long_and_then_idle(_gate: Gate, _attempt: RewriteAttempt) -> None:
        seconds[0] = 1_000.0  # it is not idle while an attempt runs

    def poll() -> None:
        if world.tasks.reads.get(a.task_id).is_terminal:
            assert not process.stop.is_set() or seconds[0] >= 1_180.0
            seconds[0] += 60.0

    process.engine.acts = {"a": long_and_then_idle}
    process.on_poll = poll
    assert process.worker.run() == "it is idle"
    assert seconds[0] >= 1_180.0


def test_what_the_checkpoint_raises_hands_the_tasks_over(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    process = Process(world)
    process.engine.acts = {"a": process.works}

    def stop() -> None:
        if process.engine.began:
            raise RewriteEngineFailed("the job is cancelled")

    with pytest.raises(RewriteEngineFailed, match="the job is cancelled"):
        process.worker.run(stop)
    assert codes(world, a) == ["HANDED_OVER"]


def test_work_that_outlives_its_lease_ends_the_process(world: RewritingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(world, "a")
    process = Process(world)

    def outlives(worker: Worker) -> None:
        raise WorkOutlivedLease(world.tasks.reads.get(asked(world, "b")[0].task_id))

    monkeypatch.setattr(Worker, "run", outlives)
    with pytest.raises(WorkOutlivedLease):
        process.worker.run()
    assert process.tasks.is_draining


def wait_until(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(AT_MOST / 0.01)):
        if is_so():
            return
        pause.wait(0.01)
    pytest.fail("it did not happen in time")


class Occupants:
    """Threads that take places, and leave them when told."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.inside: list[str] = []
        self.leave: dict[str, threading.Event] = {}
        self.pool = ThreadPoolExecutor(8)

    def comes(self, name: str, losses: int, checkpoint: Callable[[], None] = lambda: None) -> Any:
        self.leave[name] = threading.Event()

        def occupy() -> None:
            with self.places.taken(losses, checkpoint):
                self.inside.append(name)
                assert self.leave[name].wait(AT_MOST)
                self.inside.remove(name)

        return self.pool.submit(occupy)


@pytest.fixture
def occupants() -> Iterator[Occupants]:
    made = Occupants(Places())
    yield made
    for event in made.leave.values():
        event.set()
    made.pool.shutdown()


def test_one_suspect_at_a_time_is_beside_the_others(occupants: Occupants) -> None:
    for name, losses in (("x", 0), ("y", 0), ("suspect", 1)):
        occupants.comes(name, losses)
    wait_until(lambda: sorted(occupants.inside) == ["suspect", "x", "y"])
    with pytest.raises(RunPostponed):
        occupants.comes("other", 1).result(AT_MOST)
    occupants.leave["suspect"].set()
    wait_until(lambda: sorted(occupants.inside) == ["x", "y"])
    occupants.comes("other", 1)
    wait_until(lambda: "other" in occupants.inside)


def test_one_after_two_losses_waits_until_it_is_alone_and_others_come_later(occupants: Occupants) -> None:
    occupants.comes("x", 0)
    wait_until(lambda: occupants.inside == ["x"])
    occupants.comes("single", 5)
    wait_until(lambda: occupants.places.is_closed)
    for losses in (0, 1, 2):
        with pytest.raises(RunPostponed):
            occupants.comes("later", losses).result(AT_MOST)
    assert occupants.inside == ["x"]
    occupants.leave["x"].set()
    wait_until(lambda: occupants.inside == ["single"])
    occupants.leave["single"].set()
    wait_until(lambda: not occupants.places.is_closed)
    occupants.comes("later", 0)
    wait_until(lambda: occupants.inside == ["later"])


def test_an_attempt_that_has_to_stop_while_it_waits_leaves_its_place(occupants: Occupants) -> None:
    occupants.comes("x", 0)
    wait_until(lambda: occupants.inside == ["x"])

    def cancelled() -> None:
        raise RewriteEngineFailed("cancelled")

    with pytest.raises(RewriteEngineFailed, match="cancelled"):
        occupants.comes("single", 2, cancelled).result(AT_MOST)
    occupants.comes("suspect", 1)
    wait_until(lambda: occupants.inside == ["x", "suspect"])
    assert occupants.places.idle_seconds == 0


def test_nothing_is_leased_while_an_attempt_runs_alone(world: RewritingWorld) -> None:
    (a,) = asked(world, "a")
    process = Process(world)
    with process.session.places.taken(2, lambda: None):
        turns = iter(range(20))
        process.until(lambda: next(turns, None) is None)
        assert world.tasks.reads.get(a.task_id).status is Status.SUBMITTED
