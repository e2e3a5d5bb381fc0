"""Manifests that real engines write and Iceberg's own library does not: read by every operation, and by neighbours."""

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.orphans.run import OrphanRun
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.unread_neighbours import MANIFEST_DIFFERS
from delegation.storage import memory
from delegation.storage.locations import parse
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import PurgedTables, codes, filled, neighbour
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.expiry.spark.executors_here import expire_with_executors_here
from tests.unit.removal.orphans.engines.sparkless import SparklessOrphans
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines

Objects = dict[tuple[str, str], bytes]
Rows = list[dict[str, Any]]
OLD = "s3://lake/wh/t/data/old.parquet"


@pytest.fixture(params=["inline", "executors"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "executors":
        monkeypatch.setattr(OrphanRun.__init__, "__defaults__", (SparklessOrphans(),))
        monkeypatch.setattr(memory, "PAGE", 2)
    return str(request.param)


def rewritten(
    data: bytes, of_rows: Callable[[Rows], object], of_schema: Callable[[Any], Any] = lambda one: one
) -> bytes:
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


def lengths(objects: Objects, below: str, length: Callable[[tuple[str, str]], int], rows_off: int = 0) -> None:
    """Let the manifest lists have these lengths of manifests."""

    def change(rows: Rows) -> None:
        for row in rows:
            where = parse(row["manifest_path"])
            row["manifest_length"] = length((where.bucket, where.key))
            if rows_off and "added_rows_count" in row:
                row["added_rows_count"] += rows_off

    for at in each(objects, below, "manifest_file"):
        objects[at] = rewritten(objects[at], change)


def as_duckdb_writes(objects: Objects, below: str = "wh/t/") -> None:
    for at in each(objects, below, "manifest_entry"):
        objects[at] = rewritten(objects[at], lambda _rows: None, nullable)
    lengths(objects, below, lambda at: len(objects[at]))


def files_of(data: bytes) -> set[str]:
    return {one["data_file"]["file_path"] for one in fastavro.reader(io.BytesIO(data))}  # type: ignore[index, call-overload]


def stale(objects: Objects, below: str = "wh/t/", off: int = -1) -> None:
    """Let the lists have lengths and numbers of rows that are off, so that nothing agrees."""
    lengths(objects, below, lambda at: len(objects[at]) + off, rows_off=1)


@pytest.fixture
def bench() -> PurgedTables:
    bench = filled(PurgedTables(), "t", "near")
    for name in ("t", "near"):
        bench.uuid(name)
    return bench


def beside(bench: PurgedTables) -> PurgeContext:
    """Return a purge of the table that knows its neighbour."""
    near = neighbour(bench.lake, "near", certain=True)
    return dataclasses.replace(bench.context("t"), neighbours=lambda _roots: [near])


def borrows(bench: PurgedTables) -> str:
    """Let the neighbour name a data file of the table; return it."""
    objects, theirs = bench.lake.objects, min(uri for uri in bench.left() if uri.endswith(".parquet"))
    at = min(each(objects, "wh/near/", "manifest_entry"))
    objects[at] = rewritten(objects[at], lambda rows: rows[0]["data_file"].update(file_path=theirs))
    lengths(objects, "wh/near/", lambda at: len(objects[at]))
    return theirs


@engines
def test_a_purge_reads_nullable_data_files_its_own_and_a_neighbours(bench: PurgedTables, engine: str) -> None:
    kept = borrows(bench)
    as_duckdb_writes(bench.lake.objects, "wh/")
    before = bench.left("near")
    assert ENGINES[engine](beside(bench)).status == "PURGED"
    assert bench.left() == {kept}
    assert bench.left("near") == before


@engines
def test_a_neighbours_manifest_that_differs_keeps_all_that_it_names_and_is_a_finding(
    bench: PurgedTables, engine: str
) -> None:
    kept = borrows(bench)
    stale(bench.lake.objects, "wh/near/")
    result = ENGINES[engine](beside(bench))
    assert result.status == "PURGED"
    assert bench.left() == {kept}
    assert codes(result)[MANIFEST_DIFFERS]


@engines
def test_a_neighbours_manifest_that_may_be_cut_off_holds_the_purge(bench: PurgedTables, engine: str) -> None:
    borrows(bench)
    stale(bench.lake.objects, "wh/near/", off=1)
    assert "cannot be read (MANIFEST_MISMATCH)" in str(bench.refused(beside(bench), ENGINES[engine]))


@engines
def test_a_purge_refuses_its_own_manifests_that_differ_or_names_all_that_it_leaves(
    bench: PurgedTables, engine: str
) -> None:
    stale(bench.lake.objects)
    assert bench.refused(bench.context("t"), ENGINES[engine]).code == "MANIFEST_MISMATCH"
    result = ENGINES[engine](bench.context("t", options=PurgeOptions(damaged="keep")))
    left = [uri.endswith(".avro") for uri in bench.left()]
    assert codes(result)["MANIFEST_MISMATCH"] == left.count(True) > 0
    assert codes(result)["FILES_OF_DAMAGED_MANIFESTS"] == left.count(False) > 0


@engines
def test_a_file_that_a_whole_manifest_names_too_is_purged(bench: PurgedTables, engine: str) -> None:
    objects, present = bench.lake.objects, set(bench.lake.uris())
    first, *others = sorted(each(objects, "wh/t/", "manifest_entry"))
    of_others = set().union(*(files_of(objects[at]) for at in others))
    shared = min(files_of(objects[others[0]]))

    def also(rows: Rows) -> None:
        rows.append(rows[0] | {"data_file": rows[0]["data_file"] | {"file_path": shared}})

    objects[first] = rewritten(objects[first], also)
    lengths(objects, "wh/t/", lambda at: len(objects[at]) + (at == first))
    kept = {*files_of(objects[first]), f"s3://lake/{first[1]}"}
    ENGINES[engine](bench.context("t", options=PurgeOptions(damaged="keep")))
    assert shared not in bench.left()
    assert bench.left() == (kept - of_others) & present


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
    at = current.bucket, current.key
    changed = {at: world.lake.objects[at]}
    lengths(changed, "wh/t/", lambda manifest: len(world.lake.objects[manifest]) - 1)
    world.lake.objects.update(changed)
    result = expired(world, table, engine)
    assert world.lake.readable() == {"t": set()}
    assert result.files_deleted > 0
    assert codes(result)[MANIFEST_DIFFERS]


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
    assert codes(result)[MANIFEST_DIFFERS] == (2 if whose == "t" else 1)


def test_a_removal_stops_at_a_manifest_that_may_be_cut_off(engine: str) -> None:
    world, table = swept()
    stale(world.lake.objects, off=1)
    before = dict(world.lake.objects)
    with pytest.raises(DelegationError, check=coded("MANIFEST_MISMATCH")):
        world.sweep(table)
    assert world.lake.objects == before
