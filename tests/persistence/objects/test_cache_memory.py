"""The cache holds what its setting says: measured with tracemalloc on decoded objects of every kind."""

import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from polaris_persistence.backends.base import Locator, ObjectKey, StoredObject
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import OWN_TYPES
from polaris_persistence.commits.entities import EntityHead
from polaris_persistence.iceberg.objects import IcebergMetadata, IcebergSchema, IcebergSnapshot
from polaris_persistence.index.format import encode_head, encode_segment
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.stripes import IndexStripe
from polaris_persistence.objects.cache import Cache
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel, encode
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, Entity
from tests.persistence.iceberg.iceberg_fixtures import SCHEMA, snapshot_json_of

TYPES = ObjectTypes([*OWN_TYPES, ENTITY])
SMALL = 2**20


class OneValue(MemoryBackend):
    """A store in which every object has the same bytes, so that only decoded objects take memory."""

    def __init__(self, value: bytes) -> None:
        super().__init__()
        self.value = value

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        del consistent
        return {one.key: StoredObject(one.key, self.value, 0) for one in wanted}


def entries(count: int) -> list[tuple[bytes, ObjectRef | None]]:
    """Return index entries whose keys are those of a catalog with many namespaces."""
    names = (IndexKey.of(f"namespace_{number // 50:04}", f"table_{number:07}") for number in range(count))
    return [(bytes(key), ObjectRef("iceberg", (1 << 60) + number * 4_099)) for number, key in enumerate(names)]


def stripe() -> PersistedModel:
    return IndexStripe(data=encode_segment(entries(2_000)))


def head() -> PersistedModel:
    return EntityHead(seq=9, tail=tuple(range(1 << 60, (1 << 60) + 20)), index=encode_head((), entries(400)))


def state() -> PersistedModel:
    return IcebergMetadata(kind="table", fields={"a": 1}, sections=("refs",), index=encode_head((), entries(60)))


def snapshot() -> PersistedModel:
    return IcebergSnapshot(value=snapshot_json_of(5))


def schema() -> PersistedModel:
    return IcebergSchema(value=json.loads(SCHEMA.model_dump_json()))


def entity() -> PersistedModel:
    return Entity(name="x" * 40, number=1 << 40)


def used(found: Loaded[PersistedModel] | None) -> None:
    """Use an object as its readers do: what is decoded on first use is held from then on."""
    assert found is not None
    if isinstance(found.value, IndexStripe):
        found.value.entries()
    elif isinstance(found.value, EntityHead | IcebergMetadata):
        Index.load(found.value.index, lambda refs: []).get(IndexKey.of("a"))


def filled(value: PersistedModel, capacity: int) -> tuple[int, int]:
    """Return the bytes that a full cache holds by tracemalloc, and how many objects."""
    cache: Cache[object, object] = Cache(capacity, clock=MicrosecondClock().seconds)
    store = CatalogStore(
        OneValue(encode(value)), realm="realm", catalog="catalog", types=TYPES, cache=cache,
        new_id=itertools.count().__next__, now_us=MicrosecondClock().now_us,
    )  # fmt: skip
    type_ = TYPES.of(type(value)).name
    # The first ones warm up what is made once in a process.
    for number in range(5):
        used(store.fetch_many([ObjectRef(type_, number)])[0])
    tracemalloc.start()
    for number in itertools.count(100):
        used(store.fetch_many([ObjectRef(type_, number)])[0])
        held, _ = tracemalloc.get_traced_memory()
        if held > 2 * capacity or cache.statistics().entries < number - 110:
            break
    tracemalloc.stop()
    return held, cache.statistics().entries


@pytest.mark.parametrize("make", [stripe, head, state, snapshot, schema, entity], ids=lambda make: make.__name__)
def test_a_full_cache_takes_at_most_1_3_times_its_setting(make: Callable[[], PersistedModel]) -> None:
    held, count = filled(make(), SMALL)
    assert held <= 1.3 * SMALL
    # And it is not wasted by weighing too much.
    assert held >= 0.6 * SMALL
    assert count > 1
