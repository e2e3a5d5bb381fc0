"""Former metadata whose bucket does not exist any more is a finding and never a stop, of either table."""

import dataclasses
from typing import Any

import pytest

from delegation.removal.attempt import PlanHead
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.requests import PurgeOptions
from delegation.storage.base import BatchResult, BucketNotFound, KeyFailure
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import MemoryObjectStore
from tests.kit.lakes.lake import LakeSource, PurgedTables, busy_table
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines

GONE = "s3://gone/metadata/00000-former.metadata.json"
ALL = ("s3://lake/", "s3://gone/")


class WithoutABucket(MemoryObjectStore):
    """A store that has no bucket `gone` and says so in every answer about it."""

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        if location.bucket == "gone":
            raise BucketNotFound("the object store has no bucket gone")
        return super().read(location, limit=limit)

    def delete(self, bucket: str, keys: Any) -> BatchResult:
        if bucket == "gone":
            return BatchResult((), tuple(KeyFailure(key, "NoSuchBucket") for key in keys))
        return super().delete(bucket, keys)


def found(bench: PurgedTables, result: PurgeResult, code: str) -> list[tuple[int, list[str]]]:
    return [(one["count"], one["sample"]) for one in bench.receipt(result)["findings"] if one["code"] == code]


def log_names_the_gone_bucket(bench: PurgedTables, name: str) -> None:
    log = bench.lake.metadata(name)["metadata-log"]
    bench.lake.rewrite_metadata(name, {"metadata-log": [{"metadata-file": GONE, "timestamp-ms": 1}, *log]})


def context(bench: PurgedTables, **options: Any) -> PurgeContext:
    """Return a purge of `t` beside the other table, if there is one."""
    store = WithoutABucket()
    store.objects = bench.lake.objects
    near = [LakeSource(bench.lake, name, prefixes=ALL).load() for name in bench.lake.pointers if name != "t"]
    ctx = bench.context("t", options=PurgeOptions(**options), prefixes=ALL)
    return dataclasses.replace(ctx, store=store, neighbours=lambda _roots: [Neighbour(one, store) for one in near])


@engines
@pytest.mark.parametrize("outside", ["keep", "refuse", "delete"])
def test_a_former_metadata_file_in_a_bucket_that_is_gone_is_a_finding(
    bench: PurgedTables, outside: str, engine: str
) -> None:
    log_names_the_gone_bucket(bench, "t")
    result = ENGINES[engine](context(bench, outside=outside))
    assert (result.status, set(bench.lake.uris())) == ("PURGED", set())
    assert found(bench, result, "FORMER_METADATA_UNREADABLE") == [(1, [GONE])]


@engines
def test_a_neighbours_former_metadata_in_a_bucket_that_is_gone_is_a_finding(bench: PurgedTables, engine: str) -> None:
    busy_table(bench.lake, "near", location="s3://lake/wh/t/near")
    theirs = bench.lake.below("s3://lake/wh/t/near/")
    log_names_the_gone_bucket(bench, "near")
    result = ENGINES[engine](context(bench))
    assert (result.status, set(bench.lake.uris())) == ("PURGED", theirs)
    assert found(bench, result, "FORMER_METADATA_UNREADABLE") == [(1, [GONE])]


@engines
def test_a_neighbours_manifest_list_in_a_bucket_that_is_gone_is_up_to_the_operators_setting(
    bench: PurgedTables, engine: str
) -> None:
    """What it names is unknown, unlike that of former metadata."""
    busy_table(bench.lake, "near", location="s3://lake/wh/t/near")
    [*others, last] = bench.lake.metadata("near")["snapshots"]
    bench.lake.rewrite_metadata("near", {"snapshots": [*others, {**last, "manifest-list": "s3://gone/list.avro"}]})
    assert "BUCKET_NOT_FOUND" in str(bench.refused(context(bench), ENGINES[engine]))
    bench.head = PlanHead()
    result = ENGINES[engine](context(bench, neighbour="report"))
    assert found(bench, result, "NEIGHBOUR_UNREADABLE") == [(1, ["cat.ns.near: BUCKET_NOT_FOUND"])]
