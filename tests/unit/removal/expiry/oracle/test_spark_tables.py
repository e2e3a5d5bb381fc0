"""Expiries of the tables that real Spark wrote (tests/fixtures), all in one store; fastavro reads what they need."""

from functools import cache

import pytest

from delegation.iceberg.metadata import decode_metadata
from delegation.removal.expiry.retention import Retention
from tests.actions.lake import SparkLake, where
from tests.effort import THOROUGH
from tests.expiry.action.lake import expire
from tests.fixtures import corpus
from tests.unit.removal.purge.oracle.oracle import everything

FAR_MS = 4_000_000_000_000
RETENTIONS = {
    "nothing kept": Retention(older_than_ms=FAR_MS, retain_last=1),
    "two kept": Retention(older_than_ms=FAR_MS, retain_last=2),
    "refs too": Retention(older_than_ms=FAR_MS, retain_last=1, max_ref_age_ms=1),
    "metadata too": Retention(older_than_ms=FAR_MS, retain_last=1, clean_expired_metadata=True),
}


@cache
def tables() -> list[tuple[str, str]]:
    """Return the scenarios and tables that have more than one snapshot and whose files are all there."""
    found = []
    for name in corpus.names():
        for table in corpus.load(name).tables:
            if not table.live:
                continue
            document = decode_metadata(table.metadata_location, everything()[where(table.metadata_location)])
            if len(document.get("snapshots") or ()) > 1:
                found.append((name, table.name))
    return found


def expiries() -> list[tuple[str, str, str]]:
    """Return each table with each retention, or in a short run each table with the next one."""
    every = [[(*table, retention) for retention in RETENTIONS] for table in tables()]
    if THOROUGH:
        return [one for row in every for one in row]
    return [row[number % len(row)] for number, row in enumerate(every)]


@pytest.mark.parametrize(("scenario", "name", "retention"), expiries())
def test_what_only_expired_snapshots_of_spark_reach_is_deleted_and_nothing_else(
    scenario: str, name: str, retention: str
) -> None:
    lake = SparkLake(scenario, FAR_MS)
    document = lake.metadata(name)
    before = set(lake.uris())
    reached = {
        one.name: one.reached() & before for one in corpus.load(scenario).tables if one.live and one.name != name
    }
    # What is asked of the files is known before they are deleted.
    kept_ids = {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()}
    kept_ids |= {document["current-snapshot-id"]}
    needs = {snapshot_id: lake.needed(document, {snapshot_id}) for snapshot_id in kept_ids}
    by_ids = {one["snapshot-id"]: one for one in document["snapshots"]}

    copy = SparkLake(scenario, FAR_MS)
    expiry = expire(lake, name, RETENTIONS[retention])

    left = {one["snapshot-id"] for one in lake.metadata(name)["snapshots"]}
    assert set(by_ids) - left == set(expiry.result.snapshot_ids)
    assert document["current-snapshot-id"] in left
    for snapshot_id in left & needs.keys():
        assert needs[snapshot_id] & before <= set(lake.uris())
    for other, files in reached.items():
        assert files <= set(lake.uris()), other
    if expiry.result.status == "NOTHING":
        assert expiry.deleted == set()
        return
    assert copy.needed(document, left) & expiry.deleted == set()
    expected = copy.only(document, left) & before
    metadata = {uri for uri in expiry.deleted if ".metadata.json" in uri}
    assert expiry.deleted - metadata == expected - expiry.kept
    if document.get("properties", {}).get("write.metadata.delete-after-commit.enabled") != "true":
        assert metadata == set()
