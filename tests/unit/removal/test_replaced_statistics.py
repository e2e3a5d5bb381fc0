"""Statistics that were written again for the same snapshot: only former metadata names the first ones."""

import json
from typing import Any

import pytest

from delegation.removal.expiry.run import expire_snapshots
from delegation.storage.locations import parse
from tests.kit.lakes.lake import Lake, PurgedTables, busy_table
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.expiry.spark.executors_here import expire_with_executors_here
from tests.unit.removal.purge.planning.executors_here import ENGINES

REPLACED = "s3://lake/wh/t/metadata/replaced.stats"


def replaced_in(lake: Lake, path: str = REPLACED, *, number: int = 0) -> None:
    """Let the nth former metadata file name statistics that the table does not have any more."""
    where = parse(path)
    lake.objects[where.bucket, where.key] = b"x"
    log = lake.metadata("t")["metadata-log"]
    former = parse(log[number]["metadata-file"])
    document = json.loads(lake.objects[former.bucket, former.key])
    one = {"snapshot-id": 1, "statistics-path": path, "file-size-in-bytes": 1}
    document |= {"statistics": [*document.get("statistics", ()), one]}
    lake.objects[former.bucket, former.key] = json.dumps(document).encode()


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_purge_deletes_them(name: str, number: int) -> None:
    bench = PurgedTables()
    busy_table(bench.lake, "t")
    kept = dict(bench.lake.metadata("t"))
    bench.lake.rewrite_metadata("t", {"statistics": kept.get("statistics") or [_current(bench.lake)]})
    replaced_in(bench.lake, number=number)
    assert ENGINES[name](bench.context("t")).status == "PURGED"
    assert not bench.lake.below("s3://lake/wh/t/")


def _current(lake: Lake) -> dict[str, Any]:
    lake.objects["lake", "wh/t/metadata/now.stats"] = b"x"
    return {"snapshot-id": 1, "statistics-path": "s3://lake/wh/t/metadata/now.stats", "file-size-in-bytes": 1}


@pytest.mark.parametrize("path", ["gs://elsewhere/x.stats", "s3://other/x.stats", "s3://lake/wh/t/a?b", "nonsense"])
def test_an_odd_path_of_some_stops_no_purge(path: str) -> None:
    bench = PurgedTables()
    busy_table(bench.lake, "t")
    bench.lake.rewrite_metadata("t", {"statistics": [_current(bench.lake)]})
    bench.lake.objects["other", "x.stats"] = b"x"
    document = bench.lake.metadata("t")["metadata-log"][0]["metadata-file"]
    where = parse(document)
    former = json.loads(bench.lake.objects[where.bucket, where.key])
    former["statistics"] = [{"snapshot-id": 1, "statistics-path": path, "file-size-in-bytes": 1}, 7, {"x": 1}]
    bench.lake.objects[where.bucket, where.key] = json.dumps(former).encode()
    assert ENGINES["inline"](bench.context("t")).status == "PURGED"
    assert bench.lake.objects["other", "x.stats"] == b"x"


@pytest.mark.parametrize("engine", ["inline", "executors"])
def test_an_expiry_deletes_those_of_its_snapshots_alone(engine: str) -> None:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    for _ in range(3):
        table.append(1)
    first, *_, last = table.ids
    goes, stays = table.statistics(first), table.statistics(last)
    named = [table.statistics(first), table.statistics(last), table.partition_statistics(first)]
    again = table.partition_statistics(first)
    ctx = world.context(table)
    result = expire_with_executors_here(ctx) if engine == "executors" else expire_snapshots(ctx)
    assert result.files_deleted > 0
    assert not {goes, named[0], named[2], again} & world.lake.uris()
    assert {stays, named[1]} <= world.lake.uris()


def test_a_removal_of_orphan_files_takes_them_for_orphans() -> None:
    world = SweptTables()
    table = world.table()
    replaced, now = table.statistics(table.ids[0]), table.statistics(table.ids[0])
    world.lake.pass_days(4)
    world.sweep(table)
    assert replaced not in world.lake.uris()
    assert now in world.lake.uris()
