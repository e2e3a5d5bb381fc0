"""A store that counts the batches of a read, its rows, and the read units that DynamoDB bills for them."""

import itertools
from collections.abc import Iterable

from polaris_persistence.backends.base import Locator, ObjectKey, StoredObject
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.commits.entities import HEAD_TYPE
from polaris_persistence.iceberg.layout import TABLE, Json
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import ICEBERG_TYPES, IcebergMetadata
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.persistence.builders import store_on

TYPES = ObjectTypes([HEAD_TYPE, STRIPES, *ICEBERG_TYPES])
ROW_BYTES = 90
UNIT_BYTES = 4_096


class MeteredBackend(MemoryBackend):
    """`batches` are calls of fetch_many, `units` 4 KB of a row: half a unit each for an eventually consistent read."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = self.rows = 0
        self.units = 0.0

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        found = super().fetch_many(wanted, consistent=consistent)
        self.batches += 1
        self.rows += len(found)
        self.units += sum(-(-(len(one.value) + ROW_BYTES) // UNIT_BYTES) for one in found.values()) * (
            1 if consistent else 0.5
        )
        return found

    def reset(self) -> None:
        self.batches = self.rows = 0
        self.units = 0.0

    def line(self) -> str:
        return f"{self.batches} batches, {self.rows} rows, {self.units:g} read units"


class MeteredTable:
    """A table in a catalog, to load in new processes."""

    def __init__(self, document: Json) -> None:
        self.backend = MeteredBackend()
        self._ids = itertools.count(1 << 60)
        store = self.process()
        new = ManagedMetadata.of(document, TABLE, store.fetch_many)
        state = new.finish(IndexPolicy(), lambda value: store.write([value])[0])
        [self.state] = store.write([state])
        self.backend.reset()

    def process(self) -> CatalogStore:
        return store_on(self.backend, ids=self._ids.__next__, types=TYPES, capacity=200_000_000)

    def load(self, store: CatalogStore) -> ManagedMetadata:
        found = store.fetch(ObjectRef(*self.state), IcebergMetadata)
        assert found is not None
        return ManagedMetadata(found.value, store.fetch_many)

    def save(self, store: CatalogStore, table: ManagedMetadata) -> None:
        state = table.finish(IndexPolicy(), lambda value: store.write([value])[0])
        [self.state] = store.write([state])
