"""Expiries of the tables that real Spark wrote (tests/fixtures), all in one store; fastavro reads what they need."""

import io
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import fastavro
import pytest

from delegation.iceberg.metadata import decode_metadata
from delegation.identifiers import TableIdentifier
from delegation.keeping.model import Neighbour
from delegation.operations.expiry.context import ExpiryContext
from delegation.operations.expiry.index import load_plan
from delegation.operations.expiry.phases import expire_snapshots
from delegation.operations.expiry.retention import Retention
from delegation.persistence.iceberg.updates.tables import updated_table
from delegation.polaris.model import LoadedTable
from delegation.storage.memory import Faults, MemoryObjectStore, MemoryPlanStore
from delegation.worksets.attempt import MemoryAttempt
from delegation.worksets.chunks import Phase
from delegation.worksets.index import planned_paths
from tests.fixtures import corpus
from tests.fixtures.corpus import plain
from tests.unit.operations.expiry.world import SMALL
from tests.unit.operations.purge.lake import Lake, LakeSource, identifier
from tests.unit.operations.purge.oracle.oracle import everything

FAR_MS = 4_000_000_000_000
DELETED = 2
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


def where(uri: str) -> tuple[str, str]:
    bucket, _, key = plain(uri).removeprefix("s3://").partition("/")
    return bucket, key


class SparkLake(Lake):
    """The objects of all scenarios, and the live tables of one; commits are made as a catalog does."""

    def __init__(self, scenario: str) -> None:
        super().__init__()
        self.objects.update(everything())
        self.pointers.update({one.name: one.metadata_location for one in corpus.load(scenario).tables if one.live})

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        name, before = identifier.name, self.pointers[identifier.name]
        document = updated_table(self.metadata(name), requirements, updates, now_ms=FAR_MS, previous_file=before)
        pointer = f"{before.rpartition('/')[0]}/99999-{uuid.uuid4()}.metadata.json"
        self.objects[where(pointer)] = json.dumps(document).encode()
        self.pointers[name] = pointer
        return LakeSource(self, name).load()

    def records(self, uri: str) -> list[Any]:
        return list(fastavro.reader(io.BytesIO(self.objects[where(uri)])))

    def manifests_of(self, snapshot: Mapping[str, Any]) -> list[str]:
        if "manifest-list" in snapshot:
            return [one["manifest_path"] for one in self.records(snapshot["manifest-list"])]
        return list(snapshot["manifests"])

    def files_of(self, manifest: str, *, live: bool) -> set[str]:
        entries = self.records(manifest)
        return {plain(one["data_file"]["file_path"]) for one in entries if not live or one["status"] != DELETED}

    def needed(self, document: Mapping[str, Any], ids: set[int]) -> set[str]:
        """Return every file that readers of these snapshots open."""
        found: set[str] = set()
        for one in document["snapshots"]:
            if one["snapshot-id"] in ids:
                found |= {plain(one["manifest-list"])} if "manifest-list" in one else set()
                for manifest in self.manifests_of(one):
                    found |= {plain(manifest), *self.files_of(manifest, live=True)}
        for section in ("statistics", "partition-statistics"):
            found |= {plain(s["statistics-path"]) for s in document.get(section) or () if s["snapshot-id"] in ids}
        return found

    def only(self, document: Mapping[str, Any], ids: set[int]) -> set[str]:
        """Return what the other snapshots than these name and these do not need."""
        others = {one["snapshot-id"] for one in document["snapshots"]} - ids
        kept = {m for one in document["snapshots"] if one["snapshot-id"] in ids for m in self.manifests_of(one)}
        found = self.needed(document, others)
        for one in document["snapshots"]:
            if one["snapshot-id"] in others:
                for manifest in set(self.manifests_of(one)) - kept:
                    found |= self.files_of(manifest, live=False)
        return found - self.needed(document, ids)


def neighbours(lake: SparkLake, name: str) -> Iterator[Neighbour]:
    store = MemoryObjectStore()
    store.objects = lake.objects
    for other in lake.pointers:
        if other != name:
            yield Neighbour(LakeSource(lake, other, Faults()).load(), store)


@pytest.mark.parametrize("retention", RETENTIONS.values(), ids=RETENTIONS)
@pytest.mark.parametrize(("scenario", "name"), tables(), ids=lambda text: text)
def test_what_only_expired_snapshots_of_spark_reach_is_deleted_and_nothing_else(
    scenario: str, name: str, retention: Retention
) -> None:
    lake = SparkLake(scenario)
    document = lake.metadata(name)
    before = set(lake.uris())
    reached = {
        one.name: one.reached() & before for one in corpus.load(scenario).tables if one.live and one.name != name
    }
    store, plans = MemoryObjectStore(), MemoryPlanStore()
    store.objects = lake.objects
    ctx = ExpiryContext(
        attempt=MemoryAttempt("task"),
        identifier=identifier(name),
        table_uuid=str(document["table-uuid"]),
        tables=LakeSource(lake, name, prefixes=("s3://lake/",)),
        commits=lake,
        store=store,
        plans=plans,
        retention=retention,
        settings=SMALL,
        neighbours=lambda _roots: list(neighbours(lake, name)),
        clock=lambda: datetime.fromtimestamp(FAR_MS / 1000, UTC),
    )
    # What is asked of the files is known before they are deleted.
    kept_ids = {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()}
    kept_ids |= {document["current-snapshot-id"]}
    needs = {snapshot_id: lake.needed(document, {snapshot_id}) for snapshot_id in kept_ids}
    by_ids = {one["snapshot-id"]: one for one in document["snapshots"]}

    copy = SparkLake(scenario)
    result = expire_snapshots(ctx)

    left = {one["snapshot-id"] for one in lake.metadata(name)["snapshots"]}
    deleted = before - set(lake.uris())
    assert set(by_ids) - left == set(result.snapshot_ids)
    assert document["current-snapshot-id"] in left
    for snapshot_id in left & needs.keys():
        assert needs[snapshot_id] & before <= set(lake.uris())
    for other, files in reached.items():
        assert files <= set(lake.uris()), other
    if result.status == "NOTHING":
        assert deleted == set()
        return
    assert copy.needed(document, left) & deleted == set()
    expected = copy.only(document, left) & before
    indexes = [load_plan(plans, segment) for segment in ctx.attempt.plan()]
    indexes += [load_plan(plans, one) for index in indexes for one in index.reduces]  # type: ignore[arg-type]
    kept = set(planned_paths(plans, indexes, (Phase.KEPT,)))
    metadata = {uri for uri in deleted if ".metadata.json" in uri}
    assert deleted - metadata == expected - kept
    if document.get("properties", {}).get("write.metadata.delete-after-commit.enabled") != "true":
        assert metadata == set()
