"""The simulated deployment: dispatcher, executions, workers and sweepers over one store, and their faults."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from delegation.idempotency.service import Acceptance
from delegation.idempotency.store import MemoryIdempotencyStore, RecordUpkeep, RecordWrite
from delegation.orchestration.job_runs import ExternalJobRuns, JobService
from delegation.orchestration.steps import Steps
from delegation.orchestration.sweep import sweep
from delegation.tasks.errors import LeaseLost, OutcomeUnknown, StoreUnavailable, TaskError, TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import DispatchPolicy, Lease, LeasePolicy, MaintenancePolicy, Policies, RetryPolicy
from delegation.tasks.stores.base import Advance, Create, TaskChange
from delegation.tasks.work import maintenance
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.hooks import ExternalJobs, JobsLeftToSweeper, TaskHooks
from delegation.tasks.work.maintenance import MaintenanceReport, TaskMaintenance, ensure_submitted, store_maintenance
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import DueHints, lease_next_available_task
from polaris_common.errors import DelegationError
from tests.faults.simulator.callers import Callers
from tests.faults.simulator.faulty import (
    LATE_REFUSALS,
    InvocationDied,
    SimulatedQueue,
    SimulatedRecords,
    SimulatedStore,
)
from tests.faults.simulator.ledger import Ledger, Violation
from tests.faults.simulator.operators import Operators
from tests.faults.simulator.scheduler import START, Actor, Simulation
from tests.faults.simulator.state_machine import execute
from tests.faults.simulator.stores import STORES, TABLE, SharedStore
from tests.faults.simulator.work import (
    CHILD,
    FAMILY,
    ONCE,
    PURGE,
    Job,
    Purge,
    SimulatedJobs,
    child,
    family,
    monotonic_of,
    once,
)

DRIFT = timedelta(seconds=10)
LEASE = timedelta(seconds=60)
CHAOS = timedelta(minutes=15)
END = timedelta(hours=12)
LIFETIME = timedelta(minutes=30)
CHILDREN_WAIT = timedelta(seconds=30)
MAX_STEPS = 50_000
TASK_TYPES = frozenset({PURGE, FAMILY, CHILD, ONCE, maintenance.TASK_TYPE})
POLICIES = Policies(
    default=RetryPolicy(max_attempts=4, initial_backoff=timedelta(seconds=5), max_backoff=timedelta(minutes=2)),
    by_type={},
    lease=LeasePolicy(lost_timeout=LEASE, clock_drift=DRIFT),
    dispatch=DispatchPolicy(grace=timedelta(seconds=10), max_backoff=timedelta(minutes=5)),
    fail_when_lost=frozenset({ONCE}),
    maintenance=MaintenancePolicy(retention=timedelta(minutes=10), interval=timedelta(minutes=4)),
)
T = TypeVar("T")
BROKEN = AttemptError("WORK_BROKE", "the work failed", ErrorClass.INTERRUPTED)


@dataclass(frozen=True)
class Mutation:
    """A safety measure that is removed, to test whether the invariants detect it."""

    drift_margin: timedelta = DRIFT
    stores: Mapping[str, Callable[[], SharedStore]] = field(default_factory=lambda: STORES)
    external_jobs: Callable[[JobService], ExternalJobs] = ExternalJobRuns


class Deployment:
    """One deployment in one world."""

    def __init__(self, world: Simulation, mutation: Mutation, store: str = TABLE) -> None:
        self.world = world
        self.policies = replace(POLICIES, lease=LeasePolicy(lost_timeout=LEASE, clock_drift=mutation.drift_margin))
        self.mutation = mutation
        self.memory = mutation.stores[store]()
        self.records = MemoryIdempotencyStore(self.memory)
        self.jobs: dict[str, Job] = {}
        self.known_from: dict[str, datetime] = {}
        """When reads of a job run see it: later than its start."""
        self.ledger = Ledger(self.memory, POLICIES, world, self.jobs)
        self.callers = Callers(self)
        self.messages: list[tuple[str, int]] = []
        self.started: set[str] = set()
        self.queue_is_dead = world.chance(0.05)
        self.closing = False
        self.working: defaultdict[tuple[str, int], list[Actor]] = defaultdict(list)
        """The invocations of RunInline that run, by task and attempt."""
        self.throttled_until = world.now + world.seconds(60, 600) if world.chance(0.4) else world.now
        self.throttled_from = world.now + world.seconds(0, 300)
        self.operators = Operators(world)

    # ---- faults

    @property
    def chaos(self) -> bool:
        return self.world.now - START < CHAOS

    def disturb(self, actor: Actor) -> None:
        """At a call: crash, pause for longer than a lease, or lose the connection to the store for a while."""
        self._expire(actor)
        if not self.chaos or actor.spared:
            return
        dice = self.world.dice.random()
        if dice < 0.008:
            self.world.note(f"{actor.name} crashes")
            if actor.deadline is not None and self.world.chance(0.5):
                raise InvocationDied
            actor.kill()
        elif dice < 0.018:
            self.world.note(f"{actor.name} pauses")
            pause = self.world.seconds(1, 150)
            actor.sleep(pause if actor.deadline is None else min(pause, actor.deadline - self.world.now))
            self._expire(actor)
        elif dice < 0.034:
            self.world.note(f"{actor.name} is cut off")
            actor.cut_off_until = self.world.now + self.world.seconds(10, 200)

    def _expire(self, actor: Actor) -> None:
        if actor.deadline is not None and self.world.now >= actor.deadline:
            raise InvocationDied

    def refuses_invocations(self) -> bool:
        """Whether Lambda refuses this invocation, because too many run."""
        return self.throttled_from <= self.world.now < self.throttled_until and self.world.chance(0.85)

    def fault_of_a_write(self, actor: Actor) -> str | None:
        if self.world.now < actor.cut_off_until:
            return "refused"
        if not self.chaos:
            return None
        dice = self.world.dice.random()
        for name, share in (("refused", 0.04), ("lost", 0.03), ("late", 0.02), ("answer lost", 0.04)):
            if dice < share:
                return name
            dice -= share
        return None

    def read_fails(self, actor: Actor) -> bool:
        return self.world.now < actor.cut_off_until or (self.chaos and not actor.spared and self.world.chance(0.03))

    def write(self, actor: Actor, change: TaskChange) -> Task:
        self._check_working(actor, change)
        task = self.memory.apply(change)
        self.world.note(f"{actor.name} {type(change).__name__} {task.task_id} v{task.version} {task.status}")
        self.ledger.applied(change, self.world.now)
        return task

    def _check_working(self, actor: Actor, change: TaskChange) -> None:
        """No process ends an attempt within its lease while an invocation of RunInline works for it, but that one."""
        if not isinstance(change, Advance) or self.memory._heads.get(change.before.task_id) != change.before:
            return
        head, ended = change.before, not change.after.is_held
        if not ended or head.lease.lost_not_before is None or self.world.now >= head.lease.lost_not_before - DRIFT / 2:
            return
        others = [one.name for one in self.working[head.task_id, head.attempt_count] if one is not actor]
        if others:
            raise Violation(f"{actor.name} ends attempt {head.attempt_count} of {head.task_id}, which {others} run")

    def accept(self, actor: Actor, change: TaskChange, write: RecordWrite) -> Task:
        before = self.memory.get(write.record.task_id)
        task = self.records.accept(change, write)
        if self.memory.get(write.record.task_id) is not before:
            self.world.note(f"{actor.name} accepts {task.task_id} v{task.version} {task.status}")
            self.ledger.applied(change, self.world.now)
        return task

    def remove(self, actor: Actor, task: Task) -> bool:
        removed = self.memory.remove(task)
        if removed:
            self.world.note(f"{actor.name} removes {task.task_id} v{task.version}")
            self.ledger.removed(task, self.world.now)
        return removed

    def forget(self, actor: Actor, task_id: str, below: int) -> int:
        forgotten = self.memory.forget(task_id, below)
        if forgotten:
            self.world.note(f"{actor.name} forgets {task_id} below v{below}")
            self.ledger.forgot(task_id, below, self.world.now)
        return forgotten

    def apply_later(self, write: Callable[[], object]) -> None:
        """Apply a write later, after its sender has stopped waiting."""

        def arrive(_actor: Actor) -> None:
            try:
                write()
            except LATE_REFUSALS:
                return

        self.world.spawn("late", arrive, after=self.world.seconds(0, 90))

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        copies = 0 if self.queue_is_dead else 1
        if self.chaos and not self.queue_is_dead:
            if self.world.chance(0.1):
                raise StoreUnavailable("the queue did not accept the message")
            copies = self.world.dice.choice((0, 1, 1, 1, 1, 1, 2, 3))
        self.messages += [(task_id, n)] * copies

    # ---- parts of processes

    def monotonic(self) -> float:
        return monotonic_of(self.world.now)

    def has_ended(self, job: str) -> bool:
        """Whether the attempt of a job has ended by the clock of some process."""
        task_id, _, attempt = job.rpartition("-")
        head = self.memory.get(task_id)
        if head is None or not head.is_held or head.attempt_count != int(attempt) or head.lease.lost_not_before is None:
            return True
        return self.world.now >= head.lease.lost_not_before - 2 * DRIFT

    def external_jobs(self, actor: Actor) -> ExternalJobs:
        return self.mutation.external_jobs(SimulatedJobs(self, actor))

    def service(self, actor: Actor, external_jobs: ExternalJobs = JobsLeftToSweeper()) -> TaskService:  # noqa: B008
        return TaskService(
            SimulatedStore(self, actor),
            self.policies,
            SimulatedQueue(self, actor),
            clock=actor.clock,
            hooks=TaskHooks(
                nonce=actor.nonce,
                external_jobs=external_jobs,
                pauses=self.operators.lookout(lambda: self.read_fails(actor), self.monotonic),
            ),
        )

    def acceptance(self, actor: Actor) -> Acceptance:
        store, records = SimulatedStore(self, actor), SimulatedRecords(self, actor)
        return Acceptance(store, records, lifetime=LIFETIME, clock=actor.clock, nonce=actor.nonce)

    def behaviors(self, actor: Actor, service: TaskService) -> Behaviors:
        declared: list[Behavior] = [
            family(self, actor, service),
            child(self, actor),
            once(self, actor),
            self.maintenance_behavior(actor, service),
        ]
        functions = [
            FunctionBehavior(service, one, children_wait=CHILDREN_WAIT, monotonic=self.monotonic) for one in declared
        ]
        return Behaviors([Purge(self, actor, service), *functions])

    def maintenance_behavior(self, actor: Actor, service: TaskService) -> Behavior[TaskMaintenance, MaintenanceReport]:
        records = SimulatedRecords(self, actor)
        return store_maintenance(
            service,
            lambda: RecordUpkeep(service.reads.store, records, lifetime=LIFETIME, nonce=actor.nonce),
            lambda: TASK_TYPES,
        )

    def steps(self, actor: Actor) -> Steps:
        service = self.service(actor, self.external_jobs(actor))
        return Steps(service, TASK_TYPES, behaviors=self.behaviors(actor, service), jobs=SimulatedJobs(self, actor))

    @staticmethod
    def lasting(now: datetime) -> Lease:
        return Lease.lasting(LEASE, now)

    # ---- processes

    def keep_running(self, kind: str, work: Callable[[Actor], None], after: timedelta = timedelta(0)) -> None:
        """Start a process, and again whenever it crashed, as a service manager would."""

        def supervised(actor: Actor) -> None:
            try:
                work(actor)
            finally:
                self.keep_running(kind, work, self.world.seconds(1, 60))

        if not self.closing:
            self.world.spawn(kind, supervised, after=after)

    def start(self) -> None:
        """Start every process of the deployment, and its callers."""
        self.keep_running("sweeper", self.sweeper)
        self.keep_running("sweeper", self.sweeper)
        self.keep_running("dispatcher", self.dispatcher)
        if not self.queue_is_dead:
            for _ in range(1 + self.world.dice.randrange(2)):
                self.keep_running("worker", self.worker, self.world.seconds(0, 120))
        self.callers.start()
        if self.world.chance(0.5):
            self.a_newer_release_writes()
        self.operators.start()

    def a_newer_release_writes(self) -> None:
        """Write a task that this release cannot read, due and old enough for its removal."""
        task = Task(
            task_id=task_id_of("newer"),
            task_type=PURGE,
            task_payload="{}",
            received_timestamp=START,
            created_ts=START,
            last_status_change_ts=START,
            next_scheduled_run_ts=START,
            due_at=START,
        )
        self.ledger.newer = self.memory.apply(Create(task))
        self.memory.make_unreadable(task.task_id)

    def sweeper(self, actor: Actor) -> None:
        service = self.service(actor, self.external_jobs(actor))
        maintains = self.world.chance(0.5)
        while True:
            actor.sleep(self.world.seconds(4, 15))
            if maintains:
                attempted(lambda: ensure_submitted(service, self.maintenance_behavior(actor, service)))
            until = actor.clock() + timedelta(minutes=1)
            attempted(lambda until=until: list(sweep(service, TASK_TYPES, deadline=until, clock=actor.clock)))

    def dispatcher(self, actor: Actor) -> None:
        while True:
            actor.sleep(self.world.seconds(0.1, 3))
            while self.messages:
                at = self.world.dice.randrange(len(self.messages))
                task_id, n = self.messages[at]
                self.disturb(actor)
                actor.pause()
                name = f"{task_id}-{n}"
                if name not in self.started:  # a name can be used once
                    self.started.add(name)
                    self.world.spawn("execution", lambda a, task_id=task_id, n=n: execute(self, a, task_id, n))
                if (task_id, n) in self.messages:
                    self.messages.remove((task_id, n))

    def worker(self, actor: Actor) -> None:
        """A worker: leases due tasks and runs them."""
        service = self.service(actor, self.external_jobs(actor) if self.world.chance(0.5) else JobsLeftToSweeper())
        behaviors = self.behaviors(actor, service)
        due_hints = DueHints()
        while True:
            task = attempted(
                lambda: lease_next_available_task(service, actor.name, behaviors, self.lasting, due_hints=due_hints)
            )
            if task is None:
                actor.sleep(self.world.seconds(15, 60))
                continue
            try:
                behaviors[task.task_type].run(task, hand_over_at=None)
            except LeaseLost:
                continue
            except TaskError:
                self.end_attempt(service, task)

    @staticmethod
    def end_attempt(service: TaskService, task: Task) -> None:
        try:
            service.leases.end_attempt(task.task_id, task.attempt_count, BROKEN)
        except (LeaseLost, StoreUnavailable, OutcomeUnknown, TaskNotFound):
            return

    def is_quiet(self) -> bool:
        """Whether the simulation is complete: no caller waits, and every task has ended."""
        heads = self.memory._heads.values()
        return (
            not self.chaos
            and self.callers.waiting == 0
            and all(
                head.is_terminal or head.task_type == maintenance.TASK_TYPE or head is self.ledger.newer
                for head in heads
            )
        )


def attempted(act: Callable[[], T]) -> T | None:
    """Call once; return None when the store or the queue failed."""
    try:
        return act()
    except (StoreUnavailable, OutcomeUnknown, TaskNotFound):
        return None


def task_id_of(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def unexpected(error: DelegationError) -> AssertionError:
    return AssertionError(f"{type(error).__name__}: {error}")
