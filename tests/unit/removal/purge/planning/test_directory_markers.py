"""`deleteMarkerFiles` deletes empty directory markers of the table's directories, and no other object."""

import dataclasses

import pytest

from delegation.removal.index import read_index
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.removal.purge.run import purge_table
from tests.kit.lakes.lake import PurgedTables, busy_table, filled, rows

MARKERS = PurgeOptions(remove_directory_markers=True)
EMPTY = [
    "wh/t/",
    "wh/t/data/",
    "wh/t/data_$folder$",
    "wh/t/metadata/",
    "wh/t/data/part=a/",
    "wh/t/data/part=a_$folder$",
]
STRANGERS = {
    "wh/": b"",
    "wh_$folder$": b"",
    "wh/t_$folder$": b"",
    "wh/t2/": b"",
    "wh/sibling/": b"",
    "wh/t/other/": b"",
    "wh/t/data/part=b/": b"not empty",
    "wh/t/data/part=zz_$folder$": b"",
    "wh/t/notes": b"",
}


@pytest.fixture
def bench(bench: PurgedTables) -> PurgedTables:
    filled(bench, "sibling")
    bench.lake.objects.update({("lake", key): data for key, data in (dict.fromkeys(EMPTY, b"") | STRANGERS).items()})
    return bench


def left(bench: PurgedTables) -> set[str]:
    return {key for _, key in bench.lake.objects if not key.startswith("wh/sibling/m") and "/sibling/data" not in key}


def test_only_directory_markers_of_the_table_are_deleted(bench: PurgedTables) -> None:
    result = purge_table(bench.context("t", options=MARKERS))
    assert left(bench) == set(STRANGERS)
    index = read_index(bench.plans, result.plan_ids[0])
    assert index.counts["directory-marker"].model_dump() == {"files": len(EMPTY), "bytes": 0}


def test_an_extended_plan_adds_directory_markers_of_new_directories_only(bench: PurgedTables) -> None:
    ctx = bench.context("t", options=MARKERS)
    bench.lake.objects["lake", "wh/t/data/part=new/"] = b""
    writer = bench.lake.table("t")
    bench.on_load(ctx, 3, lambda: writer.append(rows(9, part="new")))
    result = purge_table(ctx)
    assert left(bench) == set(STRANGERS)
    counts = [read_index(bench.plans, plan_id).counts for plan_id in result.plan_ids]
    assert [one["directory-marker"].files for one in counts] == [len(EMPTY), 1]


def test_no_directory_marker_is_deleted_beside_an_overlapping_table(bench: PurgedTables) -> None:
    busy_table(bench.lake, "nested", location="s3://lake/wh/t/data/nested")
    nested = bench.lake.below("s3://lake/wh/t/data/nested/")
    result = purge_table(bench.beside("nested", options=MARKERS))
    assert set(EMPTY) <= left(bench)
    assert nested <= set(bench.lake.uris())
    found = [(one.code, one.sample) for one in result.findings if one.code.startswith("MARKERS")]
    assert found == [("MARKERS_NOT_LOOKED_FOR", ("cat.ns.nested",))]


def test_directory_markers_that_the_credentials_do_not_cover_are_kept(bench: PurgedTables) -> None:
    options = dataclasses.replace(MARKERS, uncovered="keep")
    bench.lake.rewrite_metadata("t", {"location": "s3://lake/wh/new"})
    reached = ("s3://lake/wh/new", "s3://lake/wh/t/metadata", "s3://lake/wh/t/data/part=a")
    purge_table(bench.context("t", options=options, prefixes=reached))
    assert {"wh/t/", "wh/t/data/", "wh/t/data_$folder$", "wh/t/data/part=a_$folder$"} <= left(bench)
    assert left(bench).isdisjoint({"wh/t/metadata/", "wh/t/data/part=a/"})


def test_a_bucket_has_no_directory_marker() -> None:
    bench = PurgedTables()
    bench.lake.create("t", location="s3://lake").append(rows(1))
    bench.lake.objects["lake", "data/"] = b""
    settings = PurgeSettings(vended=False, read_threads=2)
    assert purge_table(bench.context("t", options=MARKERS, settings=settings)).status == "PURGED"
    assert set(bench.lake.objects) == set()
