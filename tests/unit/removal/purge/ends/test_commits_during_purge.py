"""Commits, rollbacks and drops while a table is purged."""

import pytest

from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.errors import PurgeError
from delegation.removal.purge.run import purge_table
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import PurgedTables, rows

EPOCH_1970 = 1


def commit(bench: PurgedTables, *, updated_ms: int | None = None, rows_too: bool = True) -> None:
    """Commit rows, or only a property, which reads no manifest: during the last phases there are none."""
    if rows_too:
        bench.lake.table("t").append(rows(9))
    else:
        bench.lake.table("t").transaction().set_properties(note="x").commit_transaction()
    if updated_ms is not None:
        bench.lake.rewrite_metadata("t", {"last-updated-ms": updated_ms})


@pytest.mark.parametrize(("load", "rows_too"), [(2, True), (3, True), (3, False), (4, False)])
def test_a_commit_by_a_node_whose_clock_is_behind_is_purged_too(
    bench: PurgedTables, load: int, *, rows_too: bool
) -> None:
    ctx = bench.context("t")
    bench.on_load(ctx, load, lambda: commit(bench, updated_ms=EPOCH_1970, rows_too=rows_too))
    assert purge_table(ctx).status == "PURGED"
    assert bench.left() == set()


@pytest.mark.parametrize("how", ["older", "whose clock was ahead", "with a commit on top"])
def test_older_metadata_than_planned_is_refused(bench: PurgedTables, how: str) -> None:
    """The catalog was rolled back to a former metadata file; if somebody wrote then, the table is in use again."""
    older = bench.lake.metadata("t")["metadata-log"][-1]["metadata-file"]
    if how == "whose clock was ahead":
        bench.lake.rewrite_metadata("t", {"last-updated-ms": EPOCH_1970})
    bench.publish()
    bench.lake.pointers["t"] = older
    if how == "with a commit on top":
        commit(bench)
    assert bench.refused(bench.context("t")).code == "METADATA_REPLACED"


def test_a_commit_that_no_metadata_log_relates_to_the_plan_is_ordered_by_its_time(bench: PurgedTables) -> None:
    """`write.metadata.previous-versions-max` may be 1: after two commits the log has lost the planned file."""
    ctx = bench.context("t")
    bench.on_load(ctx, 3, lambda: (commit(bench), bench.lake.rewrite_metadata("t", {"metadata-log": []})))
    assert purge_table(ctx).status == "PURGED"


def committing(bench: PurgedTables, commits: int) -> PurgeContext:
    """Return the context of a purge with a writer that commits before each of this many loads."""
    ctx = bench.context("t")
    for load in range(2, 2 + commits):
        bench.on_load(ctx, load, lambda: commit(bench, rows_too=False))
    return ctx


def test_a_purge_of_a_table_that_is_written_to_all_the_time_ends_and_is_finished_later(bench: PurgedTables) -> None:
    with pytest.raises(DelegationError) as ended:
        purge_table(committing(bench, 40))
    assert (ended.value.code, ended.value.retryable) == ("TABLE_IS_WRITTEN_TO", False)
    assert len(bench.head.read()) <= 20
    assert purge_table(committing(bench, 5)).status == "PURGED"
    assert bench.left() == set()


@pytest.mark.parametrize("load", [2, 3, 4])
def test_a_dropped_tables_error_has_its_metadata_file_and_the_next_step(bench: PurgedTables, load: int) -> None:
    root = bench.lake.pointers["t"]
    ctx = bench.context("t")
    bench.on_load(ctx, load, lambda: bench.lake.pointers.pop("t"))
    with pytest.raises(PurgeError, check=coded("TABLE_GONE"), match=f"delegation purge {root}"):
        purge_table(ctx)


def test_a_table_whose_metadata_file_somebody_deleted_names_it_and_the_plan(bench: PurgedTables) -> None:
    root = bench.lake.pointers["t"]
    ctx = bench.context("t")
    bench.on_load(ctx, 3, lambda: bench.lake.io.delete(root))
    with pytest.raises(PurgeError, check=coded("TABLE_GONE")) as gone:
        purge_table(ctx)
    assert root in str(gone.value)
    assert bench.head.read()[0].id in str(gone.value)
