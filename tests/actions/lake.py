"""Tables that Spark wrote (tests/fixtures) in memory, for this service; fastavro reads what their snapshots need."""

import io
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import fastavro

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.neighbourhood import Neighbour
from delegation.storage.memory import Faults, MemoryObjectStore
from polaris_persistence.iceberg.updates.tables import updated_table
from tests.fixtures import corpus
from tests.fixtures.corpus import plain
from tests.kit.lakes.lake import Lake, LakeSource
from tests.unit.removal.purge.oracle.oracle import everything

DELETED: Final = 2
"""The status of an entry whose file its snapshot removed."""


def where(uri: str) -> tuple[str, str]:
    """Return bucket and key of a path as written."""
    bucket, _, key = plain(uri).removeprefix("s3://").partition("/")
    return bucket, key


class SparkLake(Lake):
    """The objects of all scenarios, and the live tables of one; commits are made as a catalog does."""

    def __init__(self, scenario: str, now_ms: int) -> None:
        super().__init__()
        self.now_ms = now_ms
        self.objects.update(everything())
        self.pointers.update({one.name: one.metadata_location for one in corpus.load(scenario).tables if one.live})

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        """See Commits.commit_table."""
        name, before = identifier.name, self.pointers[identifier.name]
        document = updated_table(self.metadata(name), requirements, updates, now_ms=self.now_ms, previous_file=before)
        pointer = f"{before.rpartition('/')[0]}/99999-{uuid.uuid4()}.metadata.json"
        self.objects[where(pointer)] = json.dumps(document).encode()
        self.pointers[name] = pointer
        return LakeSource(self, name).load()

    def records(self, uri: str) -> list[Any]:
        """Return what an Avro file has."""
        return list(fastavro.reader(io.BytesIO(self.objects[where(uri)])))

    def manifests_of(self, snapshot: Mapping[str, Any]) -> list[str]:
        """Return the manifests of a snapshot."""
        if "manifest-list" in snapshot:
            return [one["manifest_path"] for one in self.records(snapshot["manifest-list"])]
        return list(snapshot["manifests"])

    def files_of(self, manifest: str, *, live: bool) -> set[str]:
        """Return the files of a manifest's entries."""
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

    def only(self, document: Mapping[str, Any], ids: set[int], *, live: bool = False) -> set[str]:
        """Return what the other snapshots than these name and these do not need."""
        others = {one["snapshot-id"] for one in document["snapshots"]} - ids
        kept = {m for one in document["snapshots"] if one["snapshot-id"] in ids for m in self.manifests_of(one)}
        found = self.needed(document, others)
        for one in document["snapshots"]:
            if one["snapshot-id"] in others and not live:
                for manifest in set(self.manifests_of(one)) - kept:
                    found |= self.files_of(manifest, live=False)
        return found - self.needed(document, ids)

    def neighbours(self, name: str) -> Iterator[Neighbour]:
        """Yield the live tables but one, as they are now."""
        store = MemoryObjectStore()
        store.objects = self.objects
        for other in self.pointers:
            if other != name:
                yield Neighbour(LakeSource(self, other, Faults()).load(), store)
