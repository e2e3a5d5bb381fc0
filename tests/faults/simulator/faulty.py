"""Faults of simulated calls: they fail, lose their answer, arrive late, or run after calls of other processes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from delegation.idempotency.store import Record, RecordConflict, RecordPage, RecordWrite
from delegation.tasks.errors import OutcomeUnknown, RevisionConflict, StaleTask, StoreUnavailable, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Child, DueEntry, Received, ReceivedPage, TaskChange, TaskHeads
from tests.faults.simulator.scheduler import Actor

if TYPE_CHECKING:
    from tests.faults.simulator.deployment import Deployment

T = TypeVar("T")
REFUSED = (StaleTask, RevisionConflict, TaskExists)
TRIES = 4


class InvocationDied(BaseException):
    """A Lambda invocation crashed or timed out; its execution continues. No code of the service may catch it."""


class Faulty:
    """Base of one process's calls; writes without an answer are repeated, as the real stores do."""

    def __init__(self, deployment: "Deployment", actor: Actor) -> None:
        self.deployment = deployment
        self.actor = actor

    def point(self) -> None:
        self.deployment.disturb(self.actor)
        self.actor.pause()

    def read(self) -> None:
        self.point()
        if self.deployment.read_fails(self.actor):
            raise StoreUnavailable("the read failed")

    def written(self, write: Callable[[], T], change: TaskChange | None = None) -> T:
        """Repeat `write` until it is answered; a refusal after it was applied violates an invariant."""
        unclear = False
        for _ in range(TRIES):
            self.point()
            fault = self.deployment.fault_of_a_write(self.actor)
            if fault == "refused":
                continue
            if fault in {"lost", "late"}:
                unclear = True
                if fault == "late":
                    self.deployment.apply_later(write)
                continue
            try:
                answer = write()
            except REFUSED as error:
                if change is not None:
                    self.deployment.ledger.refused(change, error)
                self.point()
                raise
            if fault == "answer lost":
                unclear = True
                continue
            self.point()
            return answer
        raise OutcomeUnknown("no clear answer") if unclear else StoreUnavailable("nothing was written")


class SimulatedStore(Faulty):
    """TaskStore of one process."""

    def apply(self, change: TaskChange) -> Task:
        return self.written(lambda: self.deployment.write(self.actor, change), change)

    def get(self, task_id: str) -> Task | None:
        self.read()
        return self.deployment.memory.get(task_id)

    def get_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        self.read()
        return self.deployment.memory.get_many(task_ids)

    def create_all(self, tasks: Sequence[Task]) -> bool:
        del tasks
        return False  # each is created alone, which the ledger checks

    def get_version(self, task_id: str, version: int) -> Task | None:
        self.read()
        return self.deployment.memory.get_version(task_id, version)

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        self.read()
        return self.deployment.memory.history(task_id, after=after, limit=limit)

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        self.read()
        return self.deployment.memory.due(now, limit=limit, shards=shards)

    def remove(self, task: Task) -> bool:
        return self.written(lambda: self.deployment.remove(self.actor, task))

    def forget(self, task_id: str, below: int) -> int:
        return self.written(lambda: self.deployment.forget(self.actor, task_id, below))

    def children(self, task_id: str) -> Sequence[Child]:
        self.read()
        return self.deployment.memory.children(task_id)

    def parents(self, task_id: str) -> Mapping[str, int]:
        self.read()
        return self.deployment.memory.parents(task_id)

    def disown(self, task_id: str, up_to_attempt: int) -> int:
        return self.written(lambda: self.deployment.memory.disown(task_id, up_to_attempt))

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        self.read()
        return self.deployment.memory.heads(cursor=cursor, limit=limit)

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        self.read()
        return self.deployment.memory.received(which, before=before, limit=limit)


class SimulatedRecords(Faulty):
    """IdempotencyStore of one process."""

    def get(self, scope: str) -> Record | None:
        self.read()
        return self.deployment.records.get(scope)

    def put(self, write: RecordWrite) -> Record:
        return self.written(lambda: self.deployment.records.put(write))

    def accept(self, change: TaskChange, write: RecordWrite) -> Task:
        return self.written(lambda: self.deployment.accept(self.actor, change, write), change)

    def without_expiry(self, *, cursor: str | None = None, limit: int = 100) -> RecordPage:
        self.read()
        return self.deployment.records.without_expiry(cursor=cursor, limit=limit)

    def remove_expired(self, now: datetime, limit: int) -> int:
        return self.written(lambda: self.deployment.records.remove_expired(now, limit))


class SimulatedQueue(Faulty):
    """DispatchQueue of one process; messages are lost, repeated and reordered."""

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        self.point()
        self.deployment.send(task_id, n)


LATE_REFUSALS = (*REFUSED, RecordConflict)
