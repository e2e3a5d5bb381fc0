"""Files of other live tables are never deleted, and an overlapping table that cannot be read refuses the purge."""

import dataclasses
from typing import Any

import pytest

from delegation.polaris.answers import (
    CredentialVendingFailed,
    NoSuchNamespace,
    NoSuchTable,
    PolarisForbidden,
    TableMetadataMissing,
)
from delegation.removal.errors import NeighbourChanged, NeighbourUnreadable
from delegation.removal.index import read_index
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.run import purge_table
from delegation.storage.base import ObjectStoreDenied
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import Faults, MemoryObjectStore
from tests.kit.lakes.lake import LakeSource, PurgedTables, busy_table, filled, rows


@pytest.fixture
def bench() -> PurgedTables:
    return filled(PurgedTables(), "t")


class Unreadable(MemoryObjectStore):
    """A store that raises `trouble` for every read."""

    trouble: Exception = ObjectStoreDenied("denied")

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        raise self.trouble


def beside(bench: PurgedTables, *names: str, store: MemoryObjectStore | None = None, **options: Any) -> PurgeContext:
    """Return the context of a purge of `t` with neighbours."""
    ctx = bench.context("t", **options)
    reads = store or MemoryObjectStore()
    reads.objects = bench.lake.objects
    return dataclasses.replace(
        ctx,
        neighbours=lambda _roots: [Neighbour(LakeSource(bench.lake, name, Faults()).load(), reads) for name in names],
    )


@pytest.mark.parametrize("trouble", [ObjectStoreDenied("no"), PolarisForbidden("no"), CredentialVendingFailed("none")])
def test_an_overlapping_table_with_access_denied_refuses_the_purge(bench: PurgedTables, trouble: Exception) -> None:
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    before = set(bench.lake.uris())
    store = Unreadable()
    store.trouble = trouble
    with pytest.raises(NeighbourUnreadable, match=r"cat\.ns\.clone") as refused:
        purge_table(beside(bench, "clone", store=store))
    assert refused.value.why == trouble.code
    assert set(bench.lake.uris()) == before


def test_a_table_without_overlap_is_never_read(bench: PurgedTables) -> None:
    busy_table(bench.lake, "far")
    rest = bench.lake.below("s3://lake/wh/far/")
    result = purge_table(beside(bench, "far", store=Unreadable()))
    assert set(bench.lake.uris()) == rest
    [checked] = read_index(bench.plans, result.plan_ids[0]).neighbours
    assert (checked.identifier, checked.overlaps) == ("cat.ns.far", False)


def test_a_corrupt_overlapping_table_refuses_the_purge(bench: PurgedTables) -> None:
    busy_table(bench.lake, "nested", location="s3://lake/wh/t/nested")
    lists = [where for where in bench.lake.objects if "/nested/" in where[1] and "snap-" in where[1]]
    bench.lake.objects[lists[0]] = b"x" * 100
    before = set(bench.lake.uris())
    with pytest.raises(NeighbourUnreadable) as refused:
        purge_table(beside(bench, "nested"))
    assert refused.value.why == "CORRUPT_MANIFEST"
    assert set(bench.lake.uris()) == before


@pytest.mark.parametrize("kind", ["snap-", "-m0.avro"])
def test_a_missing_manifest_of_an_overlapping_table_without_a_newer_commit_is_lost(
    bench: PurgedTables, kind: str
) -> None:
    busy_table(bench.lake, "nested", location="s3://lake/wh/t/nested")
    missing = next(where for where in bench.lake.objects if "/nested/" in where[1] and kind in where[1])
    del bench.lake.objects[missing]
    before = set(bench.lake.uris())
    with pytest.raises(NeighbourUnreadable) as raised:
        purge_table(beside(bench, "nested"))
    assert raised.value.is_found
    assert set(bench.lake.uris()) == before


@pytest.mark.parametrize("trouble", [TableMetadataMissing("purged"), NoSuchTable("dropped"), NoSuchNamespace("too")])
def test_a_table_that_is_purged_or_dropped_while_it_is_read_is_a_retryable_error(
    bench: PurgedTables, trouble: Exception
) -> None:
    """Its credentials are vended at the first read: by then a purge of its own may have ended, as of a tombstone."""
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    before = set(bench.lake.uris())
    store = Unreadable()
    store.trouble = trouble
    with pytest.raises(NeighbourChanged, match=r"cat\.ns\.clone .* no longer exists") as raised:
        purge_table(beside(bench, "clone", store=store))
    assert raised.value.retryable
    assert set(bench.lake.uris()) == before


def test_a_nested_table_survives_the_purge_of_the_outer_one(bench: PurgedTables) -> None:
    busy_table(bench.lake, "nested", location="s3://lake/wh/t/data/nested")
    theirs = bench.lake.below("s3://lake/wh/t/data/nested/")
    purge_table(beside(bench, "nested"))
    assert set(bench.lake.uris()) == theirs


def test_a_clone_with_a_new_location_still_protects_the_files_it_reaches(bench: PurgedTables) -> None:
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    shared = set(bench.lake.uris())
    moved = f"s3://lake/elsewhere/{bench.uuid('t')}.metadata.json"
    bench.lake.objects["lake", moved.removeprefix("s3://lake/")] = b"{}"
    bench.lake.pointers["clone"] = moved
    metadata = {**bench.lake.metadata("t"), "location": "s3://lake/elsewhere"}
    bench.lake.rewrite_metadata("clone", {**metadata, "metadata-log": []})
    bench.lake.table("t").append(rows(77))
    log = {one for one in shared if one.endswith(".metadata.json")}
    purge_table(beside(bench, "clone", prefixes=("s3://lake/",)))
    assert set(bench.lake.uris()) == (shared - log) | {moved}


@pytest.mark.parametrize("location", ["abfss://fs@account.dfs.core.windows.net/t", "s3://lake/wh/t#x", "file:///tmp/t"])
def test_a_table_in_another_storage_does_not_overlap(bench: PurgedTables, location: str) -> None:
    bench.lake.create("other", location="s3://lake/wh/other")
    bench.lake.rewrite_metadata("other", {"location": location})
    purge_table(beside(bench, "other", store=Unreadable()))
    assert set(bench.lake.uris()) == {bench.lake.pointers["other"]}
