"""A purge that keeps the table's current metadata file, or every file, is no success unless a live table has them."""

import dataclasses
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.memory import Faults, MemoryObjectStore
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import LakeSource, PurgedTables, filled, rows

ALL = ("s3://lake/",)


@pytest.fixture
def bench() -> PurgedTables:
    return filled(PurgedTables(), "t")


def beside(bench: PurgedTables, clone: str, **options: Any) -> PurgeContext:
    """Return the context of a purge of `t` beside a live table."""
    store = MemoryObjectStore()
    store.objects = bench.lake.objects
    near = Neighbour(LakeSource(bench.lake, clone, Faults()).load(), store)
    return dataclasses.replace(bench.context("t", **options), neighbours=lambda _roots: [near])


def moved_without_history(bench: PurgedTables) -> None:
    """The table's location was changed, and no former metadata file tells where its files were."""
    bench.lake.rewrite_metadata("t", {"location": "s3://lake/new/t", "metadata-log": []})


def test_a_table_that_keeps_every_file_is_refused_with_the_reason(bench: PurgedTables) -> None:
    moved_without_history(bench)
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused) as refused:
        purge_table(bench.context("t", options=PurgeOptions(outside="keep"), prefixes=ALL))
    assert refused.value.code == "PATHS_OUTSIDE_TABLE"
    assert bench.lake.pointers["t"] in str(refused.value)
    assert set(bench.lake.uris()) == before


def test_a_table_whose_metadata_file_is_not_covered_is_refused_before_the_first_delete(bench: PurgedTables) -> None:
    before = set(bench.lake.uris())
    bench.lake.rewrite_metadata("t", {"location": "s3://lake/wh/t/data"})
    ctx = bench.context(
        "t", options=PurgeOptions(outside="delete", uncovered="keep"), prefixes=("s3://lake/wh/t/data",)
    )
    with pytest.raises(GuardRefused) as refused:
        purge_table(ctx)
    assert refused.value.code == "CREDENTIALS_DO_NOT_COVER"
    assert set(bench.lake.uris()) == before
    assert not ctx.attempt.deleting


def test_a_dry_run_of_such_a_table_is_refused_too(bench: PurgedTables) -> None:
    moved_without_history(bench)
    with pytest.raises(GuardRefused, match="outside"):
        purge_table(bench.context("t", options=PurgeOptions(outside="keep", dry_run=True), prefixes=ALL))


def test_a_commit_that_moves_the_table_during_its_purge_is_no_success(bench: PurgedTables) -> None:
    ctx = bench.context("t", options=PurgeOptions(outside="keep"), prefixes=ALL)
    bench.on_load(ctx, 3, lambda: (bench.lake.table("t").append(rows(8)), elsewhere(bench)))
    with pytest.raises(DelegationError) as refused:
        purge_table(ctx)
    assert refused.value.code == "PATHS_OUTSIDE_TABLE"
    assert bench.lake.pointers["t"] in set(bench.lake.uris())


def elsewhere(bench: PurgedTables) -> None:
    """The current metadata file is at a place that no location of the table contains."""
    metadata = bench.lake.metadata("t")
    bench.lake.pointers["t"] = "s3://lake/else/00009-x.metadata.json"
    bench.lake.objects["lake", "else/00009-x.metadata.json"] = b"{}"
    bench.lake.rewrite_metadata("t", metadata)


def test_a_table_that_keeps_every_file_for_a_live_clone_is_purged(bench: PurgedTables) -> None:
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    before = set(bench.lake.uris())
    result = purge_table(beside(bench, "clone"))
    assert (result.status, result.files_deleted, result.root_kept) == ("PURGED", 0, True)
    assert [one.code for one in result.findings] == ["FILES_SHARED"]
    assert set(bench.lake.uris()) == before
