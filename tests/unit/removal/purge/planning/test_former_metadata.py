"""Former metadata whose bucket does not exist any more is a finding and never a stop, of either table."""

import dataclasses
import json
from typing import Any

import pytest

from delegation.polaris.model import LoadedTable
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions
from delegation.storage.base import BatchResult, BucketNotFound, KeyFailure
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import Faults, MemoryObjectStore
from tests.kit.lakes.lake import LakeSource, PurgedTables, busy_table, filled
from tests.unit.removal.purge.planning.executors_here import ENGINES

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


@pytest.fixture
def bench() -> PurgedTables:
    return filled(PurgedTables(), "t")


def log_names_the_gone_bucket(bench: PurgedTables, name: str) -> None:
    log = bench.lake.metadata(name)["metadata-log"]
    bench.lake.rewrite_metadata(name, {"metadata-log": [{"metadata-file": GONE, "timestamp-ms": 1}, *log]})


def context(bench: PurgedTables, options: PurgeOptions) -> PurgeContext:
    store = WithoutABucket()
    store.objects = bench.lake.objects
    return dataclasses.replace(bench.context("t", options=options, prefixes=ALL), store=store)


def findings(bench: PurgedTables, plan: str) -> dict[str, Any]:
    found = json.loads(bench.plans.objects[f"{plan}/receipt.json"])["findings"]
    return {one["code"]: one for one in found}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("outside", ["keep", "refuse", "delete"])
def test_a_former_metadata_file_in_a_bucket_that_is_gone_is_a_finding(
    bench: PurgedTables, outside: Any, engine: str
) -> None:
    log_names_the_gone_bucket(bench, "t")
    result = ENGINES[engine](context(bench, PurgeOptions(outside=outside)))
    assert (result.status, set(bench.lake.uris())) == ("PURGED", set())
    former = findings(bench, result.plan_ids[0])["FORMER_METADATA_UNREADABLE"]
    assert (former["count"], former["sample"]) == (1, [GONE])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_neighbours_former_metadata_in_a_bucket_that_is_gone_is_a_finding(bench: PurgedTables, engine: str) -> None:
    busy_table(bench.lake, "near", location="s3://lake/wh/t/near")
    theirs = bench.lake.below("s3://lake/wh/t/near/")
    log_names_the_gone_bucket(bench, "near")
    ctx = context(bench, PurgeOptions())
    near = LakeSource(bench.lake, "near", Faults(), ALL).load()
    result = ENGINES[engine](beside(ctx, near))
    assert (result.status, set(bench.lake.uris())) == ("PURGED", theirs)
    assert findings(bench, result.plan_ids[0])["FORMER_METADATA_UNREADABLE"]["sample"] == [GONE]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_neighbours_manifest_list_in_a_bucket_that_is_gone_is_up_to_the_operators_setting(
    bench: PurgedTables, engine: str
) -> None:
    """What it names is unknown, unlike that of former metadata."""
    busy_table(bench.lake, "near", location="s3://lake/wh/t/near")
    [*others, last] = bench.lake.metadata("near")["snapshots"]
    lost = {**last, "manifest-list": "s3://gone/list.avro"}
    bench.lake.rewrite_metadata("near", {"snapshots": [*others, lost]})
    near = LakeSource(bench.lake, "near", Faults(), ALL).load()
    with pytest.raises(NeighbourUnreadable, match="BUCKET_NOT_FOUND"):
        ENGINES[engine](beside(context(bench, PurgeOptions()), near))
    bench.head = type(bench.head)()
    result = ENGINES[engine](beside(context(bench, PurgeOptions(neighbour="report")), near))
    assert findings(bench, result.plan_ids[0])["NEIGHBOUR_UNREADABLE"]["sample"] == ["cat.ns.near: BUCKET_NOT_FOUND"]


def beside(ctx: PurgeContext, near: LoadedTable) -> PurgeContext:
    return dataclasses.replace(ctx, neighbours=lambda _roots: [Neighbour(near, ctx.store)])
