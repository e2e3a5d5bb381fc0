"""Persistence in one process: object types, one cache, one node id, and a store for each catalog."""

import random
import time
from collections.abc import Callable
from typing import Any, Final

from polaris_persistence.backends.base import Backend, ReferenceKey
from polaris_persistence.catalogs.locations import LOCATION_TYPE
from polaris_persistence.catalogs.names import NameCache
from polaris_persistence.catalogs.realms import CATALOG_TYPE, REALM_TYPE, Realms
from polaris_persistence.commits.entities import HEAD_TYPE
from polaris_persistence.commits.feed import NAMES_TYPE
from polaris_persistence.commits.waiting import WAITING_TYPES
from polaris_persistence.iceberg.objects import ICEBERG_TYPES
from polaris_persistence.ids.nodes import NODE_TYPE, NodeLeasePolicy, NodeLeases
from polaris_persistence.ids.snowflake import IdGenerator
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.maintenance.sweep import MAINTENANCE_TYPES, RealmMaintenance
from polaris_persistence.objects.cache import Cache, CacheStatistics
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.times import BoundedClock
from polaris_persistence.objects.types import ObjectType, ObjectTypes, installed
from polaris_persistence.objects.updateable import Updateables

OWN_TYPES: Final[tuple[ObjectType[Any], ...]] = (
    CATALOG_TYPE,
    HEAD_TYPE,
    LOCATION_TYPE,
    NAMES_TYPE,
    NODE_TYPE,
    REALM_TYPE,
    STRIPES,
    *WAITING_TYPES,
    *MAINTENANCE_TYPES,
    *ICEBERG_TYPES,
)
"""The types of this package; `installed` adds those of other packages."""


class PersistenceProcess:
    """Persistence in one process; thread-safe. `close` releases the node id, which the first id leases.

    With `overlaps_lease` the first commit leases it in another thread while it reads the reference and the index.

    `now_ns` is the wall clock in nanoseconds since 1970; it times what is written, corrected by the time of the
    database's answers. `clock` counts seconds and never goes back. The names of catalogs are cached for
    `names_cached_for` seconds (NameCache). `unreadable` is called once for each waiting change that this process finds
    and cannot decode.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        types: ObjectTypes | None = None,
        cache_bytes: int = 64 * 2**20,
        references_cached_for: float = 0,
        names_cached_for: float = 5,
        leases: NodeLeasePolicy = NodeLeasePolicy(),  # noqa: B008 - frozen
        now_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw: random.Random | None = None,
        unreadable: Callable[[ReferenceKey], object] = lambda _reference: None,
        overlaps_lease: bool = True,
    ) -> None:
        self._overlaps_lease = overlaps_lease
        self._unreadable = unreadable
        draw = draw or random.SystemRandom()
        self.backend = backend
        self.types = types or installed(OWN_TYPES)
        self._cache: Cache[Any, Any] = Cache(cache_bytes, clock=clock)
        self._references_cached_for = references_cached_for
        self._names = NameCache(names_cached_for, clock=clock)
        self._now_ns = now_ns
        self._clock = clock
        self._now_us = BoundedClock(lambda: now_ns() // 1_000, backend.estimated_time)
        self._leases = NodeLeases(
            Updateables(backend, self.types, self._now_us),
            now_ms=self._now_ms,
            shuffled=lambda nodes: draw.sample(nodes, len(nodes)),
            policy=leases,
            sleep=sleep,
        )
        self._new_id = IdGenerator(self._leases, now_ms=self._now_ms, sleep=sleep, another=self._leases.another)

    def store(self, realm: str, catalog: str) -> CatalogStore:
        """Return the store of a catalog; all catalogs share one cache."""
        return self._store(realm, catalog, self._cache)

    def realms(self, **settings: Any) -> Realms:
        """Return the realms; `settings` go to their committers."""
        return Realms(self.backend, self.store, names=self._names, **settings)

    def uncached_store(self, realm: str, catalog: str) -> CatalogStore:
        """Return the store of a catalog without the cache: maintenance sees what is stored and evicts nothing."""
        return self._store(realm, catalog, Cache[Any, Any](0, clock=self._clock))

    def maintenance(self, policy: SweepPolicy = SweepPolicy()) -> RealmMaintenance:  # noqa: B008 - frozen
        return RealmMaintenance(self.backend, self.uncached_store, policy=policy, clock=self._clock)

    def statistics(self) -> CacheStatistics:
        return self._cache.statistics()

    def close(self) -> None:
        """Release the node id; no id may be made after that."""
        self._leases.release(self._new_id.last_timestamp)

    def _store(self, realm: str, catalog: str, cache: Cache[Any, Any]) -> CatalogStore:
        return CatalogStore(
            self.backend,
            realm=realm,
            catalog=catalog,
            types=self.types,
            cache=cache,
            new_id=self._new_id,
            now_us=self._now_us,
            clock=self._clock,
            references_cached_for=self._references_cached_for,
            unreadable=self._unreadable,
            expect_ids=self._expect_ids,
        )

    def _expect_ids(self) -> None:
        if self._overlaps_lease:
            self._leases.begin()

    def _now_ms(self) -> int:
        return self._now_ns() // 1_000_000
