"""Files of other live tables are never deleted, and an overlapping table that cannot be read refuses the purge."""

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
from delegation.removal.purge.run import purge_table
from delegation.storage.base import ObjectStoreDenied
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import MemoryObjectStore
from tests.kit.lakes.lake import PurgedTables, busy_table, rows


class Unreadable(MemoryObjectStore):
    """A store that raises an error for every read."""

    def __init__(self, trouble: Exception) -> None:
        super().__init__()
        self._trouble = trouble

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        raise self._trouble


@pytest.mark.parametrize("trouble", [ObjectStoreDenied("no"), PolarisForbidden("no"), CredentialVendingFailed("none")])
def test_an_overlapping_table_with_access_denied_refuses_the_purge(bench: PurgedTables, trouble: Exception) -> None:
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    refused = bench.refused(bench.beside("clone", store=Unreadable(trouble)))
    assert isinstance(refused, NeighbourUnreadable)
    assert (refused.who, refused.why) == ("cat.ns.clone", trouble.code)


def test_a_table_without_overlap_is_never_read(bench: PurgedTables) -> None:
    busy_table(bench.lake, "far")
    rest = bench.left("far")
    result = purge_table(bench.beside("far", store=Unreadable(ObjectStoreDenied("no"))))
    assert set(bench.lake.uris()) == rest
    [checked] = read_index(bench.plans, result.plan_ids[0]).neighbours
    assert (checked.identifier, checked.overlaps) == ("cat.ns.far", False)


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("snap-", b"x" * 100, "CORRUPT_MANIFEST"),
        ("snap-", None, "MANIFEST_MISSING"),
        ("-m0.avro", None, "MANIFEST_MISSING"),
    ],
)
def test_an_overlapping_table_that_is_damaged_refuses_the_purge(
    bench: PurgedTables, kind: str, data: bytes | None, why: str
) -> None:
    """A manifest is lost, not expired, if no newer commit explains that it is missing."""
    busy_table(bench.lake, "nested", location="s3://lake/wh/t/nested")
    damaged = next(uri for uri in bench.lake.uris() if "/nested/" in uri and kind in uri)
    bench.lake.io.delete(damaged) if data is None else bench.lake.write(damaged, data)
    refused = bench.refused(bench.beside("nested"))
    assert isinstance(refused, NeighbourUnreadable)
    assert (refused.why, refused.is_found) == (why, True)


@pytest.mark.parametrize("trouble", [TableMetadataMissing("purged"), NoSuchTable("dropped"), NoSuchNamespace("too")])
def test_a_table_that_is_purged_or_dropped_while_it_is_read_is_a_retryable_error(
    bench: PurgedTables, trouble: Exception
) -> None:
    """Its credentials are vended at the first read: by then a purge of its own may have ended, as of a tombstone."""
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    refused = bench.refused(bench.beside("clone", store=Unreadable(trouble)))
    assert isinstance(refused, NeighbourChanged)
    assert ("cat.ns.clone" in str(refused), refused.retryable) == (True, True)


def test_a_clone_with_a_new_location_still_protects_the_files_it_reaches(bench: PurgedTables) -> None:
    shared = set(bench.lake.uris())
    moved = bench.lake.write(f"s3://lake/elsewhere/{bench.uuid('t')}.metadata.json", b"{}")
    bench.lake.pointers["clone"] = moved
    metadata = {**bench.lake.metadata("t"), "location": "s3://lake/elsewhere"}
    bench.lake.rewrite_metadata("clone", {**metadata, "metadata-log": []})
    bench.lake.table("t").append(rows(77))
    log = {one for one in shared if one.endswith(".metadata.json")}
    result = purge_table(bench.beside("clone", prefixes=("s3://lake/",)))
    assert set(bench.lake.uris()) == (shared - log) | {moved}
    [checked] = bench.receipt(result)["neighbours"]
    assert (checked["identifier"], checked["overlaps"]) == ("cat.ns.clone", True)


@pytest.mark.parametrize("location", ["abfss://fs@account.dfs.core.windows.net/t", "s3://lake/wh/t#x", "file:///tmp/t"])
def test_a_table_in_another_storage_does_not_overlap(bench: PurgedTables, location: str) -> None:
    bench.lake.create("other", location="s3://lake/wh/other")
    bench.lake.rewrite_metadata("other", {"location": location})
    purge_table(bench.beside("other", store=Unreadable(ObjectStoreDenied("no"))))
    assert set(bench.lake.uris()) == {bench.lake.pointers["other"]}
