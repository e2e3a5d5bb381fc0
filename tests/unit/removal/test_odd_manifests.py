"""Manifests that real engines write and Iceberg's own library does not: read by every operation, and by neighbours."""

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.orphans.run import OrphanRun
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.unread_neighbours import MANIFEST_DIFFERS
from delegation.storage import memory
from delegation.storage.locations import parse
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import Lake, LakeSource, PurgedTables, busy_table
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.expiry.spark.executors_here import expire_with_executors_here
from tests.unit.removal.orphans.engines.sparkless import SparklessOrphans
from tests.unit.removal.purge.planning.executors_here import ENGINES

Objects = dict[tuple[str, str], bytes]
Rows = list[dict[str, Any]]
OLD = "s3://lake/wh/t/data/old.parquet"


@pytest.fixture(params=["inline", "executors"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "executors":
        monkeypatch.setattr(OrphanRun.__init__, "__defaults__", (SparklessOrphans(),))
        monkeypatch.setattr(memory, "PAGE", 2)
    return str(request.param)


def rewritten(data: bytes, of_schema: Callable[[Any], Any], of_rows: Callable[[Rows], object]) -> bytes:
    reader = fastavro.reader(io.BytesIO(data))
    rows, keep = [dict(one) for one in reader], {k: v for k, v in reader.metadata.items() if k[:5] != "avro."}
    of_rows(rows)  # type: ignore[arg-type]
    out = io.BytesIO()
    fastavro.writer(out, of_schema(reader.writer_schema), rows, codec="deflate", metadata=keep, sync_interval=1)
    return out.getvalue()


def each(objects: Objects, below: str, record: str) -> list[tuple[str, str]]:
    """Return where the Avro files of this record are, below a prefix."""
    found = [at for at, data in objects.items() if at[1].startswith(below) and data[:4] == b"Obj\x01"]
    return [at for at in found if fastavro.reader(io.BytesIO(objects[at])).writer_schema["name"].endswith(record)]  # type: ignore[index, call-overload]


def nullable(schema: Any) -> Any:
    """Return a manifest's schema with `data_file` as `["null", record]`, as DuckDB, Paimon and BigQuery write it."""
    fields = [one | {"type": ["null", one["type"]]} if one["name"] == "data_file" else one for one in schema["fields"]]
    return schema | {"fields": fields}


def as_duckdb_writes(objects: Objects, below: str = "wh/t/") -> None:
    for at in each(objects, below, "manifest_entry"):
        objects[at] = rewritten(objects[at], nullable, lambda _rows: None)
    lengths(objects, below, lambda at: len(objects[at]))


def lengths(objects: Objects, below: str, length: Callable[[tuple[str, str]], int]) -> None:
    """Let the manifest lists have these lengths of manifests."""

    def change(rows: Rows) -> None:
        for row in rows:
            where = parse(row["manifest_path"])
            row["manifest_length"] = length((where.bucket, where.key))

    for at in each(objects, below, "manifest_file"):
        objects[at] = rewritten(objects[at], lambda schema: schema, change)


def stale(objects: Objects, below: str = "wh/t/", off: int = -1) -> None:
    """Let the lists have lengths and numbers of rows that are off, so that nothing agrees."""

    def change(rows: Rows) -> None:
        for row in rows:
            row.update({name: row[name] + 1 for name in row if name == "added_rows_count"})

    lengths(objects, below, lambda at: len(objects[at]) + off)
    for at in each(objects, below, "manifest_file"):
        objects[at] = rewritten(objects[at], lambda schema: schema, change)


def differs(result: Any) -> int:
    return sum(one.count for one in result.findings if one.code == MANIFEST_DIFFERS)


def purged(lake: Lake | None = None) -> PurgedTables:
    bench = PurgedTables(lake=lake or Lake())
    for name in ("t", "near"):
        busy_table(bench.lake, name)
        bench.uuid(name)
    return bench


def beside(bench: PurgedTables) -> PurgeContext:
    """Return a purge of the table that knows its neighbour."""
    ctx = bench.context("t")
    near = Neighbour(LakeSource(bench.lake, "near").load(), ctx.store, certain=True)
    return dataclasses.replace(ctx, neighbours=lambda _roots: [near])


def borrows(bench: PurgedTables) -> str:
    """Let the neighbour name a data file of the table; return it."""
    theirs = min(uri for uri in bench.lake.below("s3://lake/wh/t/") if uri.endswith(".parquet"))

    def change(rows: Rows) -> None:
        rows[0]["data_file"]["file_path"] = theirs

    at = min(each(bench.lake.objects, "wh/near/", "manifest_entry"))
    bench.lake.objects[at] = rewritten(bench.lake.objects[at], lambda schema: schema, change)
    lengths(bench.lake.objects, "wh/near/", lambda at: len(bench.lake.objects[at]))
    return theirs


@pytest.mark.parametrize("name", ENGINES)
def test_a_purge_reads_nullable_data_files_its_own_and_a_neighbours(name: str) -> None:
    bench = purged()
    kept = borrows(bench)
    as_duckdb_writes(bench.lake.objects)
    as_duckdb_writes(bench.lake.objects, "wh/near/")
    before = bench.lake.below("s3://lake/wh/near/")
    result = ENGINES[name](beside(bench))
    assert result.status == "PURGED"
    assert set(bench.lake.below("s3://lake/wh/t/")) == {kept}
    assert bench.lake.below("s3://lake/wh/near/") == before


@pytest.mark.parametrize("name", ENGINES)
def test_a_neighbours_manifest_that_differs_keeps_all_that_it_names_and_is_a_finding(name: str) -> None:
    bench = purged()
    kept = borrows(bench)
    stale(bench.lake.objects, "wh/near/")
    result = ENGINES[name](beside(bench))
    assert result.status == "PURGED"
    assert set(bench.lake.below("s3://lake/wh/t/")) == {kept}
    assert differs(result)


@pytest.mark.parametrize("name", ENGINES)
def test_a_neighbours_manifest_that_may_be_cut_off_holds_the_purge(name: str) -> None:
    bench = purged()
    borrows(bench)
    stale(bench.lake.objects, "wh/near/", off=1)
    before = dict(bench.lake.objects)
    with pytest.raises(DelegationError, match=r"cannot be read \(MANIFEST_MISMATCH\)"):
        ENGINES[name](beside(bench))
    assert bench.lake.objects == before


@pytest.mark.parametrize("name", ENGINES)
def test_a_purge_refuses_its_own_manifests_that_differ_or_names_all_that_it_leaves(name: str) -> None:
    bench = purged()
    stale(bench.lake.objects)
    before = dict(bench.lake.objects)
    with pytest.raises(DelegationError, check=coded("MANIFEST_MISMATCH")):
        ENGINES[name](bench.context("t"))
    assert bench.lake.objects == before
    result = ENGINES[name](bench.context("t", options=PurgeOptions(damaged="keep")))
    left = set(bench.lake.below("s3://lake/wh/t/"))
    named = {code: count for code, count, _ in ((one.code, one.count, one.sample) for one in result.findings)}
    assert named["MANIFEST_MISMATCH"] == len([uri for uri in left if uri.endswith(".avro")]) > 0
    assert named["FILES_OF_DAMAGED_MANIFESTS"] == len([uri for uri in left if not uri.endswith(".avro")]) > 0


@pytest.mark.parametrize("name", ENGINES)
def test_a_file_that_a_whole_manifest_names_too_is_purged(name: str) -> None:
    bench = purged()
    objects = bench.lake.objects
    first, second = sorted(each(objects, "wh/t/", "manifest_entry"))[:2]
    of_second = [one["data_file"]["file_path"] for one in fastavro.reader(io.BytesIO(objects[second]))]  # type: ignore[index, call-overload]

    def also(rows: Rows) -> None:
        rows.append(rows[0] | {"data_file": rows[0]["data_file"] | {"file_path": of_second[0]}})

    present, others = set(bench.lake.uris()), each(objects, "wh/t/", "manifest_entry")
    of_others = {
        one["data_file"]["file_path"]  # type: ignore[index, call-overload]
        for at in others
        if at != first
        for one in fastavro.reader(io.BytesIO(objects[at]))
    }
    objects[first] = rewritten(objects[first], lambda schema: schema, also)
    lengths(objects, "wh/t/", lambda at: len(objects[at]) + (at == first))
    ENGINES[name](bench.context("t", options=PurgeOptions(damaged="keep")))
    left = set(bench.lake.below("s3://lake/wh/t/"))
    assert of_second[0] not in left
    named = {one["data_file"]["file_path"] for one in fastavro.reader(io.BytesIO(objects[first]))}  # type: ignore[index, call-overload]
    assert left == ({*named, f"s3://lake/{first[1]}"} - of_others) & present


def grown() -> tuple[ExpiringTables, StoryTable]:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    for _ in range(3):
        table.append(2)
        table.delete(table.live()[0])
    return world, table


def expired(world: ExpiringTables, table: StoryTable, engine: str) -> Any:
    ctx = world.context(table)
    return expire_with_executors_here(ctx) if engine == "executors" else expire_snapshots(ctx)


def test_an_expiry_reads_nullable_data_files(engine: str) -> None:
    world, table = grown()
    as_duckdb_writes(world.lake.objects)
    result = expired(world, table, engine)
    assert result.files_deleted > 0
    assert world.lake.readable() == {"t": set()}


def test_an_expiry_keeps_all_that_a_manifest_names_that_differs_and_says_so(engine: str) -> None:
    world, table = grown()
    current = parse(table.document["snapshots"][-1]["manifest-list"])
    objects = {at: data for at, data in world.lake.objects.items() if at == (current.bucket, current.key)}
    manifests = {at: world.lake.objects[at] for at in each(world.lake.objects, "wh/t/", "manifest_entry")}
    lengths(objects | manifests, "wh/t/", lambda at: len(manifests[at]) - 1)
    changed = dict(objects | manifests)
    lengths(changed, "wh/t/", lambda at: len(manifests[at]) - 1)
    world.lake.objects.update({at: changed[at] for at in objects})
    result = expired(world, table, engine)
    assert world.lake.readable() == {"t": set()}
    assert result.files_deleted > 0
    assert differs(result)


def swept() -> tuple[SweptTables, StoryTable]:
    world = SweptTables()
    table = world.table()
    world.orphan(OLD)
    world.lake.pass_days(4)
    return world, table


def test_a_removal_reads_nullable_data_files_its_own_and_a_neighbours(engine: str) -> None:
    world, table = swept()
    world.table("near")
    as_duckdb_writes(world.lake.objects, "wh/")
    world.lake.pass_days(4)
    assert world.sweep(table).files_deleted == 1
    assert not world.missing()
    assert OLD not in world.lake.uris()


@pytest.mark.parametrize("whose", ["t", "near"])
def test_a_removal_keeps_all_that_a_manifest_names_that_differs_and_says_so(engine: str, whose: str) -> None:
    world, table = swept()
    near = StoryTable.create(world.lake, "near")
    near.append(1)
    stale(world.lake.objects, f"wh/{whose}/")
    world.lake.pass_days(4)
    result = world.sweep(table)
    assert (result.files_deleted, OLD in world.lake.uris()) == (1, False)
    assert not world.missing()
    assert differs(result) == (2 if whose == "t" else 1)


def test_a_removal_stops_at_a_manifest_that_may_be_cut_off(engine: str) -> None:
    world, table = swept()
    stale(world.lake.objects, off=1)
    before = dict(world.lake.objects)
    with pytest.raises(DelegationError, check=coded("MANIFEST_MISMATCH")):
        world.sweep(table)
    assert world.lake.objects == before
