"""A purge of files outside its locations, beside clones, and in odd orders; the fixtures of oracle/ have the rest."""

import gzip
import json

import pytest

from delegation.removal.purge.errors import CredentialsDoNotCover, FilesShared
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.memory import MemoryObjectStore
from tests.kit.lakes.lake import PurgedTables, busy_table, codes, filled, rows

STRANGER = "s3://lake/wh/t2/stats.puffin"


def moved_data(bench: PurgedTables) -> set[str]:
    """Create a table whose first file is at a former write path; return that file."""
    bench.lake.create("moved", **{"write.data.path": "s3://lake/data-a"}).append(rows(1))
    with bench.lake.table("moved").transaction() as change:
        change.remove_properties("write.data.path")
    bench.lake.table("moved").append(rows(2))
    return bench.lake.below("s3://lake/data-a/")


def test_former_locations_that_the_credentials_do_not_cover() -> None:
    bench = PurgedTables()
    former = moved_data(bench)
    refused = bench.refused(bench.context("moved"))
    assert isinstance(refused, CredentialsDoNotCover)
    assert (refused.count, set(refused.sample)) == (1, former)
    result = purge_table(bench.context("moved", options=PurgeOptions(uncovered="keep")))
    assert set(bench.lake.uris()) == former != set()
    assert codes(result) == {"CREDENTIALS_DO_NOT_COVER": 1}


def test_the_current_write_path_is_covered_without_a_vended_prefix() -> None:
    bench = PurgedTables()
    bench.lake.create("t", **{"write.data.path": "s3://lake/data-a"}).append(rows(1))
    purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == set()


def name_the_stranger(bench: PurgedTables) -> None:
    bench.lake.write(STRANGER)
    bench.lake.rewrite_metadata("t", {"statistics": [{"statistics-path": STRANGER, "file-size-in-bytes": 1}]})


def test_files_outside_are_kept_counted_and_listed(bench: PurgedTables) -> None:
    name_the_stranger(bench)
    result = purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == {STRANGER}
    assert result.files_kept == 1
    assert [(one.code, one.count, one.sample) for one in result.findings] == [("PATHS_OUTSIDE_TABLE", 1, (STRANGER,))]
    listed = gzip.decompress(bench.plans.objects[f"{result.plan_ids[0]}/KEPT-00000.jsonl.gz"])
    assert json.loads(listed) == {"path": STRANGER, "type": "statistics", "size": 1, "kept": "outside"}


def test_files_outside_are_deleted_with_outside_delete_if_covered(bench: PurgedTables) -> None:
    name_the_stranger(bench)
    options = PurgeOptions(outside="delete")
    assert bench.refused(bench.context("t", options=options)).code == "CREDENTIALS_DO_NOT_COVER"
    purge_table(bench.context("t", options=options, prefixes=("s3://lake/wh/",)))
    assert set(bench.lake.uris()) == set()


def test_a_former_metadata_file_of_another_table_adds_no_location(bench: PurgedTables) -> None:
    busy_table(bench.lake, "other")
    log, others = bench.lake.metadata("t")["metadata-log"], bench.left("other")
    foreign = json.dumps(bench.lake.metadata("other")).encode()
    inside = bench.lake.write("s3://lake/wh/t/metadata/foreign.metadata.json", foreign)
    victim = min(bench.lake.below("s3://lake/wh/other/data/"))
    statistics = [{"statistics-path": victim, "file-size-in-bytes": 1}]
    changes = {"metadata-log": [*log, {"metadata-file": inside}], "statistics": statistics}
    bench.lake.rewrite_metadata("t", changes)
    result = purge_table(bench.context("t", prefixes=("s3://lake/",)))
    assert set(bench.lake.uris()) == others | {inside}
    assert codes(result).keys() == {"FOREIGN_METADATA", "PATHS_OUTSIDE_TABLE"}


def test_a_file_of_two_types_is_deleted_in_the_later_phase(bench: PurgedTables) -> None:
    """So the metadata of a purge that crashed is never lost early."""
    root = bench.lake.pointers["t"]
    statistics = [{"statistics-path": root.replace("s3:", "s3n:"), "file-size-in-bytes": 1}]
    bench.lake.rewrite_metadata("t", {"statistics": statistics})
    ctx = bench.context("t")
    purge_table(ctx)
    assert isinstance(ctx.store, MemoryObjectStore)
    assert (ctx.store.deleted.count(root), ctx.store.deleted[-1]) == (1, root)


def test_a_clone_registered_between_plan_and_execution_refuses_the_purge(bench: PurgedTables) -> None:
    bench.lake.create("harmless", location="s3://lake/wh/t/nested")
    denied = bench.beside("t", "harmless", denied=["s3://lake/"])
    assert bench.refused(denied).code == "CREDENTIALS_CANNOT_DELETE"
    bench.lake.pointers["clone"] = bench.lake.metadata("t")["metadata-log"][2]["metadata-file"]
    refused = bench.refused(bench.beside("t", "harmless", "clone"))
    assert isinstance(refused, FilesShared)
    assert refused.count == 3 + 2 + 2 + 3  # metadata files, manifest lists, manifests, data files
    purge_table(bench.beside("t", "harmless"))
    assert set(bench.lake.uris()) == {bench.lake.pointers["harmless"]}


@pytest.mark.parametrize("by_id", [False, True], ids=["planned", "by a dry run's plan"])
def test_the_original_is_purged_after_an_unknown_clone_was_purged(by_id: bool) -> None:
    """The clone had older metadata, in an unchecked namespace: its plan explains the missing manifests."""
    bench = filled(PurgedTables(), "t")
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    bench.lake.table("t").append(rows(77))
    plan_id = bench.dry_run("clone") if by_id else None
    purge_table(bench.context("clone", options=PurgeOptions(execute_plan=plan_id)))
    assert bench.left()
    purge_table(PurgedTables(lake=bench.lake, plans=bench.plans, attempts=bench.attempts).context("t"))
    assert set(bench.lake.uris()) == set()
