"""Object types, clocks and stores for tests of persistence."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import Field

from polaris_persistence.backends.base import Backend
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.commits.commits import Changed, CommitAttempt, CommitObject
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.ids.snowflake import NODES, SEQUENCES, IdParts
from polaris_persistence.objects.cache import Cache
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import Fetch, ObjectType, ObjectTypes
from tests.kit.clocks import MicrosecondClock


class CommitterKilled(BaseException):
    """The death of a process that commits; not an Exception, so that nothing handles it."""


class Entity(PersistedModel):
    name: str
    number: int = 0


class Counter(PersistedModel):
    count: int = 0


class Head(CommitObject):
    """A head that names entities directly, without an index."""

    entities: dict[str, ObjectRef] = Field(default_factory=dict)


def head_links(head: Head, _fetch: Fetch) -> Iterator[ObjectRef]:
    return iter(head.entities.values())


ENTITY = ObjectType("entity", Entity)
COUNTER = ObjectType("counter", Counter, mutable=True, expires_after=lambda value: float(value.count))
HEAD = ObjectType("head", Head, links=head_links)
TYPES = ObjectTypes([ENTITY, COUNTER, HEAD])


def split_id(id_: int) -> IdParts:
    return IdParts(id_ >> 22, id_ >> 12 & (NODES - 1), id_ & (SEQUENCES - 1))


class CountingBackend(MemoryBackend):
    """A store that counts its calls, each a round trip, and raises the faults set for the next calls of a name."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.rows = 0
        self.fail_before: dict[str, list[Exception | None]] = {}
        self.fail_after: dict[str, list[Exception | None]] = {}
        self.meanwhile: dict[str, list[Callable[[], object]]] = {}
        super().__init__(before=self._on_before, after=self._on_after)

    def _on_before(self, operation: str) -> None:
        if operation.endswith("_row"):
            self.rows += 1
            return
        self.calls.append(operation)
        if self.meanwhile.get(operation):
            self.meanwhile[operation].pop(0)()
        self._raise(self.fail_before, operation)

    def _on_after(self, operation: str) -> None:
        self._raise(self.fail_after, operation)

    @staticmethod
    def _raise(faults: dict[str, list[Exception | None]], operation: str) -> None:
        if faults.get(operation) and (fault := faults[operation].pop(0)):
            raise fault

    def stored_ids(self, type_: str) -> set[int]:
        return {key.id for key in self._objects if key.type == type_}


def store_on(backend: Backend, clock: MicrosecondClock | None = None, **more: Any) -> CatalogStore:
    """Return a store of catalog c in realm r, with a separate cache as in another process."""
    clock = clock or MicrosecondClock()
    ids = more.pop("ids", None) or itertools.count(1_000_000).__next__
    cache = Cache(more.pop("capacity", 10_000_000), clock=clock.seconds)
    settings: dict[str, Any] = {"realm": "r", "catalog": "c", "types": TYPES, **more}
    return CatalogStore(backend, cache=cache, new_id=ids, now_us=clock.now_us, **settings)


def committer_on(store: CatalogStore, clock: MicrosecondClock | None = None, **more: Any) -> Committer[Head]:
    clock = clock or MicrosecondClock()
    settings: dict[str, Any] = {"retry": CommitRetries(tries=8), "draw": lambda: 0.5, **more}
    return Committer(store, "main", Head, sleep=clock.sleep, clock=clock.seconds, **settings)


def put(name: str, number: int) -> Callable[[CommitAttempt[Head]], Changed[Head, ObjectRef]]:
    def change(attempt: CommitAttempt[Head]) -> Changed[Head, ObjectRef]:
        head = attempt.head or Head()
        ref = attempt.write(Entity(name=name, number=number))
        return Changed(head.model_copy(update={"entities": {**head.entities, name: ref}}), ref)

    return change


def add(name: str, amount: int = 1) -> Callable[[CommitAttempt[Head]], Changed[Head, int]]:
    """Return a change that reads an entity and writes it with its number raised."""

    def change(attempt: CommitAttempt[Head]) -> Changed[Head, int]:
        head = attempt.head or Head()
        source = head.entities.get(name)
        number = 0
        if source:
            found = attempt.fetch(source, Entity)
            assert found
            number = found.value.number
        ref = attempt.write_once(name, source, lambda: Entity(name=name, number=number + amount))
        entities = {**head.entities, name: ref}
        return Changed(head.model_copy(update={"entities": entities}), number + amount)

    return change
