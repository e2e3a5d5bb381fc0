"""A purge that keeps the table's current metadata file, or every file, is no success unless a live table has them."""

import json

import pytest

from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import PurgedTables, codes, rows

ALL = ("s3://lake/",)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_table_that_keeps_every_file_is_refused_with_the_reason(bench: PurgedTables, *, dry_run: bool) -> None:
    """The table's location was changed, and no former metadata file tells where its files were."""
    bench.lake.rewrite_metadata("t", {"location": "s3://lake/new/t", "metadata-log": []})
    options = PurgeOptions(outside="keep", dry_run=dry_run)
    refused = bench.refused(bench.context("t", options=options, prefixes=ALL))
    assert refused.code == "PATHS_OUTSIDE_TABLE"
    assert bench.lake.pointers["t"] in str(refused)


def test_a_table_whose_metadata_file_is_not_covered_is_refused_before_the_first_delete(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"location": "s3://lake/wh/t/data"})
    options = PurgeOptions(outside="delete", uncovered="keep")
    ctx = bench.context("t", options=options, prefixes=("s3://lake/wh/t/data",))
    assert bench.refused(ctx).code == "CREDENTIALS_DO_NOT_COVER"
    assert not ctx.attempt.deleting


def test_a_commit_that_moves_the_table_during_its_purge_is_no_success(bench: PurgedTables) -> None:
    """The current metadata file is then at a place that no location of the table contains."""

    def move() -> None:
        bench.lake.table("t").append(rows(8))
        metadata = bench.lake.metadata("t")
        bench.lake.pointers["t"] = bench.lake.write(
            "s3://lake/else/00009-x.metadata.json", json.dumps(metadata).encode()
        )

    ctx = bench.context("t", options=PurgeOptions(outside="keep"), prefixes=ALL)
    bench.on_load(ctx, 3, move)
    with pytest.raises(DelegationError, check=coded("PATHS_OUTSIDE_TABLE")):
        purge_table(ctx)
    assert bench.lake.pointers["t"] in set(bench.lake.uris())


def test_a_table_that_keeps_every_file_for_a_live_clone_is_purged(bench: PurgedTables) -> None:
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    before = set(bench.lake.uris())
    result = purge_table(bench.beside("clone"))
    assert (result.status, result.files_deleted, result.root_kept) == ("PURGED", 0, True)
    assert codes(result).keys() == {"FILES_SHARED"}
    assert set(bench.lake.uris()) == before
