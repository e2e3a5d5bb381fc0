"""Making, publishing, verifying and executing a plan, and every way a purge can end."""

import dataclasses
import gzip
import hashlib
import json
import re
from typing import Any

import pytest

from delegation.errors import RunCancelled, RunHandedOver
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Phase
from delegation.removal.errors import FilesNotDeleted, FilesNotDeletedYet, FilesThrottled, PlanTampered
from delegation.removal.index import read_index
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.memory import Faults, Killed
from delegation.tasks.errors import LeaseLost
from tests.kit.lakes.lake import FAST, NOW, PurgedTables, filled, rows


@pytest.fixture
def bench(bench: PurgedTables) -> PurgedTables:
    return filled(bench, "sibling")


def test_the_plan_can_be_read_with_standard_tools(bench: PurgedTables) -> None:
    plan_id = bench.dry_run()
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
    assert sorted(listed) == sorted(bench.left())
    assert index["counts"]["data"]["files"] == 5
    assert index["counts"]["metadata"]["files"] == 1


def test_a_dry_run_deletes_nothing_and_returns_the_plans_size(bench: PurgedTables) -> None:
    before = set(bench.lake.uris())
    ctx = bench.context("t", options=PurgeOptions(dry_run=True))
    result = purge_table(ctx)
    assert set(bench.lake.uris()) == before
    assert (result.status, result.files_planned, result.files_deleted) == ("PLANNED", len(bench.left()), 0)
    assert result.receipt is None
    assert not ctx.attempt.deleting
    assert not {"delete", "probe"} & set(ctx.store.faults.names)


def test_an_earlier_plan_is_executed_unaltered(bench: PurgedTables) -> None:
    plan_id = bench.dry_run()
    faults = Faults()
    result = purge_table(bench.context("t", options=PurgeOptions(execute_plan=plan_id), faults=faults))
    assert result.plan_ids == (plan_id,)
    assert "read" not in faults.names
    assert bench.left() == set()


def test_an_earlier_plan_is_stale_after_a_commit(bench: PurgedTables) -> None:
    requested = PurgeOptions(execute_plan=bench.dry_run())
    faults = Faults()
    planned = estimate(bench.context("t", options=requested, faults=faults))
    assert (planned.files, planned.planned) == (len(bench.left()), True)
    assert "read" not in faults.names
    bench.lake.table("t").append(rows(9))
    for work in (estimate, purge_table):
        assert bench.refused(bench.context("t", options=requested), work).code == "PLAN_OUTDATED"


@pytest.mark.parametrize("plan", ["sibling", "clone", None])
def test_the_plan_of_another_table_is_refused(bench: PurgedTables, plan: str | None) -> None:
    """A clone's too, although the uuid is the same."""
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    plan_id = "no/such/plan" if plan is None else bench.dry_run(plan)
    refused = bench.refused(bench.context("t", options=PurgeOptions(execute_plan=plan_id)))
    assert refused.code == (PlanTampered.code if plan is None else "PLAN_OF_ANOTHER_TABLE")
    assert plan != "clone" or "cat.ns.clone" in str(refused)


def with_another_path(data: bytes, victim: str) -> bytes:
    lines = gzip.decompress(data).splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "path": victim}).encode()
    return gzip.compress(b"\n".join(lines) + b"\n", mtime=0)


@pytest.mark.parametrize("part", ["DATA-00000", "META-00001", "ROOT-00000"])
@pytest.mark.parametrize("how", ["changed", "truncated"])
def test_nothing_in_a_tampered_chunk_is_deleted(bench: PurgedTables, part: str, how: str) -> None:
    plan_id = bench.publish()
    key = f"{plan_id}/{part}.jsonl.gz"
    victims = bench.left("sibling")
    change = {"changed": lambda data: with_another_path(data, min(victims)), "truncated": lambda data: data[:-9]}[how]
    bench.plans.objects[key] = change(bench.plans.objects[key])
    with pytest.raises(PlanTampered):
        purge_table(bench.context("t"))
    assert bench.left("sibling") == victims
    assert bench.lake.pointers["t"] in set(bench.lake.uris())


@pytest.mark.parametrize("how", ["changed", "not json"])
def test_nothing_is_deleted_with_a_tampered_index(bench: PurgedTables, how: str) -> None:
    key = f"{bench.publish()}/index.json"
    bench.plans.objects[key] = b"{" if how == "not json" else bench.plans.objects[key].replace(b"keep", b"delete")
    assert isinstance(bench.refused(bench.context("t")), PlanTampered)


def test_paths_are_checked_again_although_every_hash_matches(bench: PurgedTables) -> None:
    """Write access to the plan bucket and to the task is not enough to delete files outside the plan's roots."""
    plan_id = bench.publish()
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
    publish, delete = slow.attempt.publish, quick.store.delete

    def dies(bucket: str, keys: Any) -> None:
        delete(bucket, keys)
        raise Killed("after the first delete")

    def late(segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        with pytest.raises(Killed):
            purge_table(quick)
        return publish(segment, files_planned=files_planned)

    quick.store.delete = dies
    slow.attempt.publish = late
    result = purge_table(slow)
    assert result.plan_ids == (bench.head.read()[0].id,)
    assert result.plan_ids[0].startswith("task/2/")
    assert bench.left() == set()
    assert bench.left("sibling") != set()


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("gc.enabled", "false", "GC_DISABLED"), ("delegation.protected", "true", "TABLE_PROTECTED")],
)
def test_a_property_that_is_set_after_planning_refuses_the_purge(
    bench: PurgedTables, name: str, value: str, code: str
) -> None:
    bench.publish()
    bench.lake.table("t").transaction().set_properties(**{name: value}).commit_transaction()
    assert bench.refused(bench.context("t")).code == code


def test_another_table_with_the_same_name_is_refused(bench: PurgedTables) -> None:
    bench.publish()
    bench.lake.pointers["t"] = bench.lake.pointers["sibling"]
    refused = bench.refused(bench.context("t"))
    assert refused.code == "TABLE_UUID_MISMATCH"
    assert re.search(f"{bench.uuid('sibling')}.*{bench.uuid('t')}", str(refused))


def test_credentials_that_cannot_delete_are_found_before_the_first_delete(bench: PurgedTables) -> None:
    ctx = bench.context("t", denied=["s3://lake/"])
    assert bench.refused(ctx).code == "CREDENTIALS_CANNOT_DELETE"
    assert not ctx.attempt.deleting
    assert "delete" not in ctx.store.faults.names


@pytest.mark.parametrize(
    ("code", "error"),
    [("AccessDenied", FilesNotDeleted), ("InternalError", FilesNotDeletedYet), ("SlowDown", FilesThrottled)],
)
def test_an_undeletable_file_fails_the_purge_and_keeps_metadata(
    bench: PurgedTables, code: str, error: type[Exception]
) -> None:
    stubborn = sorted(uri for uri in bench.left() if uri.endswith(".parquet"))[1]
    ctx = bench.context("t", refuse=lambda _bucket, key, _nth: code if stubborn.endswith(key) else None)
    with pytest.raises(FilesNotDeleted) as failed:
        purge_table(ctx)
    assert type(failed.value) is error
    assert (failed.value.count, failed.value.sample) == (1, ((stubborn, code),))
    assert failed.value.retryable == (code != "AccessDenied")
    left = bench.left()
    assert [uri for uri in left if uri.endswith(".parquet")] == [stubborn]
    assert bench.lake.pointers["t"] in left
    assert len([uri for uri in left if uri.endswith(".avro")]) > 5
    assert ctx.attempt.reported.files_failed == 1
    [failures] = [key for key in bench.plans.objects if "/failed/" in key]
    assert json.loads(gzip.decompress(bench.plans.objects[failures])) == {"path": stubborn, "code": code}
    receipt = last_receipt(bench)
    assert (receipt["status"], receipt["files_failed"]) == ("INCOMPLETE", 1)
    assert receipt["files_deleted"] == ctx.attempt.reported.files_deleted
    assert receipt["failures"]["sample"] == [{"path": stubborn, "code": code}]
    assert receipt["failures"]["lists"] == [failures]
    result = purge_table(bench.context("t"))
    assert bench.left() == set()
    assert result.files_deleted == result.files_planned
    receipt = last_receipt(bench)
    assert (receipt["status"], receipt["files_failed"], receipt["attempts"]) == ("PURGED", 0, 2)


def last_receipt(bench: PurgedTables) -> dict[str, Any]:
    [receipt] = [json.loads(data) for key, data in bench.plans.objects.items() if key.endswith("/receipt.json")]
    return dict(receipt)


def test_a_metadata_file_that_cannot_be_deleted_is_no_success(bench: PurgedTables) -> None:
    root = bench.lake.pointers["t"]
    with pytest.raises(FilesNotDeleted):
        purge_table(
            bench.context("t", refuse=lambda _bucket, key, _nth: "AccessDenied" if root.endswith(key) else None)
        )
    assert bench.left() == {root}
    assert purge_table(bench.context("t")).status == "PURGED"
    assert bench.left() == set()


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
    assert bench.left() == set()


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
    whole = len(bench.left())
    with pytest.raises(type(ending)):
        purge_table(ctx)
    assert whole - FAST.batch <= len(bench.left()) < whole
    purge_table(bench.context("t"))
    assert bench.left() == set()


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
    receipt = bench.receipt(result)
    assert receipt["files_deleted"] == result.files_deleted == sum(one["files"] for one in receipt["by_type"].values())
    assert receipt["options"]["outside"] == "keep"
    stated = {
        "plan": [dataclasses.asdict(segment) for segment in bench.head.read()],
        "finished_at": NOW.isoformat(),
        "snapshots": 5,
        "status": "PURGED",
        "attempts": 1,
        "files_failed": 0,
        "failures": None,
        "seconds_since_planned": 0.0,
        "request": {},
    }
    assert receipt == receipt | stated


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
    faults, hasty = Faults(), Faults()
    small = estimate(bench.context("t", faults=faults))
    table = bench.lake.table("t")
    manifests = {one.manifest_path: one for each in table.snapshots() for one in each.manifests(bench.lake.io)}
    entries = sum(
        one.added_files_count + one.existing_files_count + one.deleted_files_count for one in manifests.values()
    )
    former = len(table.metadata.metadata_log)
    assert (small.files, small.manifests, small.engine, small.planned) == (entries + former, 7, "inline", False)
    assert faults.names.count("read") == 5 + 1  # manifest lists, and one former metadata file for all
    most = PurgeSettings(inline_max_files=entries - 1)
    assert estimate(bench.context("t", settings=most)).engine == "spark"
    none = PurgeSettings(inline_max_files=0, read_threads=1)
    assert estimate(bench.context("t", settings=none, faults=hasty)).engine == "spark"
    assert hasty.names.count("read") == 2  # one list is enough, and one former metadata file


def test_the_estimate_with_a_plan_is_what_is_left_of_it(bench: PurgedTables) -> None:
    whole = len(bench.left())
    bench.publish()
    assert estimate(bench.context("t")).files == whole
    purge_table(bench.context("t"))
    found = estimate(bench.context("t"))
    assert (found.planned, found.files) == (True, 0)
