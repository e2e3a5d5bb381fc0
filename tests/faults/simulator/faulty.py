"""What befalls the calls of simulated processes: they are overtaken, fail, lose their answer, or arrive too late."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from delegation.idempotency.errors import RecordConflict
from delegation.idempotency.record import Record
from delegation.idempotency.store import RecordPage, RecordWrite
from delegation.tasks.errors import OutcomeUnknown, RevisionConflict, StaleTask, StoreUnavailable, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import DueEntry, TaskChange, TaskHeads
from tests.faults.simulator.scheduler import Actor

if TYPE_CHECKING:
    from tests.faults.simulator.house import House

T = TypeVar("T")
REFUSED = (StaleTask, RevisionConflict, TaskExists)
TRIES = 4


class InvocationDied(BaseException):
    """A Lambda invocation crashed or was ended at its time-out; its execution goes on. No code may catch it."""


class Faulty:
    """What one process's calls have in common; writes without an answer are repeated, as the real stores do."""

    def __init__(self, house: "House", actor: Actor) -> None:
        self.house = house
        self.actor = actor

    def point(self) -> None:
        self.house.disturb(self.actor)
        self.actor.pause()

    def read(self) -> None:
        self.point()
        if self.house.read_fails(self.actor):
            raise StoreUnavailable("the read failed")

    def written(self, write: Callable[[], T], change: TaskChange | None = None) -> T:
        """`write` as often as it takes; whoever is refused what it had written itself is no loser of a race."""
        unclear = False
        for _ in range(TRIES):
            self.point()
            fault = self.house.fault_of_a_write(self.actor)
            if fault == "refused":
                continue
            if fault in {"lost", "late"}:
                unclear = True
                if fault == "late":
                    self.house.apply_later(write)
                continue
            try:
                answer = write()
            except REFUSED as error:
                if change is not None:
                    self.house.ledger.refused(change, error)
                self.point()
                raise
            if fault == "answer lost":
                unclear = True
                continue
            self.point()
            return answer
        raise OutcomeUnknown("no clear answer") if unclear else StoreUnavailable("nothing was taken")


class SimulatedStore(Faulty):
    """TaskStore as one process sees it."""

    def apply(self, change: TaskChange) -> Task:
        return self.written(lambda: self.house.write(self.actor, change), change)

    def get(self, task_id: str) -> Task | None:
        self.read()
        return self.house.memory.get(task_id)

    def get_version(self, task_id: str, version: int) -> Task | None:
        self.read()
        return self.house.memory.get_version(task_id, version)

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        self.read()
        return self.house.memory.history(task_id, after=after, limit=limit)

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        self.read()
        return self.house.memory.due(now, limit=limit, shards=shards)

    def remove(self, task: Task) -> bool:
        return self.written(lambda: self.house.remove(self.actor, task))

    def forget(self, task_id: str, below: int) -> int:
        return self.written(lambda: self.house.forget(self.actor, task_id, below))

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        self.read()
        return self.house.memory.heads(cursor=cursor, limit=limit)


class SimulatedRecords(Faulty):
    """IdempotencyStore as one process sees it."""

    def get(self, scope: str) -> Record | None:
        self.read()
        return self.house.records.get(scope)

    def put(self, write: RecordWrite) -> Record:
        return self.written(lambda: self.house.records.put(write))

    def accept(self, change: TaskChange, write: RecordWrite) -> Task:
        return self.written(lambda: self.house.accept(self.actor, change, write), change)

    def without_expiry(self, *, cursor: str | None = None, limit: int = 100) -> RecordPage:
        self.read()
        return self.house.records.without_expiry(cursor=cursor, limit=limit)

    def remove_expired(self, now: datetime, limit: int) -> int:
        return self.written(lambda: self.house.records.remove_expired(now, limit))


class SimulatedQueue(Faulty):
    """Messages get lost, doubled and overtaken."""

    def send(self, task_id: str, n: int) -> None:
        self.point()
        self.house.send(task_id, n)


LATE_REFUSALS = (*REFUSED, RecordConflict)
