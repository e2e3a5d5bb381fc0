"""A plan that was made under other options is refused."""

import dataclasses

import pytest

from delegation.removal.attempt import PlanHead
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from tests.kit.lakes.lake import PurgedTables

STRANGER = "s3://lake/elsewhere/stats.puffin"
ALL = ("s3://lake/",)


def context(bench: PurgedTables, options: PurgeOptions) -> PurgeContext:
    return bench.context("t", options=options, prefixes=ALL)


LOOSE, MARKERS = PurgeOptions(outside="delete"), PurgeOptions(remove_directory_markers=True)


@pytest.mark.parametrize(
    ("made", "asked", "code"),
    [
        (PurgeOptions(), LOOSE, "PLAN_NOT_ALLOWED"),
        (PurgeOptions(), MARKERS, "PLAN_NOT_ALLOWED"),
        (LOOSE, dataclasses.replace(LOOSE, remove_directory_markers=True), "PLAN_NOT_ALLOWED"),
        (LOOSE, PurgeOptions(), "PLAN_NOT_ALLOWED"),
        (MARKERS, PurgeOptions(), "PLAN_NOT_ALLOWED"),
        (PurgeOptions(), PurgeOptions(outside="refuse"), "PATHS_OUTSIDE_TABLE"),
    ],
)
def test_a_plan_of_other_options_is_refused_and_executed_with_its_own(
    bench: PurgedTables, made: PurgeOptions, asked: PurgeOptions, code: str
) -> None:
    bench.lake.write("s3://lake/wh/t/data/", b"")
    bench.lake.write(STRANGER)
    bench.lake.rewrite_metadata("t", {"statistics": [{"statistics-path": STRANGER, "file-size-in-bytes": 1}]})
    plan = bench.dry_run(options=made, prefixes=ALL)
    refused = bench.refused(context(bench, dataclasses.replace(asked, execute_plan=plan)))
    assert refused.code == code
    assert "new dry run" in str(refused) or STRANGER in str(refused)
    bench.head = PlanHead()
    assert purge_table(context(bench, dataclasses.replace(made, execute_plan=plan))).status == "PURGED"
    assert (STRANGER in bench.lake.uris()) is (made.outside == "keep")
    assert bool(bench.left()) is not made.remove_directory_markers


def test_a_plan_that_is_the_same_under_both_options_is_executed(bench: PurgedTables) -> None:
    plan = bench.dry_run(options=PurgeOptions(outside="refuse", uncovered="refuse", shared="refuse"), prefixes=ALL)
    asked = PurgeOptions(outside="keep", uncovered="keep", execute_plan=plan)
    assert purge_table(context(bench, asked)).status == "PURGED"
    assert set(bench.lake.uris()) == set()
