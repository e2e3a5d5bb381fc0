"""A plan that was made under other options is refused."""

import dataclasses

import pytest

from delegation.removal.attempt import MemoryAttempt
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.errors import PlanNotAllowed
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from tests.kit.lakes.lake import PurgedTables, filled

STRANGER = "s3://lake/elsewhere/stats.puffin"
ALL = ("s3://lake/",)


@pytest.fixture
def bench() -> PurgedTables:
    bench = filled(PurgedTables(), "t")
    bench.lake.objects["lake", STRANGER.removeprefix("s3://lake/")] = b"x"
    bench.lake.rewrite_metadata("t", {"statistics": [{"statistics-path": STRANGER, "file-size-in-bytes": 1}]})
    return bench


def context(bench: PurgedTables, options: PurgeOptions) -> PurgeContext:
    return bench.context("t", options=options, prefixes=ALL)


def planned(bench: PurgedTables, options: PurgeOptions) -> str:
    dry = dataclasses.replace(context(bench, dataclasses.replace(options, dry_run=True)), attempt=MemoryAttempt("dry"))
    return purge_table(dry).plan_ids[0]


@pytest.mark.parametrize(
    ("made", "asked"),
    [
        (PurgeOptions(), PurgeOptions(outside="delete")),
        (PurgeOptions(), PurgeOptions(remove_directory_markers=True)),
        (PurgeOptions(outside="delete"), PurgeOptions(outside="delete", remove_directory_markers=True)),
    ],
)
def test_a_plan_that_deletes_less_than_requested_is_refused(
    bench: PurgedTables, made: PurgeOptions, asked: PurgeOptions
) -> None:
    plan = planned(bench, made)
    before = set(bench.lake.uris())
    with pytest.raises(PlanNotAllowed, match="new dry run"):
        purge_table(context(bench, dataclasses.replace(asked, execute_plan=plan)))
    assert set(bench.lake.uris()) == before


def test_a_plan_that_is_the_same_under_both_options_is_executed(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"statistics": []})
    plan = planned(bench, PurgeOptions(outside="refuse", uncovered="refuse", shared="refuse"))
    asked = PurgeOptions(outside="keep", uncovered="keep", execute_plan=plan)
    assert purge_table(context(bench, asked)).status == "PURGED"
    assert set(bench.lake.uris()) == {STRANGER}
