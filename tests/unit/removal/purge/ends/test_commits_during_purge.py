"""Commits, rollbacks and drops while a table is purged."""

from collections.abc import Callable

import pytest

from delegation.errors import GuardRefused
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.errors import PurgeError
from delegation.removal.purge.run import purge_table
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import LakeSource, PurgedTables, filled, rows

EPOCH_1970 = 1


@pytest.fixture
def bench() -> PurgedTables:
    bench = filled(PurgedTables(), "t")
    bench.uuid("t")
    return bench


def ours(bench: PurgedTables) -> set[str]:
    return bench.lake.below("s3://lake/wh/t/")


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
    assert ours(bench) == set()


def test_older_metadata_is_refused_although_its_clock_was_ahead(bench: PurgedTables) -> None:
    older = bench.lake.metadata("t")["metadata-log"][-1]["metadata-file"]
    bench.lake.rewrite_metadata("t", {"last-updated-ms": EPOCH_1970})
    published(bench)
    bench.lake.pointers["t"] = older
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, check=coded("METADATA_REPLACED")):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_a_commit_on_top_of_older_metadata_is_refused(bench: PurgedTables) -> None:
    """The catalog was rolled back to a former metadata file, and then somebody wrote: the table is in use again."""
    older = bench.lake.metadata("t")["metadata-log"][-1]["metadata-file"]
    published(bench)
    bench.lake.pointers["t"] = older
    commit(bench)
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, check=coded("METADATA_REPLACED")):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_a_commit_that_no_metadata_log_relates_to_the_plan_is_ordered_by_its_time(bench: PurgedTables) -> None:
    """`write.metadata.previous-versions-max` may be 1: after two commits the log has lost the planned file."""
    ctx = bench.context("t")
    bench.on_load(ctx, 3, lambda: (commit(bench), bench.lake.rewrite_metadata("t", {"metadata-log": []})))
    assert purge_table(ctx).status == "PURGED"


def published(bench: PurgedTables) -> None:
    """Stop an attempt after publishing its plan and before the first delete."""
    with pytest.raises(GuardRefused, check=coded("CREDENTIALS_CANNOT_DELETE")):
        purge_table(bench.context("t", denied=["s3://lake/"]))


def committing(bench: PurgedTables, commits: int) -> PurgeContext:
    """Return the context of a purge with a writer that commits before each of this many loads."""
    ctx = bench.context("t")
    for load in range(2, 2 + commits):
        bench.on_load(ctx, load, lambda: commit(bench, rows_too=False))
    return ctx


def test_a_purge_of_a_table_that_is_written_to_all_the_time_ends(bench: PurgedTables) -> None:
    ctx = committing(bench, 40)
    with pytest.raises(DelegationError) as ended:
        purge_table(ctx)
    assert (ended.value.code, ended.value.retryable) == ("TABLE_IS_WRITTEN_TO", False)
    assert len(bench.head.read()) <= 20


def test_such_a_purge_is_finished_once_its_writers_have_stopped(bench: PurgedTables) -> None:
    with pytest.raises(DelegationError, match="commit"):
        purge_table(committing(bench, 40))
    assert purge_table(bench.context("t")).status == "PURGED"
    assert ours(bench) == set()


def test_a_few_commits_are_purged_in_one_attempt(bench: PurgedTables) -> None:
    assert purge_table(committing(bench, 5)).status == "PURGED"
    assert ours(bench) == set()


def drop(bench: PurgedTables) -> Callable[[], object]:
    return lambda: bench.lake.pointers.pop("t")


@pytest.mark.parametrize("load", [2, 3, 4])
def test_a_dropped_tables_error_has_its_metadata_file_and_the_next_step(bench: PurgedTables, load: int) -> None:
    root = bench.lake.pointers["t"]
    ctx = bench.context("t")
    bench.on_load(ctx, load, drop(bench))
    with pytest.raises(PurgeError, check=coded("TABLE_GONE")) as gone:
        purge_table(ctx)
    assert f"delegation purge {root}" in str(gone.value)


def test_a_table_whose_metadata_file_somebody_deleted_names_it_and_the_plan(bench: PurgedTables) -> None:
    root = bench.lake.pointers["t"]
    ctx = bench.context("t")
    bench.on_load(ctx, 3, lambda: bench.lake.objects.pop(("lake", root.removeprefix("s3://lake/"))))
    with pytest.raises(PurgeError, check=coded("TABLE_GONE")) as gone:
        purge_table(ctx)
    assert root in str(gone.value)
    assert bench.head.read()[0].id in str(gone.value)
    assert isinstance(ctx.tables, LakeSource)
