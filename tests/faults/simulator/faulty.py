"""Faults of simulated calls: they fail, lose their answer, arrive late, or run after calls of other processes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from delegation.idempotency.store import Record, RecordConflict, RecordPage, RecordWrite
from delegation.tasks.errors import OutcomeUnknown, RevisionConflict, StaleTask, StoreUnavailable, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskChange
from tests.faults.simulator.scheduler import Actor

if TYPE_CHECKING:
    from tests.faults.simulator.deployment import Deployment

T = TypeVar("T")
REFUSED = (StaleTask, RevisionConflict, TaskExists)
TRIES = 4
READS = {"children", "due", "get", "get_many", "get_version", "heads", "history", "parents", "received"}


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

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in READS:
            raise AttributeError(name)

        def read(*arguments: Any, **named: Any) -> Any:
            self.read()
            return getattr(self.deployment.memory, name)(*arguments, **named)

        return read

    def apply(self, change: TaskChange) -> Task:
        return self.written(lambda: self.deployment.write(self.actor, change), change)

    def create_all(self, tasks: Sequence[Task]) -> bool:
        del tasks
        return False  # each is created alone, which the ledger checks

    def remove(self, task: Task) -> bool:
        return self.written(lambda: self.deployment.remove(self.actor, task))

    def forget(self, task_id: str, below: int) -> int:
        return self.written(lambda: self.deployment.forget(self.actor, task_id, below))

    def disown(self, task_id: str, up_to_attempt: int) -> int:
        return self.written(lambda: self.deployment.memory.disown(task_id, up_to_attempt))


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
