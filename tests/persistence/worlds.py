"""A store in memory with catalogs on it, changes of named entities, and maintenance on a clock moved by hand."""

import itertools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from polaris_persistence.backends.base import Backend
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.ids.snowflake import EPOCH_MS, join_id
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.maintenance.sweep import RealmMaintenance
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, CountingBackend, Entity, store_on

ENTITY_TYPES = ObjectTypes([*OWN_TYPES, ENTITY])
T = TypeVar("T")
Change = Callable[[CommitAttempt[EntityHead]], Changed[EntityHead, T]]
_NODES = itertools.count(1)


class Catalogs:
    """A store with the reference `main` of a catalog; its time is that of the clock."""

    types: ClassVar[ObjectTypes] = ENTITY_TYPES
    policy: ClassVar[dict[str, Any]] = {"grace": 1_000.0, "lost_after": 100.0}

    def __init__(self) -> None:
        self.backend = CountingBackend()
        self.clock = MicrosecondClock()
        self.backend.now_us = self.clock.now_us
        self._ids = itertools.count(1)
        self._lost = itertools.count()
        self.store = self.store_of()
        self.store.create_reference("main")

    def store_of(self, realm: str = "r", catalog: str = "c") -> CatalogStore:
        """Return a catalog as a new process has it, without a cached object."""
        ids = self._ids.__next__
        return store_on(self.backend, self.clock, ids=ids, realm=realm, catalog=catalog, types=self.types)

    def lose_swaps(self, count: int, rival: Callable[[int], object]) -> None:
        """Have a rival commit before each of the next swaps; it is given a number that is its own."""

        def loses() -> None:
            left = self.backend.meanwhile.pop("replace_reference", [])
            rival(next(self._lost))
            self.backend.meanwhile["replace_reference"] = left

        self.backend.meanwhile["replace_reference"] = [loses] * count

    def maintenance(self, **policy: Any) -> RealmMaintenance:
        settings = SweepPolicy(**{**self.policy, **policy})
        return RealmMaintenance(self.backend, self.store_of, policy=settings, clock=self.clock.seconds)

    def sweep(self, runs: int = 1, **policy: Any) -> int:
        """Run maintenance, each time a grace period later, also while a call is under way; return what was deleted."""
        meanwhile, self.backend.meanwhile = self.backend.meanwhile, {}
        deleted = 0
        for _ in range(runs):
            self.clock.advance(self.policy["grace"] + 2)
            report = self.maintenance(**policy).run()
            assert (report.complete, report.refused, report.not_before) == (True, (), None)
            deleted += report.deleted
        self.backend.meanwhile = meanwhile
        return deleted


class TimedCatalogs(Catalogs):
    """Catalogs whose ids have the time in them; every call of the store takes 2 ms."""

    def __init__(self) -> None:
        super().__init__()
        plain = self.backend.before

        def before(operation: str) -> None:
            if not operation.endswith("_row"):
                self.clock.advance(0.002)
            plain(operation)

        self.backend.before = before

    def store_of(self, realm: str = "r", catalog: str = "c") -> CatalogStore:
        ids = ids_of_a_node(self.clock)
        return store_on(self.backend, self.clock, ids=ids, realm=realm, catalog=catalog, types=self.types)

    def once_a_change_waits(self, then: Callable[[], object]) -> None:
        """Have `then` happen after the next call by which a change waits."""
        plain = self.backend.after
        done: list[str] = []

        def after(operation: str) -> None:
            plain(operation)
            if operation == "add_waiting" and not done:
                done.append(operation)
                then()

        self.backend.after = after


def process_on(backend: Backend, clock: MicrosecondClock, off: float = 0.0, **more: Any) -> PersistenceProcess:
    """Return the persistence of a new process, whose wall clock is `off` seconds off."""
    settings: dict[str, Any] = {"types": ENTITY_TYPES, **more}
    return PersistenceProcess(
        backend,
        now_ns=lambda: clock.us * 1_000 + round(off * 1e9),
        clock=clock.seconds,
        sleep=clock.sleep,
        **settings,
    )


def ids_of_a_node(clock: MicrosecondClock) -> Callable[[], int]:
    """Return what makes the ids of a new process, in which their time is that of the clock."""
    node, sequence = next(_NODES) % 1_024, itertools.count()
    return lambda: join_id(clock.now_ms() - EPOCH_MS, node, next(sequence) % 4_096)


def entity_change(act: Callable[[EntityChanges, CommitAttempt[EntityHead]], T]) -> Change[T]:
    """Return a change of entities, which `act` makes; its result is that of the commit."""

    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, T]:
        entities = EntityChanges(attempt)
        result = act(entities, attempt)
        return Changed(entities.head, result)

    return change


def read_entities(store: CatalogStore) -> dict[str, Any]:
    """Return the values of the newest head by the last elements of their names, None for one that is gone."""
    head = Committer(store, "main", EntityHead).head()
    if head is None:
        return {}
    items = dict(head.value.working_index(store.fetch_many).items())
    found = store.fetch_many(items.values())
    return {key.elements()[-1]: one and one.value for key, one in zip(items, found, strict=True)}


def naming(name: str, text: str = "") -> Change[Any]:
    return entity_change(lambda entities, _attempt: entities.put(IndexKey.of(name), Entity(name=text or name)))
