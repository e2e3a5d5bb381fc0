"""A purge deletes exactly the files that the table reaches, whatever its history."""

import dataclasses
import gzip
import json
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.iceberg.errors import CorruptManifestError, ManifestMismatchError, ManifestMissing
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.errors import CredentialsDoNotCover, FilesShared, PathsOutsideTable
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.locations import AmbiguousPath, UnsupportedLocation, parse
from delegation.storage.memory import Faults, MemoryObjectStore
from tests.kit.errors import coded
from tests.kit.lakes.lake import LakeSource, PurgedTables, busy_table, rows


@pytest.fixture
def bench() -> PurgedTables:
    return PurgedTables()


def put(bench: PurgedTables, uri: str, data: bytes = b"x") -> str:
    found = parse(uri)
    bench.lake.objects[found.bucket, found.key] = data
    return uri


def test_every_object_of_a_busy_table_and_nothing_else(bench: PurgedTables) -> None:
    busy_table(bench.lake, "t")
    busy_table(bench.lake, "t2")
    stranger = put(bench, "s3://lake/wh/t/data/not-in-any-manifest.parquet")
    rest = bench.lake.below("s3://lake/wh/t2/") | {stranger}
    result = purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == rest
    assert result.findings == ()
    assert result.files_kept == 0


def test_a_table_without_snapshots(bench: PurgedTables) -> None:
    bench.lake.create("t")
    assert purge_table(bench.context("t")).files_deleted == 1
    assert set(bench.lake.uris()) == set()


def test_files_named_only_by_deleted_entries(bench: PurgedTables) -> None:
    """After an expiry of snapshots alone, only an entry with status DELETED names the old data file."""
    table = bench.lake.create("t")
    table.append(rows(1, 2))
    (old,) = [uri for uri in bench.lake.uris() if uri.endswith(".parquet")]
    bench.lake.table("t").delete("id = 1")
    metadata = bench.lake.metadata("t")
    current = [one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"]]
    bench.lake.rewrite_metadata("t", {"snapshots": current})
    purge_table(bench.context("t"))
    assert old not in set(bench.lake.uris())
    assert not [uri for uri in bench.lake.uris() if uri.endswith(".parquet")]


def test_statistics_partition_statistics_and_gzipped_former_metadata(bench: PurgedTables) -> None:
    busy_table(bench.lake, "t")
    metadata = bench.lake.metadata("t")
    named = {
        "statistics": [{"statistics-path": put(bench, "s3://lake/wh/t/metadata/s.puffin"), "file-size-in-bytes": 1}],
        "partition-statistics": [{"statistics-path": put(bench, "s3://lake/wh/t/metadata/p.parquet")}],
    }
    former = parse(metadata["metadata-log"][0]["metadata-file"])
    bench.lake.objects[former.bucket, former.key] = gzip.compress(bench.lake.objects[former.bucket, former.key])
    bench.lake.rewrite_metadata("t", named)
    purge_table(bench.context("t"))
    assert bench.lake.below("s3://lake/wh/t/") == set()


def test_metadata_that_only_the_log_of_former_metadata_lists(bench: PurgedTables) -> None:
    """Each former metadata file is read once, so cycles end, and missing ones are skipped."""
    busy_table(bench.lake, "t")
    metadata = bench.lake.metadata("t")
    oldest = put(
        bench,
        "s3://lake/wh/t/metadata/oldest.metadata.json",
        json.dumps({**metadata, "metadata-log": [{"metadata-file": bench.lake.pointers["t"]}]}).encode(),
    )
    between = put(
        bench,
        "s3://lake/wh/t/metadata/between.metadata.json",
        json.dumps(
            {**metadata, "metadata-log": [{"metadata-file": oldest}, {"metadata-file": "s3://lake/wh/t/metadata/gone"}]}
        ).encode(),
    )
    bench.lake.rewrite_metadata("t", {"metadata-log": [{"metadata-file": between.replace("s3://", "s3a://")}]})
    purge_table(bench.context("t"))
    assert not {oldest, between} & set(bench.lake.uris())


def test_inline_manifests_of_version_1(bench: PurgedTables) -> None:
    table = bench.lake.create("t")
    table.append(rows(1))
    metadata = bench.lake.metadata("t")
    (snapshot,) = metadata["snapshots"]
    manifests = [uri for uri in bench.lake.uris() if uri.endswith("-m0.avro")]
    del bench.lake.objects["lake", parse(snapshot.pop("manifest-list")).key]
    bench.lake.rewrite_metadata("t", {"snapshots": [{**snapshot, "manifests": manifests}]})
    purge_table(bench.context("t"))
    assert bench.lake.below("s3://lake/wh/t/") == set()


def test_former_locations_and_write_paths(bench: PurgedTables) -> None:
    """After SET LOCATION older files are at former locations, which former metadata files name."""
    table = bench.lake.create("t", **{"write.data.path": "s3://lake/data-a"})
    table.append(rows(1))
    with bench.lake.table("t").transaction() as change:
        change.set_properties({"write.data.path": "s3://lake/data-b"})
    bench.lake.table("t").append(rows(2))
    bench.lake.rewrite_metadata("t", {"location": "s3://lake/wh/moved"})
    assert bench.lake.below("s3://lake/data-a/")
    everything = ("s3://lake/",)
    result = purge_table(bench.context("t", prefixes=everything))
    assert set(bench.lake.uris()) == set()
    assert result.files_kept == 0


def test_former_locations_that_the_credentials_do_not_cover(bench: PurgedTables) -> None:
    table = bench.lake.create("t", **{"write.data.path": "s3://lake/data-a"})
    table.append(rows(1))
    with bench.lake.table("t").transaction() as change:
        change.remove_properties("write.data.path")
    bench.lake.table("t").append(rows(2))
    before = set(bench.lake.uris())
    with pytest.raises(CredentialsDoNotCover) as refused:
        purge_table(bench.context("t"))
    assert refused.value.count == 1
    assert refused.value.sample[0] in bench.lake.below("s3://lake/data-a/")
    assert set(bench.lake.uris()) == before
    result = purge_table(bench.context("t", options=PurgeOptions(uncovered="keep")))
    assert set(bench.lake.uris()) == bench.lake.below("s3://lake/data-a/") != set()
    assert [(finding.code, finding.count) for finding in result.findings] == [("CREDENTIALS_DO_NOT_COVER", 1)]


def test_the_current_write_path_is_covered_without_a_vended_prefix(bench: PurgedTables) -> None:
    table = bench.lake.create("t", **{"write.data.path": "s3://lake/data-a"})
    table.append(rows(1))
    purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == set()


def with_stranger(bench: PurgedTables) -> str:
    busy_table(bench.lake, "t")
    stranger = put(bench, "s3://lake/wh/t2/stats.puffin")
    bench.lake.rewrite_metadata("t", {"statistics": [{"statistics-path": stranger, "file-size-in-bytes": 1}]})
    return stranger


def test_files_outside_are_kept_counted_and_listed(bench: PurgedTables) -> None:
    stranger = with_stranger(bench)
    result = purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == {stranger}
    assert result.files_kept == 1
    assert [(one.code, one.count, one.sample) for one in result.findings] == [("PATHS_OUTSIDE_TABLE", 1, (stranger,))]
    listed = gzip.decompress(bench.plans.objects[f"{result.plan_ids[0]}/KEPT-00000.jsonl.gz"])
    assert json.loads(listed) == {"path": stranger, "type": "statistics", "size": 1, "kept": "outside"}


def test_files_outside_can_refuse_the_purge(bench: PurgedTables) -> None:
    stranger = with_stranger(bench)
    before = set(bench.lake.uris())
    with pytest.raises(PathsOutsideTable) as refused:
        purge_table(bench.context("t", options=PurgeOptions(outside="refuse")))
    assert (refused.value.count, refused.value.sample) == (1, (stranger,))
    assert set(bench.lake.uris()) == before


def test_files_outside_are_deleted_with_outside_delete_if_covered(bench: PurgedTables) -> None:
    with_stranger(bench)
    options = PurgeOptions(outside="delete")
    with pytest.raises(CredentialsDoNotCover):
        purge_table(bench.context("t", options=options))
    purge_table(bench.context("t", options=options, prefixes=("s3://lake/wh/",)))
    assert set(bench.lake.uris()) == set()


def test_a_former_metadata_file_of_another_table_adds_no_location(bench: PurgedTables) -> None:
    busy_table(bench.lake, "t")
    busy_table(bench.lake, "other")
    metadata = bench.lake.metadata("t")
    inside = put(
        bench, "s3://lake/wh/t/metadata/foreign.metadata.json", json.dumps(bench.lake.metadata("other")).encode()
    )
    victim = next(iter(bench.lake.below("s3://lake/wh/other/data/")))
    bench.lake.rewrite_metadata(
        "t",
        {
            "metadata-log": [*metadata["metadata-log"], {"metadata-file": inside}],
            "statistics": [{"statistics-path": victim, "file-size-in-bytes": 1}],
        },
    )
    others = bench.lake.below("s3://lake/wh/other/")
    result = purge_table(bench.context("t", prefixes=("s3://lake/",)))
    assert set(bench.lake.uris()) == others | {inside}
    assert {one.code for one in result.findings} == {"FOREIGN_METADATA", "PATHS_OUTSIDE_TABLE"}


def test_a_file_of_two_types_is_deleted_in_the_later_phase(bench: PurgedTables) -> None:
    """So the metadata of a purge that crashed is never lost early."""
    busy_table(bench.lake, "t")
    root = bench.lake.pointers["t"]
    bench.lake.rewrite_metadata(
        "t", {"statistics": [{"statistics-path": root.replace("s3:", "s3n:"), "file-size-in-bytes": 1}]}
    )
    ctx = bench.context("t")
    purge_table(ctx)
    assert isinstance(ctx.store, MemoryObjectStore)
    assert ctx.store.deleted.count(root) == 1
    assert ctx.store.deleted[-1] == root


def neighbour(bench: PurgedTables, name: str) -> Neighbour:
    store = MemoryObjectStore()
    store.objects = bench.lake.objects
    return Neighbour(LakeSource(bench.lake, name, Faults()).load(), store)


def with_neighbours(bench: PurgedTables, name: str, *others: str, **options: Any) -> Any:
    ctx = bench.context(name, **options)
    return dataclasses.replace(ctx, neighbours=lambda _roots: [neighbour(bench, other) for other in (name, *others)])


def test_files_of_a_live_clone_are_kept_and_deleted_with_the_clone(bench: PurgedTables) -> None:
    """A registered clone shares files and uuid; a purge of one must keep the other complete."""
    busy_table(bench.lake, "t")
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    shared = set(bench.lake.uris())
    bench.lake.table("t").append(rows(77))
    bench.uuid("clone")
    result = purge_table(with_neighbours(bench, "t", "clone"))
    assert set(bench.lake.uris()) == shared
    assert {one.code: one.count for one in result.findings} == {"FILES_SHARED": len(shared)}
    checked = json.loads(bench.plans.objects[f"{result.plan_ids[0]}/receipt.json"])["neighbours"]
    assert [(one["identifier"], one["overlaps"]) for one in checked] == [("cat.ns.clone", True)]
    last = PurgedTables(lake=bench.lake)
    purge_table(last.context("clone"))
    assert set(bench.lake.uris()) == set()


def test_a_clone_registered_between_plan_and_execution_refuses_the_purge(bench: PurgedTables) -> None:
    busy_table(bench.lake, "t")
    bench.lake.create("harmless", location="s3://lake/wh/t/nested")
    with pytest.raises(GuardRefused, check=coded("CREDENTIALS_CANNOT_DELETE")):
        purge_table(with_neighbours(bench, "t", "harmless", denied=["s3://lake/"]))
    bench.lake.pointers["clone"] = bench.lake.metadata("t")["metadata-log"][2]["metadata-file"]
    before = set(bench.lake.uris())
    with pytest.raises(FilesShared) as refused:
        purge_table(with_neighbours(bench, "t", "harmless", "clone"))
    assert refused.value.count == 3 + 2 + 2 + 3  # metadata files, manifest lists, manifests, data files
    assert set(bench.lake.uris()) == before
    del bench.lake.pointers["clone"]
    purge_table(with_neighbours(bench, "t", "harmless"))
    assert set(bench.lake.uris()) == {bench.lake.pointers["harmless"]}


def test_shared_files_can_refuse_the_purge(bench: PurgedTables) -> None:
    busy_table(bench.lake, "t")
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    before = set(bench.lake.uris())
    with pytest.raises(FilesShared):
        purge_table(with_neighbours(bench, "t", "clone", options=PurgeOptions(shared="refuse")))
    assert set(bench.lake.uris()) == before


def test_a_table_recreated_at_the_same_location_keeps_its_files(bench: PurgedTables) -> None:
    busy_table(bench.lake, "tomb", location="s3://lake/wh/t")
    theirs = set(bench.lake.uris())
    busy_table(bench.lake, "t", location="s3://lake/wh/t")
    ours = set(bench.lake.uris()) - theirs
    purge_table(with_neighbours(bench, "tomb", "t"))
    assert set(bench.lake.uris()) == ours


@pytest.mark.parametrize("by_id", [False, True], ids=["planned", "by a dry run's plan"])
def test_the_original_is_purged_after_an_unknown_clone_was_purged(bench: PurgedTables, by_id: bool) -> None:
    """The clone had older metadata, in an unchecked namespace: its plan explains the missing manifests."""
    busy_table(bench.lake, "t")
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    bench.lake.table("t").append(rows(77))
    plan_id = None
    if by_id:
        dry = bench.context("clone", options=PurgeOptions(dry_run=True))
        (plan_id,) = purge_table(dataclasses.replace(dry, attempt=MemoryAttempt("dry"))).plan_ids
    purge_table(bench.context("clone", options=PurgeOptions(execute_plan=plan_id)))
    assert bench.lake.below("s3://lake/wh/t/")
    second = PurgedTables(lake=bench.lake, plans=bench.plans, attempts=bench.attempts)
    purge_table(second.context("t"))
    assert set(bench.lake.uris()) == set()


@pytest.mark.parametrize("kind", ["snap-", "-m0.avro"])
def test_an_unexplained_missing_manifest_refuses_the_purge(bench: PurgedTables, kind: str) -> None:
    busy_table(bench.lake, "t")
    del bench.lake.objects[next(where for where in bench.lake.objects if kind in where[1])]
    before = set(bench.lake.uris())
    with pytest.raises(ManifestMissing):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_missing_data_files_count_as_deleted(bench: PurgedTables) -> None:
    busy_table(bench.lake, "t")
    for where in [where for where in bench.lake.objects if where[1].endswith(".parquet")]:
        del bench.lake.objects[where]
    purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == set()


def damage(bench: PurgedTables, part: str, change: Any) -> None:
    where = next(where for where in sorted(bench.lake.objects) if part in where[1])
    bench.lake.objects[where] = change(bench.lake.objects[where])


@pytest.mark.parametrize(
    ("part", "change", "error"),
    [
        ("-m0.avro", lambda data: data[:-1], ManifestMismatchError),
        ("-m0.avro", lambda data: data + b"\0", ManifestMismatchError),
        ("-m0.avro", lambda data: b"x" * len(data), CorruptManifestError),
        ("-m0.avro", lambda _data: b"", ManifestMismatchError),
        ("snap-", lambda data: data[:-20], CorruptManifestError),
        ("snap-", lambda _data: b"", CorruptManifestError),
    ],
)
def test_a_corrupt_table_stays_complete(bench: PurgedTables, part: str, change: Any, error: type[Exception]) -> None:
    busy_table(bench.lake, "t")
    damage(bench, part, change)
    before = dict(bench.lake.objects)
    ctx = bench.context("t")
    with pytest.raises(error):
        purge_table(ctx)
    assert bench.lake.objects == before
    assert not ctx.attempt.deleting


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("s3://lake/wh/t/../t2/data.parquet", AmbiguousPath),
        ("s3://lake/wh/t/a#b", AmbiguousPath),
        ("s3://lake/wh/t/a?versionId=1", AmbiguousPath),
        ("s3:///wh/t/a", AmbiguousPath),
        ("s3://x--table-s3/a", UnsupportedLocation),
        ("gs://lake/wh/t/a", UnsupportedLocation),
        ("/etc/passwd", UnsupportedLocation),
    ],
)
def test_one_ambiguous_path_refuses_the_whole_purge(bench: PurgedTables, path: str, error: type[Exception]) -> None:
    busy_table(bench.lake, "t")
    bench.lake.rewrite_metadata("t", {"statistics": [{"statistics-path": path, "file-size-in-bytes": 1}]})
    before = set(bench.lake.uris())
    with pytest.raises(error):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_an_ambiguous_table_location_refuses_the_purge(bench: PurgedTables) -> None:
    bench.lake.create("t")
    bench.lake.rewrite_metadata("t", {"location": "s3://lake/wh/t#1"})
    with pytest.raises(AmbiguousPath):
        purge_table(bench.context("t", prefixes=("s3://lake/wh/",)))
