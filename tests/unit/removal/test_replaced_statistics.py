"""Statistics that were written again for the same snapshot: only former metadata names the first ones."""

import json
from typing import Any

import pytest

from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.purge.run import purge_table
from tests.kit.lakes.lake import Lake, PurgedTables, filled
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.expiry.spark.executors_here import expire_with_executors_here
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines

REPLACED = "s3://lake/wh/t/metadata/replaced.stats"


def stated(path: str) -> dict[str, Any]:
    return {"snapshot-id": 1, "statistics-path": path, "file-size-in-bytes": 1}


def former_names(lake: Lake, *statistics: Any, number: int = 0) -> None:
    """Let the nth former metadata file name statistics too; the table has others."""
    lake.rewrite_metadata("t", {"statistics": [stated(lake.write("s3://lake/wh/t/metadata/now.stats"))]})
    former = lake.metadata("t")["metadata-log"][number]["metadata-file"]
    document = json.loads(lake.read(former))
    document["statistics"] = [*document.get("statistics", ()), *statistics]
    lake.write(former, json.dumps(document).encode())


@engines
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_purge_deletes_them(engine: str, number: int) -> None:
    bench = filled(PurgedTables(), "t")
    former_names(bench.lake, stated(bench.lake.write(REPLACED)), number=number)
    assert ENGINES[engine](bench.context("t")).status == "PURGED"
    assert not bench.left()


@pytest.mark.parametrize("path", ["gs://elsewhere/x.stats", "s3://other/x.stats", "s3://lake/wh/t/a?b", "nonsense"])
def test_an_odd_path_of_some_stops_no_purge(path: str) -> None:
    bench = filled(PurgedTables(), "t")
    theirs = bench.lake.write("s3://other/x.stats")
    former_names(bench.lake, stated(path), 7, {"x": 1})
    assert purge_table(bench.context("t")).status == "PURGED"
    assert theirs in bench.lake.uris()


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
