"""The simulated deployment: callers, dispatcher, executions, worker, sweeper over one store; what befalls them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from delegation.tasks import transitions as t
from delegation.tasks.errors import (
    LeaseLost,
    OutcomeUnknown,
    RevisionConflict,
    StaleTask,
    StoreUnavailable,
    TaskExists,
    TaskNotFound,
)
from delegation.tasks.memory import MemoryTaskStore
from delegation.tasks.model import PlanSegment, Status, Task
from delegation.tasks.outcomes import AttemptError, ErrorClass
from delegation.tasks.policy import DispatchPolicy, LeasePolicy, Policies, RetryPolicy
from delegation.tasks.service import Lease, TaskService
from delegation.tasks.store import Change, Create, DueEntry, Page
from tests.faults.ledger import Ledger
from tests.faults.scheduler import START, Actor, World

DRIFT = timedelta(seconds=10)
LEASE = timedelta(seconds=60)
CHAOS = timedelta(minutes=15)
END = timedelta(hours=12)
MAX_STEPS = 50_000
POLICIES = Policies(
    default=RetryPolicy(max_attempts=4, initial_backoff=timedelta(seconds=5), max_backoff=timedelta(minutes=2)),
    by_type={},
    lease=LeasePolicy(lost_timeout=LEASE, clock_drift=DRIFT),
    dispatch=DispatchPolicy(grace=timedelta(seconds=10), max_backoff=timedelta(minutes=5)),
)
T = TypeVar("T")
STOPPED = AttemptError("STOPPED", "stopped on request", ErrorClass.TRANSIENT)
REFUSED = (StaleTask, RevisionConflict, TaskExists)


@dataclass(frozen=True)
class Mutation:
    """What is taken out of the house, to see whether the invariants notice."""

    drift_margin: timedelta = DRIFT
    store: type[MemoryTaskStore] = MemoryTaskStore


class SimulatedStore:
    """The store as one process sees it: every call may be overtaken, fail, or lose its answer; writes are repeated."""

    def __init__(self, house: "House", actor: Actor) -> None:
        self.house = house
        self.actor = actor

    def apply(self, change: Change) -> Task:
        unclear = False
        for _ in range(4):
            self._point()
            fault = self.house.fault_of_a_write(self.actor)
            if fault == "refused":
                continue
            if fault in {"lost", "late"}:
                unclear = True
                if fault == "late":
                    self.house.apply_later(change)
                continue
            try:
                task = self.house.write(self.actor, change)
            except REFUSED as error:
                self.house.ledger.refused(change, error)
                self._point()
                raise
            if fault == "answer lost":
                unclear = True
                continue
            self._point()
            return task
        raise OutcomeUnknown("no clear answer") if unclear else StoreUnavailable("nothing was taken")

    def get(self, task_id: str) -> Task | None:
        self._read()
        return self.house.memory.get(task_id)

    def get_version(self, task_id: str, version: int) -> Task | None:
        self._read()
        return self.house.memory.get_version(task_id, version)

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        self._read()
        return self.house.memory.history(task_id, after=after, limit=limit)

    def due(self, now: datetime, *, limit: int = 100) -> Sequence[DueEntry]:
        self._read()
        return self.house.memory.due(now, limit=limit)

    def remove(self, task: Task) -> bool:
        self._point()
        return self.house.memory.remove(task)

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> Page:
        self._read()
        return self.house.memory.heads(cursor=cursor, limit=limit)

    def _read(self) -> None:
        self._point()
        if self.house.read_fails(self.actor):
            raise StoreUnavailable("the read failed")

    def _point(self) -> None:
        self.house.disturb(self.actor)
        self.actor.pause()


class SimulatedQueue:
    """Messages get lost, doubled and overtaken."""

    def __init__(self, house: "House", actor: Actor) -> None:
        self.house = house
        self.actor = actor

    def send(self, task_id: str, n: int) -> None:
        self.house.disturb(self.actor)
        self.actor.pause()
        self.house.send(task_id, n)


class House:
    """One deployment in one world."""

    def __init__(self, world: World, mutation: Mutation) -> None:
        self.world = world
        self.mutation = mutation
        self.memory = mutation.store()
        self.ledger = Ledger(self.memory, POLICIES)
        self.messages: list[tuple[str, int]] = []
        self.started: set[str] = set()
        self.clients = 0
        self.queue_is_dead = world.chance(0.05)

    # ---- what befalls processes

    @property
    def chaos(self) -> bool:
        return self.world.now - START < CHAOS

    def disturb(self, actor: Actor) -> None:
        """At a call: crash, pause for longer than a lease, or be cut off from the store for a while."""
        if not self.chaos:
            return
        dice = self.world.dice.random()
        if dice < 0.008:
            self.world.note(f"{actor.name} crashes")
            actor.kill()
        elif dice < 0.018:
            self.world.note(f"{actor.name} stands still")
            actor.sleep(self.world.seconds(1, 150))
        elif dice < 0.034:
            self.world.note(f"{actor.name} is cut off")
            actor.cut_off_until = self.world.now + self.world.seconds(10, 200)

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
        return self.world.now < actor.cut_off_until or (self.chaos and self.world.chance(0.03))

    def write(self, actor: Actor, change: Change) -> Task:
        task = self.memory.apply(change)
        self.world.note(f"{actor.name} {type(change).__name__} {task.task_id} v{task.version} {task.status}")
        self.ledger.applied(change, self.world.now)
        return task

    def apply_later(self, change: Change) -> None:
        """A write whose sender gave up waiting arrives after all."""

        def arrive(actor: Actor) -> None:
            try:
                self.write(actor, change)
            except REFUSED:
                return

        self.world.spawn("late", arrive, after=self.world.seconds(0, 90))

    def send(self, task_id: str, n: int) -> None:
        copies = 0 if self.queue_is_dead else 1
        if self.chaos and not self.queue_is_dead:
            if self.world.chance(0.1):
                raise StoreUnavailable("the queue did not take the message")
            copies = self.world.dice.choice((0, 1, 1, 1, 1, 1, 2, 3))
        self.messages += [(task_id, n)] * copies

    # ---- processes

    def service(self, actor: Actor) -> TaskService:
        return TaskService(
            SimulatedStore(self, actor), POLICIES, SimulatedQueue(self, actor), clock=actor.clock, nonce=actor.nonce
        )

    def for_ever(self, kind: str, work: Callable[[Actor], None], after: timedelta = timedelta(0)) -> None:
        """A process that is started again whenever it crashed, as any service manager would."""

        def supervised(actor: Actor) -> None:
            try:
                work(actor)
            finally:
                self.for_ever(kind, work, self.world.seconds(1, 60))

        if not self.closing:
            self.world.spawn(kind, supervised, after=after)

    closing = False

    def open(self) -> None:
        """Start every process of the deployment, and its callers."""
        self.for_ever("sweeper", self.sweeper)
        self.for_ever("sweeper", self.sweeper)
        self.for_ever("dispatcher", self.dispatcher)
        if not self.queue_is_dead:
            self.for_ever("worker", self.worker, self.world.seconds(0, 120))
        tasks = [f"task-{n}" for n in range(1 + self.world.dice.randrange(3))]
        for task_id in tasks:
            for _ in range(1 + self.world.dice.randrange(2)):
                self.clients += 1
                self.world.spawn("client", lambda actor, task_id=task_id: self.client(actor, task_id))

    def sweeper(self, actor: Actor) -> None:
        service = self.service(actor)
        while True:
            actor.sleep(self.world.seconds(4, 15))
            for entry in attempted(lambda: service.store.due(actor.clock())) or ():
                attempted(lambda entry=entry: service.look_again(entry.task_id))

    def dispatcher(self, actor: Actor) -> None:
        while True:
            actor.sleep(self.world.seconds(0.1, 3))
            while self.messages:
                at = self.world.dice.randrange(len(self.messages))
                task_id, n = self.messages[at]
                self.disturb(actor)
                actor.pause()
                name = f"{task_id}-{n}"
                if name not in self.started:  # running or closed: the name is taken
                    self.started.add(name)
                    self.world.spawn(
                        "execution", lambda a, task_id=task_id, name=name: self.execution(a, task_id, name)
                    )
                if (task_id, n) in self.messages:
                    self.messages.remove((task_id, n))

    def execution(self, actor: Actor, task_id: str, name: str) -> None:
        """Acquire → work → wait until due → acquire, as the state machine does."""
        service = self.service(actor)
        for _ in range(5):
            self.hold(actor, task_id, name)
            task = patiently(actor, lambda: service.get(task_id))
            if task is None or task.next_scheduled_run_ts is None:
                return
            actor.sleep(max(task.next_scheduled_run_ts - actor.clock(), timedelta(0)))

    def worker(self, actor: Actor) -> None:
        """The driver without Step Functions: a process that leases what is due."""
        service = self.service(actor)
        while True:
            actor.sleep(self.world.seconds(15, 60))
            for entry in attempted(lambda: service.store.due(actor.clock())) or ():
                self.hold(actor, entry.task_id, actor.name)

    def hold(self, actor: Actor, task_id: str, owner: str) -> None:
        """Acquire a task, work on it, and end the attempt one way or another."""
        service = self.service(actor)
        task = patiently(actor, lambda: service.acquire(task_id, owner, lasting))
        if task is None or task.lease_owner != owner:
            return
        attempt = task.attempt_count
        try:
            self.work(actor, service, task)
        except LeaseLost:
            self.world.note(f"{actor.name} lost attempt {attempt} of {task_id}")

    def work(self, actor: Actor, service: TaskService, task: Task) -> None:
        task_id, attempt = task.task_id, task.attempt_count
        segment = PlanSegment(id=f"{attempt}", sha256="00")
        believed = task.lost_not_before or actor.clock()
        planned = patiently(actor, lambda: service.publish_plan(task_id, attempt, segment, seen=0, files_planned=1))
        if planned is None or self.errs(actor, service, task, 0.15):
            return
        if patiently(actor, lambda: service.start(task_id, attempt, first_delete=True)) is None:
            return
        for _ in range(self.world.dice.choice((1, 2, 3, 5, 12))):
            for _ in range(self.world.dice.randrange(1, 8)):
                actor.sleep(self.world.seconds(0.2, 4))
                if actor.clock() >= believed - self.mutation.drift_margin:
                    self.world.note(f"{actor.name} stops by itself")
                    return
                self.ledger.delete(task_id, attempt, actor.name)
            beat = attempted(lambda: service.heartbeat(task_id, attempt, lasting))
            if beat is None:
                continue
            if beat.cancel_requested:
                patiently(actor, lambda: service.give_back(task_id, attempt, STOPPED))
                return
            believed = beat.lost_not_before or believed
        if not self.errs(actor, service, task, 0.2):
            patiently(actor, lambda: service.succeed(task_id, attempt, f"attempt {attempt}"))

    def errs(self, actor: Actor, service: TaskService, task: Task, probability: float) -> bool:
        """Whether the attempt ends in an error here."""
        if not self.world.chance(probability):
            return False
        kind = self.world.dice.choice((ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.PERMANENT))
        kind = self.world.dice.choice((kind, ErrorClass.TRANSIENT, ErrorClass.HANDED_OVER))
        error = AttemptError(kind.name, "it broke", kind)
        patiently(actor, lambda: service.give_back(task.task_id, task.attempt_count, error))
        return True

    def client(self, actor: Actor, task_id: str) -> None:
        """Submits a task, waits for its outcome, and perhaps wants it again."""
        try:
            self.call(actor, task_id)
        finally:
            self.clients -= 1

    def call(self, actor: Actor, task_id: str) -> None:
        service = self.service(actor)
        first = first_version(task_id, actor, synchronous=self.world.chance(0.5))
        if self.submit(actor, service, first) is None:
            return
        self.ledger.accepted.add(task_id)
        attempted(lambda: service.dispatch(task_id))
        cancels = self.world.dice.choice((0, 0, 0, 0.02, 0.3))
        for _ in range(self.world.dice.randrange(4)):
            outcome = self.outcome(actor, service, task_id, cancels)
            if outcome is None or not self.chaos:
                return
            self.ledger.told(outcome)
            again = patiently(actor, lambda: service.change(task_id, resubmitted))
            if again is None:
                return
            attempted(lambda: service.dispatch(task_id))
        outcome = self.outcome(actor, service, task_id, cancels=0)
        if outcome is not None:
            self.ledger.told(outcome)

    def submit(self, actor: Actor, service: TaskService, first: Task) -> Task | None:
        for _ in range(20):
            try:
                return service.store.apply(Create(first))
            except TaskExists as exists:
                return exists.stored
            except (StoreUnavailable, OutcomeUnknown):
                actor.sleep(self.world.seconds(0.1, 5))
        return None

    def outcome(self, actor: Actor, service: TaskService, task_id: str, cancels: float) -> Task | None:
        for _ in range(2000):
            if self.world.chance(cancels):
                attempted(lambda: service.cancel(task_id))
            actor.sleep(self.world.seconds(0.1, self.world.dice.choice((3, 60))))
            task = attempted(lambda: service.get(task_id))
            if task is not None and task.is_terminal:
                return task
        return None

    def is_quiet(self) -> bool:
        """Whether nothing can happen any more: no client waits, every task has an outcome."""
        heads = self.memory._heads.values()
        return not self.chaos and self.clients == 0 and all(head.is_terminal for head in heads)


def lasting(now: datetime) -> Lease:
    return Lease.lasting(LEASE, now)


def attempted(act: Callable[[], T]) -> T | None:
    """Once; None when the store or the queue did not play along."""
    try:
        return act()
    except (StoreUnavailable, OutcomeUnknown, TaskNotFound):
        return None


def patiently(actor: Actor, act: Callable[[], T]) -> T | None:
    """Some tries, as the state machine's Retry would; LeaseLost ends them."""
    for n in range(5):
        try:
            return act()
        except (StoreUnavailable, OutcomeUnknown):
            actor.sleep(timedelta(seconds=2**n))
        except TaskNotFound:
            return None
    return None


def first_version(task_id: str, actor: Actor, *, synchronous: bool) -> Task:
    now = actor.clock()
    return Task(
        task_id=task_id,
        task_type="TABLE_PURGE",
        task_payload="{}",
        received_timestamp=now,
        last_status_change_ts=now,
        created_ts=now,
        next_scheduled_run_ts=now,
        due_at=now + POLICIES.dispatch.grace,
        nonce=actor.nonce(),
        synchronous=synchronous,
    )


def resubmitted(task: Task, now: datetime) -> Task:
    if not task.is_terminal:
        return task
    return t.resubmit(
        task,
        now,
        payload="{}",
        synchronous=False,
        grace=POLICIES.dispatch.grace,
        new_plan=task.status is Status.SUCCESS,
    )
