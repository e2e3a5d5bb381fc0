"""A plan that is executed hours later deletes no file of a table that was created meanwhile."""

import dataclasses

import pytest

from delegation.errors import GuardRefused
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.memory import Faults
from tests.kit.lakes.lake import LakeSource, PurgedTables, rows

POOL = "s3://lake/pool"


@pytest.fixture
def bench() -> PurgedTables:
    bench = PurgedTables()
    bench.lake.create("t", **{"write.data.path": POOL}).append(rows(1, 2))
    bench.uuid("t")
    return bench


def context(bench: PurgedTables, options: PurgeOptions) -> PurgeContext:
    """Return a purge whose neighbours are all other tables of the lake at the time they are asked for."""
    ctx = bench.context("t", options=options, prefixes=("s3://lake/",))
    return dataclasses.replace(
        ctx,
        neighbours=lambda _roots: [
            Neighbour(LakeSource(bench.lake, name, Faults()).load(), ctx.store)
            for name in bench.lake.pointers
            if name != "t"
        ],
    )


def approved(bench: PurgedTables) -> PurgeOptions:
    dry = dataclasses.replace(context(bench, PurgeOptions(dry_run=True)), attempt=MemoryAttempt("dry"))
    return PurgeOptions(execute_plan=purge_table(dry).plan_ids[0])


def test_files_at_the_location_of_a_table_created_after_the_plan_are_not_deleted(bench: PurgedTables) -> None:
    """What is below a table's location is that table's, also a file that it has not committed yet."""
    options = approved(bench)
    bench.lake.create("later", location=POOL)
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, match="location of another live table") as refused:
        purge_table(context(bench, options))
    assert refused.value.code == "FILES_AT_ANOTHER_TABLE"
    assert set(bench.lake.uris()) == before


def test_an_attempt_that_resumes_before_its_first_delete_compares_the_locations_too(bench: PurgedTables) -> None:
    with pytest.raises(KeyboardInterrupt):
        purge_table(interrupted(context(bench, PurgeOptions())))
    bench.lake.create("later", location=POOL)
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, match="location of another live table"):
        purge_table(context(bench, PurgeOptions()))
    assert set(bench.lake.uris()) == before


def interrupted(ctx: PurgeContext) -> PurgeContext:
    """Return the context of a process that ends after it has published its plan."""

    def end() -> None:
        if ctx.attempt.plan():
            raise KeyboardInterrupt

    ctx.attempt.on_checkpoint = end  # type: ignore[attr-defined]
    return ctx


def test_a_table_created_elsewhere_or_below_the_tables_own_location_stops_nothing(bench: PurgedTables) -> None:
    options = approved(bench)
    bench.lake.create("elsewhere", location="s3://lake/elsewhere")
    bench.lake.create("nested", location="s3://lake/wh/t/nested")
    theirs = bench.lake.below("s3://lake/elsewhere/") | bench.lake.below("s3://lake/wh/t/nested/")
    assert purge_table(context(bench, options)).status == "PURGED"
    assert set(bench.lake.uris()) == theirs


def test_a_table_that_moved_to_the_files_after_the_plan_keeps_them(bench: PurgedTables) -> None:
    bench.lake.create("mover", location="s3://lake/elsewhere")
    options = approved(bench)
    with bench.lake.table("mover").transaction() as change:
        change.set_properties({"owner": "me"})
    bench.lake.rewrite_metadata("mover", {"location": POOL})
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, match="location of another live table"):
        purge_table(context(bench, options))
    assert set(bench.lake.uris()) == before
