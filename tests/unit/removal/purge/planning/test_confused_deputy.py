"""A table that claims another table's location by a property has none of that table's files deleted."""

import json
from typing import Any

import pytest

from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions
from tests.kit.lakes.lake import PurgedTables, busy_table, filled, rows
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines
from tests.unit.removal.purge.test_hostile import entries, meta

ALL = ("s3://lake/",)
VICTIM = "s3://lake/wh/victim"
UNCOMMITTED = f"{VICTIM}/data/part=a/uncommitted.parquet"
CLAIMS = [
    {"write.data.path": VICTIM},
    {"write.data.path": f"{VICTIM}/data"},
    {"write.data.path": "s3://lake/wh"},
    {"write.metadata.path": VICTIM.replace("s3://", "s3a://")},
    {"write.object-storage.path": VICTIM},
]


@pytest.fixture
def bench(bench: PurgedTables) -> PurgedTables:
    bench.lake.write(UNCOMMITTED, b"written, and committed tomorrow")
    return filled(bench, "victim")


def beside_victim(bench: PurgedTables, **options: Any) -> PurgeContext:
    return bench.beside("victim", prefixes=ALL, **options)


def name_the_files_of_the_victim(bench: PurgedTables) -> set[str]:
    """Have the attacker's manifest name the victim's files, the one that is not committed too; return them all."""
    victims = bench.lake.below(f"{VICTIM}/")
    named = iter([UNCOMMITTED, *sorted(path for path in victims - {UNCOMMITTED} if path.endswith(".parquet"))])
    entries(lambda one: one["data_file"].update(file_path=next(named)))(bench.lake)
    statistics = [{"statistics-path": path, "file-size-in-bytes": 1} for path in sorted(victims)]
    meta(statistics=statistics)(bench.lake)
    return victims


@engines
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: " ".join(*claim.items()))
def test_a_table_whose_write_path_is_another_tables_location_deletes_none_of_its_files(
    bench: PurgedTables, claim: dict[str, str], engine: str
) -> None:
    victims = name_the_files_of_the_victim(bench)
    meta(properties=claim)(bench.lake)
    result = ENGINES[engine](beside_victim(bench))
    left = set(bench.lake.uris())
    assert victims <= left
    assert not {path for path in left - victims if not path.endswith(".parquet")}
    found = {one["code"]: (one["count"], one["sample"]) for one in bench.receipt(result)["findings"]}
    assert found["FILES_AT_ANOTHER_TABLE"] == (1, [UNCOMMITTED])
    assert found["FILES_SHARED"][0] == len(victims) - 1


@engines
def test_a_forged_former_location_claims_nothing_at_another_tables_location(bench: PurgedTables, engine: str) -> None:
    forged = {**bench.lake.metadata("t"), "location": VICTIM, "metadata-log": []}
    victims = name_the_files_of_the_victim(bench)
    path = bench.lake.write("s3://lake/wh/t/metadata/forged.json", json.dumps(forged).encode())
    meta(metadata_log=[{"metadata-file": path}])(bench.lake)
    ENGINES[engine](beside_victim(bench))
    assert victims <= set(bench.lake.uris())


def test_shared_refuse_refuses_files_at_another_tables_location(bench: PurgedTables) -> None:
    meta(properties={"write.data.path": VICTIM})(bench.lake)
    meta(statistics=[{"statistics-path": UNCOMMITTED, "file-size-in-bytes": 1}])(bench.lake)
    assert bench.refused(beside_victim(bench, options=PurgeOptions(shared="refuse"))).code == "FILES_AT_ANOTHER_TABLE"


@engines
def test_two_tables_with_one_data_path_keep_each_its_own_files(bench: PurgedTables, engine: str) -> None:
    """Neither has its location there, so what a table reaches decides."""
    bench.lake.create("one", **{"write.data.path": "s3://lake/pool"}).append(rows(1))
    mine = bench.lake.below("s3://lake/pool/")
    bench.lake.create("two", **{"write.data.path": "s3://lake/pool"}).append(rows(2))
    theirs = bench.lake.below("s3://lake/pool/") - mine
    ENGINES[engine](bench.beside("two", of="one", prefixes=ALL))
    assert bench.lake.below("s3://lake/pool/") == theirs


@engines
@pytest.mark.parametrize("location", ["s3://lake/wh/outer", "s3://lake/wh/outer/inner"])
def test_below_its_own_location_a_table_keeps_deciding_by_what_it_reaches(
    bench: PurgedTables, location: str, engine: str
) -> None:
    busy_table(bench.lake, "outer", location="s3://lake/wh/outer")
    ours = bench.left("outer")
    busy_table(bench.lake, "inner", location=location)
    theirs = bench.left("outer") - ours
    ENGINES[engine](bench.beside("inner", of="outer", prefixes=ALL))
    assert bench.left("outer") == theirs
