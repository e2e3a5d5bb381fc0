"""Making, publishing, verifying and executing a plan, and every way a purge can end."""

import dataclasses
import gzip
import hashlib
import json
from typing import Any

import pytest

from delegation.errors import GuardRefused, RunCancelled, RunHandedOver
from delegation.polaris.answers import NoSuchTable
from delegation.removal.attempt import MemoryAttempt, PlanSegment
from delegation.removal.chunks import Phase
from delegation.removal.errors import FilesNotDeleted, FilesNotDeletedYet, FilesThrottled, PlanTampered
from delegation.removal.index import load_index, read_index
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.errors import PlanOutdated, PurgeError
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.locations import parse
from delegation.storage.memory import Faults, Killed, MemoryObjectStore
from delegation.tasks.errors import LeaseLost
from tests.kit.errors import coded
from tests.kit.lakes.lake import FAST, NOW, Lake, PurgedTables, busy_table, rows


@pytest.fixture(scope="module")
def world() -> Lake:
    lake = Lake()
    busy_table(lake, "t")
    busy_table(lake, "sibling")
    return lake


@pytest.fixture
def bench(world: Lake) -> PurgedTables:
    return PurgedTables.of(world)


def ours(bench: PurgedTables) -> set[str]:
    return bench.lake.below("s3://lake/wh/t/")


def plan_dry(bench: PurgedTables, **options: Any) -> str:
    ctx = bench.context("t", options=PurgeOptions(dry_run=True), task_id="dry", **options)
    ctx = dataclasses.replace(ctx, attempt=MemoryAttempt("dry"))
    return purge_table(ctx).plan_ids[0]


def test_the_plan_can_be_read_with_standard_tools(bench: PurgedTables) -> None:
    plan_id = plan_dry(bench)
    index = json.loads(bench.plans.objects[f"{plan_id}/index.json"])
    assert index["format"] == 1
    assert (index["table_uuid"], index["metadata_location"]) == (bench.uuid("t"), bench.lake.pointers["t"])
    listed: list[str] = []
    for chunk in index["chunks"]:
        data = bench.plans.objects[f"{plan_id}/{chunk['name']}"]
        assert hashlib.sha256(data).hexdigest() == chunk["sha256"]
        lines = [json.loads(line) for line in gzip.decompress(data).splitlines()]
        paths = [line["path"] for line in lines]
        assert paths == sorted(set(paths))
        assert (len(paths), sum(line["size"] for line in lines)) == (chunk["count"], chunk["bytes"])
        listed.extend(paths)
    assert sorted(listed) == sorted(ours(bench))
    assert index["counts"]["data"]["files"] == 5
    assert index["counts"]["metadata"]["files"] == 1


def test_a_dry_run_deletes_nothing_and_returns_the_plans_size(bench: PurgedTables) -> None:
    before = set(bench.lake.uris())
    ctx = bench.context("t", options=PurgeOptions(dry_run=True))
    result = purge_table(ctx)
    assert set(bench.lake.uris()) == before
    assert (result.status, result.files_planned, result.files_deleted) == ("PLANNED", len(ours(bench)), 0)
    assert result.receipt is None
    assert not ctx.attempt.deleting
    assert "delete" not in ctx.store.faults.names
    assert "probe" not in ctx.store.faults.names


def test_an_earlier_plan_is_executed_unaltered(bench: PurgedTables) -> None:
    plan_id = plan_dry(bench)
    faults = Faults()
    result = purge_table(bench.context("t", options=PurgeOptions(execute_plan=plan_id), faults=faults))
    assert result.plan_ids == (plan_id,)
    assert "read" not in faults.names
    assert ours(bench) == set()


def test_an_earlier_plan_is_stale_after_a_commit(bench: PurgedTables) -> None:
    plan_id = plan_dry(bench)
    bench.lake.table("t").append(rows(9))
    before = set(bench.lake.uris())
    with pytest.raises(PlanOutdated) as refused:
        purge_table(bench.context("t", options=PurgeOptions(execute_plan=plan_id)))
    assert refused.value.code == "PLAN_OUTDATED"
    assert set(bench.lake.uris()) == before


def test_the_plan_of_another_table_is_refused(bench: PurgedTables) -> None:
    plan_id = plan_dry(bench)
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, check=coded("PLAN_OF_ANOTHER_TABLE")):
        purge_table(bench.context("sibling", options=PurgeOptions(execute_plan=plan_id)))
    with pytest.raises(PlanTampered):
        purge_table(bench.context("t", options=PurgeOptions(execute_plan="no/such/plan")))
    assert set(bench.lake.uris()) == before


def published(bench: PurgedTables) -> str:
    """Stop an attempt after publishing and before the first delete."""
    with pytest.raises(GuardRefused, check=coded("CREDENTIALS_CANNOT_DELETE")):
        purge_table(bench.context("t", denied=["s3://lake/"]))
    return bench.head.read()[0].id


def with_another_path(data: bytes, victim: str) -> bytes:
    lines = gzip.decompress(data).splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "path": victim}).encode()
    return gzip.compress(b"\n".join(lines) + b"\n", mtime=0)


@pytest.mark.parametrize("part", ["DATA-00000", "META-00001", "ROOT-00000"])
@pytest.mark.parametrize("how", ["changed", "truncated"])
def test_nothing_in_a_tampered_chunk_is_deleted(bench: PurgedTables, part: str, how: str) -> None:
    plan_id = published(bench)
    key = f"{plan_id}/{part}.jsonl.gz"
    victims = bench.lake.below("s3://lake/wh/sibling/")
    change = {"changed": lambda data: with_another_path(data, min(victims)), "truncated": lambda data: data[:-9]}[how]
    bench.plans.objects[key] = change(bench.plans.objects[key])
    with pytest.raises(PlanTampered):
        purge_table(bench.context("t"))
    assert bench.lake.below("s3://lake/wh/sibling/") == victims
    assert bench.lake.pointers["t"] in set(bench.lake.uris())


@pytest.mark.parametrize("how", ["changed", "not json"])
def test_nothing_is_deleted_with_a_tampered_index(bench: PurgedTables, how: str) -> None:
    plan_id = published(bench)
    before = set(bench.lake.uris())
    key = f"{plan_id}/index.json"
    bench.plans.objects[key] = b"{" if how == "not json" else bench.plans.objects[key].replace(b"keep", b"delete")
    with pytest.raises(PlanTampered):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_paths_are_checked_again_although_every_hash_matches(bench: PurgedTables) -> None:
    """Write access to the plan bucket and to the task is not enough to delete files outside the plan's roots."""
    plan_id = published(bench)
    index = read_index(bench.plans, plan_id)
    (name,) = [chunk.name for chunk in index.chunks if chunk.kind is Phase.ROOT]
    victim = bench.lake.pointers["sibling"]
    data = with_another_path(bench.plans.objects[f"{plan_id}/{name}"], victim)
    bench.plans.objects[f"{plan_id}/{name}"] = data
    chunks = [
        chunk.model_copy(update={"sha256": hashlib.sha256(data).hexdigest()}) if chunk.name == name else chunk
        for chunk in index.chunks
    ]
    raw = index.model_copy(update={"chunks": tuple(chunks)}).model_dump_json().encode()
    bench.plans.objects[f"{plan_id}/index.json"] = raw
    bench.head._segments = (PlanSegment(plan_id, hashlib.sha256(raw).hexdigest()),)
    with pytest.raises(PlanTampered):
        purge_table(bench.context("t"))
    assert victim in set(bench.lake.uris())


def test_two_planners_publish_one_plan(bench: PurgedTables) -> None:
    """A planner that is paused while another one publishes executes the other's plan."""
    slow, quick = bench.context("t"), bench.context("t")
    publish = slow.attempt.publish

    def late(segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        with pytest.raises(Killed):
            purge_table(dataclasses.replace(quick, store=MemoryObjectStoreThatDies(bench)))
        return publish(segment, files_planned=files_planned)

    slow.attempt.publish = late
    result = purge_table(slow)
    assert result.plan_ids == (bench.head.read()[0].id,)
    assert result.plan_ids[0].startswith("task/2/")
    assert ours(bench) == set()
    assert bench.lake.below("s3://lake/wh/sibling/") != set()


class MemoryObjectStoreThatDies(MemoryObjectStore):
    def __init__(self, bench: PurgedTables) -> None:
        super().__init__()
        self.objects = bench.lake.objects

    def delete(self, bucket: str, keys: Any) -> Any:
        super().delete(bucket, keys)
        raise Killed("after the first delete")


def test_gc_disabled_refuses_the_purge(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"properties": {"gc.enabled": "false"}})
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, check=coded("GC_DISABLED")) as refused:
        purge_table(bench.context("t"))
    assert refused.value.code == "GC_DISABLED"
    assert set(bench.lake.uris()) == before


def test_gc_disabled_after_planning_refuses_the_purge(bench: PurgedTables) -> None:
    published(bench)
    bench.lake.table("t").transaction().set_properties(**{"gc.enabled": "false"}).commit_transaction()
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, check=coded("GC_DISABLED")):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_another_table_with_the_same_name_is_refused(bench: PurgedTables) -> None:
    published(bench)
    bench.lake.pointers["t"] = bench.lake.pointers["sibling"]
    before = set(bench.lake.uris())
    uuids = f"{bench.uuid('sibling')}.*{bench.uuid('t')}"
    with pytest.raises(GuardRefused, check=coded("TABLE_UUID_MISMATCH"), match=uuids):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_older_metadata_than_planned_is_refused(bench: PurgedTables) -> None:
    older = bench.lake.metadata("t")["metadata-log"][0]["metadata-file"]
    published(bench)
    bench.lake.pointers["t"] = older
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, check=coded("METADATA_REPLACED")):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_credentials_that_cannot_delete_are_found_before_the_first_delete(bench: PurgedTables) -> None:
    before = set(bench.lake.uris())
    ctx = bench.context("t", denied=["s3://lake/"])
    with pytest.raises(GuardRefused, check=coded("CREDENTIALS_CANNOT_DELETE")) as refused:
        purge_table(ctx)
    assert refused.value.code == "CREDENTIALS_CANNOT_DELETE"
    assert set(bench.lake.uris()) == before
    assert not ctx.attempt.deleting
    assert "delete" not in ctx.store.faults.names


@pytest.mark.parametrize(
    ("code", "error"),
    [("AccessDenied", FilesNotDeleted), ("InternalError", FilesNotDeletedYet), ("SlowDown", FilesThrottled)],
)
def test_an_undeletable_file_fails_the_purge_and_keeps_metadata(
    bench: PurgedTables, code: str, error: type[Exception]
) -> None:
    stubborn = sorted(uri for uri in ours(bench) if uri.endswith(".parquet"))[1]
    refuse = lambda _bucket, key, _nth: code if stubborn.endswith(key) else None  # noqa: E731
    ctx = bench.context("t", refuse=refuse)
    with pytest.raises(FilesNotDeleted) as failed:
        purge_table(ctx)
    assert type(failed.value) is error
    assert (failed.value.count, failed.value.sample) == (1, ((stubborn, code),))
    assert failed.value.retryable == (code != "AccessDenied")
    left = ours(bench)
    assert stubborn in left
    assert [uri for uri in left if uri.endswith(".parquet")] == [stubborn]
    assert bench.lake.pointers["t"] in left
    assert len([uri for uri in left if uri.endswith(".avro")]) > 5
    assert ctx.attempt.reported.files_failed == 1
    (failures,) = [data for key, data in bench.plans.objects.items() if "/failed/" in key]
    assert json.loads(gzip.decompress(failures)) == {"path": stubborn, "code": code}
    (receipt,) = [json.loads(data) for key, data in bench.plans.objects.items() if key.endswith("/receipt.json")]
    assert (receipt["status"], receipt["files_failed"]) == ("INCOMPLETE", 1)
    assert receipt["files_deleted"] == ctx.attempt.reported.files_deleted
    assert receipt["failures"]["sample"] == [{"path": stubborn, "code": code}]
    assert [key for key in bench.plans.objects if "/failed/" in key] == receipt["failures"]["lists"]
    result = purge_table(bench.context("t"))
    assert ours(bench) == set()
    assert result.files_deleted == result.files_planned
    (receipt,) = [json.loads(data) for key, data in bench.plans.objects.items() if key.endswith("/receipt.json")]
    assert (receipt["status"], receipt["files_failed"], receipt["attempts"]) == ("PURGED", 0, 2)


def test_a_metadata_file_that_cannot_be_deleted_is_no_success(bench: PurgedTables) -> None:
    root = bench.lake.pointers["t"]
    refuse = lambda _bucket, key, _nth: "AccessDenied" if root.endswith(key) else None  # noqa: E731
    with pytest.raises(FilesNotDeleted):
        purge_table(bench.context("t", refuse=refuse))
    assert ours(bench) == {root}
    assert purge_table(bench.context("t")).status == "PURGED"
    assert ours(bench) == set()


def test_a_table_dropped_before_the_last_phase_is_no_success(bench: PurgedTables) -> None:
    published(bench)
    del bench.lake.pointers["t"]
    with pytest.raises(PurgeError, check=coded("TABLE_GONE")):
        purge_table(bench.context("t"))
    assert ours(bench)


def test_a_table_that_never_existed(bench: PurgedTables) -> None:
    del bench.lake.pointers["t"]
    with pytest.raises(NoSuchTable):
        purge_table(bench.context("t"))


def test_a_repeat_after_success_and_after_the_drop(bench: PurgedTables) -> None:
    first = purge_table(bench.context("t"))
    assert purge_table(bench.context("t")).files_deleted == first.files_deleted
    del bench.lake.pointers["t"]
    assert purge_table(bench.context("t")).files_deleted == first.files_deleted


def test_a_new_table_with_the_name_of_a_purged_one_is_kept(bench: PurgedTables) -> None:
    first = purge_table(bench.context("t"))
    bench.lake.pointers["t"] = bench.lake.pointers["sibling"]
    others = set(bench.lake.uris())
    assert purge_table(bench.context("t")).files_deleted == first.files_deleted
    assert set(bench.lake.uris()) == others


def test_a_catalog_that_answers_from_a_cache_after_the_last_phase(bench: PurgedTables) -> None:
    ctx = bench.context("t")
    loaded = ctx.tables.load()
    cached = dataclasses.replace(ctx, tables=type("Cached", (), {"load": lambda _self: loaded})())
    assert purge_table(cached).status == "PURGED"
    assert ours(bench) == set()


@pytest.mark.parametrize(
    "ending", [LeaseLost("t", attempt=1, current=2, status="RUNNING"), RunCancelled("t"), RunHandedOver("t")]
)
def test_an_ended_attempt_stops_before_the_next_batch(bench: PurgedTables, ending: BaseException) -> None:
    ctx = bench.context("t")
    store = ctx.store

    def checkpoint() -> None:
        if "delete" in store.faults.names:
            raise ending

    ctx.attempt.on_checkpoint = checkpoint
    whole = len(ours(bench))
    with pytest.raises(type(ending)):
        purge_table(ctx)
    assert whole - FAST.batch <= len(ours(bench)) < whole
    purge_table(bench.context("t"))
    assert ours(bench) == set()


def test_the_result_for_a_versioned_bucket_has_no_freed_bytes(bench: PurgedTables) -> None:
    result = purge_table(bench.context("t", versioned_buckets=["lake"]))
    assert result.bytes_freed is None
    assert result.bytes_deleted > 0
    assert [(one.code, one.sample) for one in result.findings] == [("VERSIONED_BUCKET", ("s3://lake/",))]


def test_delete_markers_seen_by_a_failed_attempt_are_remembered(bench: PurgedTables) -> None:
    faults = Faults()
    probe = bench.context("t", versioned_buckets=["lake"], faults=faults)
    probe.store.versioned = lambda _bucket, **_seen: None  # type: ignore[method-assign]
    probe.store._refuse = lambda _bucket, key, _nth: "AccessDenied" if key.endswith("m0.avro") else None
    with pytest.raises(FilesNotDeleted):
        purge_table(probe)
    assert purge_table(bench.context("t")).bytes_freed is None


def test_the_receipt_is_stored_beside_the_plan(bench: PurgedTables) -> None:
    result = purge_table(bench.context("t"))
    assert result.receipt == f"{result.plan_ids[-1]}/receipt.json"
    receipt = json.loads(bench.plans.objects[result.receipt])
    assert receipt["files_deleted"] == result.files_deleted == sum(one["files"] for one in receipt["by_type"].values())
    assert receipt["plan"] == [dataclasses.asdict(segment) for segment in bench.head.read()]
    assert receipt["options"]["outside"] == "keep"
    assert receipt["finished_at"] == NOW.isoformat()
    assert receipt["snapshots"] == 5
    assert (receipt["status"], receipt["attempts"], receipt["files_failed"], receipt["failures"]) == (
        "PURGED",
        1,
        0,
        None,
    )
    assert receipt["seconds_since_planned"] == 0.0
    assert receipt["request"] == {}
    assert "secret" not in json.dumps(receipt)


def test_no_stored_object_has_a_credential(bench: PurgedTables) -> None:
    purge_table(bench.context("t"))
    everything = b"".join(
        gzip.decompress(data) if key.endswith(".gz") else data
        for key, data in bench.plans.objects.items()
        if "/done/" not in key
    )
    assert b"secret" not in everything
    assert b"token" not in everything


def test_the_estimate_counts_entries_without_reading_a_manifest(bench: PurgedTables) -> None:
    faults = Faults()
    small = estimate(bench.context("t", faults=faults))
    entries = sum(
        manifest.added_files_count + manifest.existing_files_count + manifest.deleted_files_count
        for manifest in {
            manifest.manifest_path: manifest
            for snapshot in bench.lake.table("t").snapshots()
            for manifest in snapshot.manifests(bench.lake.io)
        }.values()
    )
    former = len(bench.lake.table("t").metadata.metadata_log)
    assert (small.files, small.manifests, small.engine, small.planned) == (entries + former, 7, "inline", False)
    assert faults.names.count("read") == 5 + 1  # manifest lists, and one former metadata file for all
    large = estimate(bench.context("t", settings=PurgeSettings(inline_max_files=entries - 1)))
    assert large.engine == "spark"
    hasty = Faults()
    assert (
        estimate(bench.context("t", settings=PurgeSettings(inline_max_files=0, read_threads=1), faults=hasty)).engine
        == "spark"
    )
    assert hasty.names.count("read") == 2  # one list is enough, and one former metadata file


def test_the_estimate_with_a_plan_is_what_is_left_of_it(bench: PurgedTables) -> None:
    whole = len(ours(bench))
    published(bench)
    assert estimate(bench.context("t")).files == whole
    purge_table(bench.context("t"))
    found = estimate(bench.context("t"))
    assert (found.planned, found.files) == (True, 0)


def test_the_estimate_of_an_earlier_plan_is_its_size_and_a_stale_plan_is_refused(bench: PurgedTables) -> None:
    requested = PurgeOptions(execute_plan=plan_dry(bench))
    faults = Faults()
    planned = estimate(bench.context("t", options=requested, faults=faults))
    assert (planned.files, planned.planned) == (len(ours(bench)), True)
    assert "read" not in faults.names
    bench.lake.table("t").append(rows(9))
    with pytest.raises(PlanOutdated):
        estimate(bench.context("t", options=requested))


def test_the_estimate_refuses_a_table_that_must_not_be_purged(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"properties": {"gc.enabled": "false"}})
    with pytest.raises(GuardRefused, check=coded("GC_DISABLED")):
        estimate(bench.context("t"))


def test_a_published_segment_has_the_hash_of_the_stored_index(bench: PurgedTables) -> None:
    purge_table(bench.context("t"))
    (segment,) = bench.head.read()
    index = load_index(bench.plans, segment)
    assert index.files_planned == bench.head.files_planned
    assert parse(index.metadata_location).key.endswith(".metadata.json")
    with pytest.raises(PlanTampered):
        load_index(bench.plans, dataclasses.replace(segment, sha256="0" * 64))
