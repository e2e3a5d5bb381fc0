"""Odd metadata of tables: accepted where it decides nothing, else an error with a type; own and a neighbour's."""

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from delegation.iceberg.metadata import parse_metadata
from delegation.iceberg.reach import Fetcher
from delegation.identifiers import is_stand_in
from delegation.polaris.client import loaded_table
from delegation.polaris.model import LoadedTable
from delegation.references.reading import read_references
from delegation.removal.expiry.errors import check_table
from delegation.removal.expiry.retention import Retention, decide
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.purge.context import PurgeResult
from delegation.removal.purge.run import purge_table
from delegation.storage.memory import MemoryObjectStore
from delegation.upkeep.health.model import ReadState
from delegation.upkeep.health.reading import ExpiryByRule, read_health
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import Lake, LakeSource, PurgedTables, busy_table, filled, identifier
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable

ODD: list[Any] = [None, True, False, 0, -1, 1.5, "", "x", [], [None], [1], ["x"], {}, {"x": None}, {"x": 1}, [[]], [{}]]
ABSENT = object()
CLEANING = Retention(older_than_ms=2**62, retain_last=1, clean_expired_metadata=True)


Place = tuple[str, ...]


def places(document: dict[str, Any]) -> Iterator[Place]:
    """Yield the members of a document, and those of the first object in each."""
    for name, value in document.items():
        yield (name,)
        inner = value[0] if isinstance(value, list) and value else value
        yield from ((name, below) for below in inner) if isinstance(inner, dict) else ()


def changed(document: dict[str, Any], place: Place, odd: Any) -> dict[str, Any]:
    """Return the document with another value at a place, or without the member."""
    document = copy.deepcopy(document)
    inner = document
    if len(place) > 1:
        inner = document[place[0]]
        inner = inner[0] if isinstance(inner, list) else inner
    del inner[place[-1]]
    if odd is not ABSENT:
        inner[place[-1]] = odd
    return document


def loaded(document: dict[str, Any], name: str = "t", pointer: str = "s3://lake/wh/t/metadata/v1.json") -> LoadedTable:
    return loaded_table(identifier(name), {"metadata": document, "metadata-location": pointer})


def typed(work: Callable[[], object]) -> None:
    """Do some work, which may raise an error of ours and no other."""
    try:
        work()
    except DelegationError:
        return


def grown(table: StoryTable) -> StoryTable:
    """Commit something of everything."""
    for _ in range(3):
        table.append(1)
    table.statistics(table.ids[0])
    table.partition_statistics(table.ids[1])
    table.tag("v1", table.ids[0], **{"max-ref-age-ms": 1})
    table.set(**{"write.data.path": "s3://lake/wh/t/elsewhere", "history.expire.max-snapshot-age-ms": "1"})
    return table


def put(table: StoryTable, document: dict[str, Any]) -> None:
    """Let the current metadata file have this document."""
    table.lake.put(table.pointer, json.dumps(document).encode())


def full(table: StoryTable) -> dict[str, Any]:
    specs = [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": []}]
    return table.document | {"partition-specs": specs, "default-spec-id": 0, "last-column-id": 1}


TABLE = grown(StoryTable.create(SweptTables().lake))
DOCUMENT = full(TABLE)
PLACES = sorted(places(DOCUMENT))


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_reading_odd_metadata_raises_typed_errors_alone(place: Place) -> None:
    store = MemoryObjectStore()
    store.objects = TABLE.lake.objects
    for odd in (*ODD, ABSENT):
        document = changed(DOCUMENT, place, odd)
        typed(lambda document=document: read_references(loaded(document, "t", TABLE.pointer), store, None))  # type: ignore[misc]
        typed(lambda document=document: _health(loaded(document, "t", TABLE.pointer), store))  # type: ignore[misc]


def _health(table: LoadedTable, store: MemoryObjectStore) -> object:
    fetcher = Fetcher(store, threads=1, checkpoint=lambda: None)
    now = datetime(2026, 11, 28, tzinfo=UTC)
    return read_health(table, fetcher, None, ReadState("", 0), rule=ExpiryByRule("1", _expirable), now=now)


def _expirable(document: Mapping[str, Any], now: datetime) -> frozenset[int]:
    return frozenset(decide(document, CLEANING, now_ms=int(now.timestamp() * 1000)).expired.snapshot_ids)


@pytest.mark.parametrize("place", PLACES, ids=".".join)
@pytest.mark.parametrize("operation", ["expiry", "removal"])
def test_work_on_odd_metadata_raises_typed_errors_alone(operation: str, place: Place) -> None:
    for odd in (*ODD, ABSENT):
        world: Any = ExpiringTables() if operation == "expiry" else SweptTables()
        table = grown(StoryTable.create(world.lake))
        ctx = world.context(table, CLEANING, dry_run=True) if operation == "expiry" else world.context(table)
        put(table, changed(full(table), place, odd))
        work = expire_snapshots if operation == "expiry" else remove_orphan_files
        typed(lambda: work(ctx))  # noqa: B023 - it is called at once


@pytest.mark.parametrize("place", PLACES, ids=".".join)
@pytest.mark.parametrize("is_own", [True, False])
def test_a_purge_beside_odd_metadata_raises_typed_errors_alone(place: Place, is_own: bool) -> None:
    for odd in (*ODD, ABSENT):
        typed(lambda: _purge(changed(DOCUMENT, place, odd), is_own=is_own))  # noqa: B023


class Given(LakeSource):
    """The source of a table that a catalog answers with this."""

    table: LoadedTable

    def load(self) -> LoadedTable:
        return self.table


def purged(bench: PurgedTables, table: LoadedTable | None, near: LoadedTable | None) -> PurgeResult:
    """Purge `t`, which a catalog answers with a table if it is given, beside another one if that is given."""
    ctx = bench.context("t")
    if table is not None:
        source = Given(bench.lake, "t")
        source.table = table
        ctx = dataclasses.replace(ctx, tables=source, table_uuid=table.table_uuid)
    others = [] if near is None else [Neighbour(near, ctx.store, certain=True)]
    return purge_table(dataclasses.replace(ctx, neighbours=lambda _roots: others))


def _purge(document: dict[str, Any], *, is_own: bool) -> None:
    bench = PurgedTables(lake=LAKE.copy())
    odd = loaded(document, "t" if is_own else "near", TABLE.pointer)
    purged(bench, odd if is_own else None, None if is_own else odd)


LAKE = Lake()
busy_table(LAKE, "t")


def test_properties_and_specs_that_decide_nothing_stop_nothing() -> None:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    for _ in range(3):
        table.append(1)
        table.delete(table.live()[0])
    odd = {"properties": {"a": None, "b": 7, "c": True}, "partition-specs": [{"fields": "x"}, 7]}
    put(table, table.document | odd)
    result = world.expire(table)
    assert result.files_deleted > 0
    assert world.lake.readable() == {"t": set()}


def without_uuid(bench: PurgedTables, name: str) -> None:
    """Take the uuid from every metadata file of a table."""
    objects, below = bench.lake.objects, f"wh/{name}/"
    for at in [at for at in objects if at[1].startswith(below) and at[1].endswith(".metadata.json")]:
        document = json.loads(objects[at]) | {"format-version": 1}
        objects[at] = json.dumps({key: value for key, value in document.items() if key != "table-uuid"}).encode()


def test_a_table_of_version_1_without_a_uuid_is_purged_and_keeps_files_as_a_neighbour() -> None:
    bench = filled(PurgedTables(), "t", "near")
    for name in ("t", "near"):
        without_uuid(bench, name)
    lake = bench.lake
    table, near = (loaded(lake.metadata(name), name, lake.pointers[name]) for name in ("t", "near"))
    assert is_stand_in(table.table_uuid)
    assert table.table_uuid != near.table_uuid
    before = bench.left("near")
    bench._uuids["t"] = table.table_uuid
    ctx = bench.context("t")
    load = ctx.tables.load
    ctx.tables.load = lambda: dataclasses.replace(load(), metadata=table.metadata)  # type: ignore[method-assign]
    result = purge_table(dataclasses.replace(ctx, neighbours=lambda _roots: [Neighbour(near, ctx.store, certain=True)]))
    assert result.status == "PURGED"
    assert not bench.left()
    assert bench.left("near") == before


def test_an_expiry_of_a_table_without_a_uuid_is_refused_with_what_to_do() -> None:
    table = loaded({name: value for name, value in DOCUMENT.items() if name != "table-uuid"} | {"format-version": 1})
    metadata = parse_metadata(table.metadata_location, table.metadata)
    with pytest.raises(DelegationError, match="assign-uuid", check=coded("UNSUPPORTED")):
        check_table(metadata, table_uuid=table.table_uuid)
