"""A plan that is executed hours later deletes no file of a table that was created meanwhile."""

import dataclasses

import pytest

from delegation.removal.attempt import MemoryAttempt
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from tests.kit.lakes.lake import PurgedTables, neighbour, rows

POOL = "s3://lake/pool"


@pytest.fixture
def bench() -> PurgedTables:
    bench = PurgedTables()
    bench.lake.create("t", **{"write.data.path": POOL}).append(rows(1, 2))
    bench.uuid("t")
    return bench


def context(bench: PurgedTables, options: PurgeOptions) -> PurgeContext:
    """Return a purge whose neighbours are all other tables of the lake at the time they are asked for."""

    def others(_roots: object) -> list[Neighbour]:
        return [neighbour(bench.lake, name) for name in bench.lake.pointers if name != "t"]

    ctx = bench.context("t", options=options, prefixes=("s3://lake/",))
    return dataclasses.replace(ctx, neighbours=others)


def approved(bench: PurgedTables) -> PurgeOptions:
    dry = dataclasses.replace(context(bench, PurgeOptions(dry_run=True)), attempt=MemoryAttempt("dry"))
    return PurgeOptions(execute_plan=purge_table(dry).plan_ids[0])


@pytest.mark.parametrize("how", ["created", "moved"])
def test_files_at_the_location_of_a_table_that_is_there_since_the_plan_are_not_deleted(
    bench: PurgedTables, how: str
) -> None:
    """What is below a table's location is that table's, also a file that it has not committed yet."""
    bench.lake.create("mover", location="s3://lake/elsewhere")
    options = approved(bench)
    if how == "created":
        bench.lake.create("later", location=POOL)
    else:
        bench.lake.table("mover").transaction().set_properties(owner="me").commit_transaction()
        bench.lake.rewrite_metadata("mover", {"location": POOL})
    assert bench.refused(context(bench, options)).code == "FILES_AT_ANOTHER_TABLE"


def test_an_attempt_that_resumes_before_its_first_delete_compares_the_locations_too(bench: PurgedTables) -> None:
    bench.publish()
    bench.lake.create("later", location=POOL)
    assert bench.refused(context(bench, PurgeOptions())).code == "FILES_AT_ANOTHER_TABLE"


def test_a_table_created_elsewhere_or_below_the_tables_own_location_stops_nothing(bench: PurgedTables) -> None:
    options = approved(bench)
    bench.lake.create("elsewhere", location="s3://lake/elsewhere")
    bench.lake.create("nested", location="s3://lake/wh/t/nested")
    theirs = bench.lake.below("s3://lake/elsewhere/") | bench.lake.below("s3://lake/wh/t/nested/")
    assert purge_table(context(bench, options)).status == "PURGED"
    assert set(bench.lake.uris()) == theirs
