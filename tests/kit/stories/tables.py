"""Tables whose history a test writes, in a store in memory, and the catalog that commits to them as Iceberg does.

Manifests are written here and remembered, so that what a snapshot reads is known without the code under test.
"""

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import fastavro

from delegation.iceberg.history import version_of
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    CommitConflict,
    NoSuchTable,
    PolarisOutcomeUnknown,
    PolarisUnexpectedAnswer,
    TableMetadataMissing,
)
from delegation.polaris.client import loaded_table
from delegation.polaris.model import LoadedTable
from delegation.storage.credentials import S3Credential
from delegation.storage.locations import parse
from delegation.storage.memory import Faults
from polaris_persistence.errors import IcebergConflict, InvalidIcebergUpdate
from polaris_persistence.iceberg.updates.tables import updated_table
from tests.unit.iceberg.manifest_files import field as avro
from tests.unit.iceberg.manifest_files import optional

ADDED: Final = 1
EXISTING: Final = 0
DELETED: Final = 2
DATA: Final = 0
DELETES: Final = 1
MINUTE: Final = 60_000
_FILE = {
    "type": "record",
    "name": "r2",
    "fields": [
        avro("content", "int", 134),
        avro("file_path", "string", 100),
        avro("file_format", "string", 101),
        avro("file_size_in_bytes", "long", 104),
    ],
}
_ENTRY = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [avro("status", "int", 0), optional("snapshot_id", "long", 1), avro("data_file", _FILE, 2)],
}
_COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")
_LISTED = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        avro("manifest_path", "string", 500),
        avro("manifest_length", "long", 501),
        avro("partition_spec_id", "int", 502),
        avro("content", "int", 517),
        *(avro(name, "int", number) for name, number in zip(_COUNTS, (504, 505, 506), strict=True)),
    ],
}
_OF_STATUS = {ADDED: 0, EXISTING: 1, DELETED: 2}


@dataclass(frozen=True)
class Entry:
    """An entry of a manifest."""

    status: int
    path: str
    content: int = DATA


@dataclass
class Warehouse:
    """All objects, the tables by name, and what every manifest, manifest list and snapshot was written with."""

    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)
    manifests: dict[str, tuple[Entry, ...]] = field(default_factory=dict)
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    now_ms: int = 1_700_000_000_000
    made: int = 0
    successive: bool = False
    """Whether metadata files have successive versions in their names, so that few of a log are read, or gaps."""

    def put(self, uri: str, data: bytes = b"x") -> str:
        where = parse(uri)
        self.objects[where.bucket, where.key] = data
        return uri

    def get(self, uri: str) -> bytes:
        where = parse(uri)
        return self.objects[where.bucket, where.key]

    def uris(self) -> set[str]:
        return {f"s3://{bucket}/{key}" for bucket, key in self.objects}

    def document(self, pointer: str) -> dict[str, Any]:
        return dict(json.loads(self.get(pointer)))

    def next(self) -> int:
        self.made += 1
        return self.made

    def manifest(self, folder: str, entries: Sequence[Entry]) -> str:
        rows = [
            {
                "status": one.status,
                "snapshot_id": None,
                "data_file": {
                    "content": one.content,
                    "file_path": one.path,
                    "file_format": "PARQUET",
                    "file_size_in_bytes": 1,
                },
            }
            for one in entries
        ]
        path = f"{folder}/metadata/m{self.next()}.avro"
        self.manifests[path] = tuple(entries)
        return self.put(path, _avro(_ENTRY, rows))

    def manifest_list(self, folder: str, manifests: Sequence[str]) -> str:
        rows = []
        for one in manifests:
            counts = [0, 0, 0]
            for entry in self.manifests[one]:
                counts[_OF_STATUS[entry.status]] += 1
            contents = {entry.content for entry in self.manifests[one]}
            rows.append(
                {
                    "manifest_path": one,
                    "manifest_length": len(self.get(one)),
                    "partition_spec_id": 0,
                    "content": int(contents == {DELETES}),
                    **dict(zip(_COUNTS, counts, strict=True)),
                }
            )
        path = f"{folder}/metadata/snap{self.next()}.avro"
        self.lists[path] = tuple(manifests)
        return self.put(path, _avro(_LISTED, rows))

    def live(self, manifest: str) -> set[str]:
        return {one.path for one in self.manifests[manifest] if one.status != DELETED}

    def live_anywhere(self) -> set[str]:
        """Return the files that exist and that any manifest has as live."""
        return {path for one in self.manifests for path in self.live(one)} & self.uris()

    def read_by(self, document: Mapping[str, Any], snapshot_ids: Iterable[int] | None = None) -> set[str]:
        """Return every file that a reader of these snapshots, by default of all, opens."""
        wanted = None if snapshot_ids is None else set(snapshot_ids)
        found: set[str] = set()
        for one in document["snapshots"]:
            if wanted is None or one["snapshot-id"] in wanted:
                found.add(one["manifest-list"])
                for manifest in self.lists[one["manifest-list"]]:
                    found |= {manifest, *self.live(manifest)}
        for name in ("statistics", "partition-statistics"):
            for one in document.get(name) or ():
                if wanted is None or one["snapshot-id"] in wanted:
                    found.add(one["statistics-path"])
        return found

    def named_by(self, document: Mapping[str, Any], snapshot_ids: Iterable[int]) -> set[str]:
        """Return every file that these snapshots name, those of entries with status DELETED too."""
        wanted = set(snapshot_ids)
        found = self.read_by(document, wanted)
        for one in document["snapshots"]:
            if one["snapshot-id"] in wanted:
                for manifest in self.lists[one["manifest-list"]]:
                    found |= {entry.path for entry in self.manifests[manifest]}
        return found

    def readable(self) -> dict[str, set[str]]:
        """Return for each table the files that it needs and that are missing."""
        missing = {}
        for name, pointer in self.pointers.items():
            document = self.document(pointer)
            log = {one["metadata-file"] for one in document.get("metadata-log") or ()}
            missing[name] = ({pointer} | self.read_by(document) | log) - self.uris()
        return missing


def _avro(schema: Any, rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec="deflate")
    return out.getvalue()


@dataclass
class StoryTable:
    """One table of a warehouse, and its catalog; every method is a commit of a writer."""

    lake: Warehouse
    name: str = "t"
    folder: str = "s3://lake/wh/t"

    @classmethod
    def create(
        cls, lake: Warehouse, name: str = "t", *, folder: str = "", version: int = 2, **properties: str
    ) -> "StoryTable":
        table = cls(lake, name, folder or f"s3://lake/wh/{name}")
        document = updated_table(
            None,
            [{"type": "assert-create"}],
            [
                {"action": "assign-uuid", "uuid": f"00000000-0000-4000-8000-{lake.next():012d}"},
                {"action": "upgrade-format-version", "format-version": version},
                {"action": "set-location", "location": table.folder},
                {"action": "add-schema", "schema": {"type": "struct", "fields": []}},
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
                {"action": "set-default-spec", "spec-id": -1},
                {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
                {"action": "set-default-sort-order", "sort-order-id": -1},
                {"action": "set-properties", "updates": properties},
            ],
            now_ms=lake.now_ms,
        )
        table._write(document)
        return table

    @property
    def pointer(self) -> str:
        return self.lake.pointers[self.name]

    @property
    def document(self) -> dict[str, Any]:
        return self.lake.document(self.pointer)

    @property
    def ids(self) -> list[int]:
        return [one["snapshot-id"] for one in self.document["snapshots"]]

    @property
    def refs(self) -> dict[str, int]:
        return {name: ref["snapshot-id"] for name, ref in (self.document.get("refs") or {}).items()}

    def apply(self, *updates: Mapping[str, Any], requirements: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Commit updates, a minute after the last commit; raise IcebergConflict."""
        before = self.pointer
        document = updated_table(
            self.document, requirements, updates, now_ms=self.lake.now_ms + MINUTE, previous_file=before
        )
        self.lake.now_ms += MINUTE
        self._write(document)
        return document

    def _write(self, document: Mapping[str, Any]) -> None:
        number = self.lake.next()
        if self.lake.successive:
            before = version_of(self.lake.pointers.get(self.name, ""))
            number = 0 if before is None else before.number + 1
        uri = f"{self.folder}/metadata/{number:05d}-x.metadata.json"
        self.lake.pointers[self.name] = self.lake.put(uri, json.dumps(document).encode())

    def manifests_of(self, snapshot_id: int | None) -> list[str]:
        for one in self.document["snapshots"]:
            if one["snapshot-id"] == snapshot_id:
                return list(self.lake.lists[one["manifest-list"]])
        return []

    def data(self, count: int = 1) -> list[str]:
        """Write data files that no snapshot names yet."""
        return [self.lake.put(f"{self.folder}/data/d{self.lake.next()}.parquet") for _ in range(count)]

    def snapshot(self, manifests: Sequence[str], *, ref: str | None = "main", parent: int | None = None) -> int:
        """Add a snapshot with these manifests to a branch; without `ref` it is staged (write-audit-publish)."""
        snapshot_id = 10**15 + self.lake.next()
        parent = self.refs.get(ref or "main") if parent is None else parent
        document = self.document
        added = {
            "snapshot-id": snapshot_id,
            "sequence-number": document.get("last-sequence-number", 0) + 1,
            "timestamp-ms": self.lake.now_ms + MINUTE,
            "manifest-list": self.lake.manifest_list(self.folder, manifests),
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        if document["format-version"] == 1:
            del added["sequence-number"]
        if document["format-version"] >= 3:
            added |= {"first-row-id": document.get("next-row-id", 0), "added-rows": 1}
        if parent is not None:
            added["parent-snapshot-id"] = parent
        updates: list[dict[str, Any]] = [{"action": "add-snapshot", "snapshot": added}]
        if ref is not None:
            updates.append(_set_ref(ref, snapshot_id, "branch"))
        self.apply(*updates)
        return snapshot_id

    def append(
        self, count: int = 1, *, ref: str | None = "main", paths: Sequence[str] = (), content: int = DATA
    ) -> int:
        """Add a snapshot with a manifest of new files, or of the given ones (add_files)."""
        names = list(paths) or self.data(count)
        fresh = self.lake.manifest(self.folder, [Entry(ADDED, path, content) for path in names])
        return self.snapshot([*self.manifests_of(self.refs.get(ref or "main")), fresh], ref=ref)

    def delete(self, *paths: str, ref: str = "main") -> int:
        """Add a snapshot without these files; manifests that name them are written anew, with entries DELETED."""
        kept: list[str] = []
        for one in self.manifests_of(self.refs.get(ref)):
            if not self.lake.live(one) & set(paths):
                kept.append(one)
                continue
            entries = [
                Entry(DELETED if entry.path in paths else EXISTING, entry.path, entry.content)
                for entry in self.lake.manifests[one]
                if entry.status != DELETED
            ]
            kept.append(self.lake.manifest(self.folder, entries))
        return self.snapshot(kept, ref=ref)

    def rewrite_manifests(self, ref: str = "main") -> int:
        """Add a snapshot with all live entries in one manifest."""
        old = self.manifests_of(self.refs.get(ref))
        entries = [
            Entry(EXISTING, e.path, e.content) for one in old for e in self.lake.manifests[one] if e.status != DELETED
        ]
        return self.snapshot([self.lake.manifest(self.folder, entries)] if entries else [], ref=ref)

    def live(self, snapshot_id: int | None = None) -> list[str]:
        manifests = self.manifests_of(self.refs.get("main") if snapshot_id is None else snapshot_id)
        return sorted(path for one in manifests for path in self.lake.live(one))

    def tag(self, name: str, snapshot_id: int, **retention: int) -> None:
        self.apply(_set_ref(name, snapshot_id, "tag", **retention))

    def branch(self, name: str, snapshot_id: int, **retention: int) -> None:
        self.apply(_set_ref(name, snapshot_id, "branch", **retention))

    def drop_ref(self, name: str) -> None:
        self.apply({"action": "remove-snapshot-ref", "ref-name": name})

    def rollback(self, snapshot_id: int) -> None:
        self.branch("main", snapshot_id)

    def statistics(self, snapshot_id: int, path: str | None = None) -> str:
        path = path or self.lake.put(f"{self.folder}/metadata/s{self.lake.next()}.stats")
        self.apply(
            {
                "action": "set-statistics",
                "statistics": {
                    "snapshot-id": snapshot_id,
                    "statistics-path": path,
                    "file-size-in-bytes": 1,
                    "file-footer-size-in-bytes": 1,
                    "blob-metadata": [],
                },
            }
        )
        return path

    def partition_statistics(self, snapshot_id: int, path: str | None = None) -> str:
        path = path or self.lake.put(f"{self.folder}/metadata/p{self.lake.next()}.parquet")
        found = {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 1}
        self.apply({"action": "set-partition-statistics", "partition-statistics": found})
        return path

    def set(self, **properties: str) -> None:
        self.apply({"action": "set-properties", "updates": properties})

    def remove_snapshots(self, *snapshot_ids: int) -> None:
        """Remove snapshots and keep all files, as another engine may do."""
        self.apply({"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)})


class PathTable(StoryTable):
    """A table of HadoopCatalog, which finds its version by the name of the file and a hint."""

    def _write(self, document: Mapping[str, Any]) -> None:
        hint = f"{self.folder}/metadata/version-hint.text"
        number = int(self.lake.get(hint)) + 1 if hint in self.lake.uris() else 1
        uri = f"{self.folder}/metadata/v{number}.metadata.json"
        self.lake.pointers[self.name] = self.lake.put(uri, json.dumps(document).encode())
        self.lake.put(hint, str(number).encode())


def _set_ref(name: str, snapshot_id: int, kind: str, **retention: int) -> dict[str, Any]:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind, **retention}


def identifier(name: str) -> TableIdentifier:
    return TableIdentifier("cat", ("ns",), name)


@dataclass
class StandInCatalog:
    """A TableSource and Commits over one table, whose calls a test can kill, delay or leave unanswered.

    `before[n]` runs before call n of loads and commits together, `lost` are the numbers of commits that are applied and
    not answered, `dropped` those that are neither.
    """

    table: StoryTable
    faults: Faults = field(default_factory=Faults)
    before: dict[int, Callable[[], object]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    calls: int = 0
    commits: int = 0
    applied: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    prefixes: tuple[str, ...] | None = None

    def load(self) -> LoadedTable:
        self._begin()
        with self.faults.call("load"):
            return self._loaded()

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        self._begin()
        self.commits += 1
        if self.commits in self.dropped:
            raise PolarisOutcomeUnknown("Polaris did not answer", status=None)
        with self.faults.call("commit"):
            if self.table.name not in self.table.lake.pointers:
                raise NoSuchTable(f"no table {identifier}", status=404)
            try:
                self.table.apply(*updates, requirements=requirements)
            except IcebergConflict as error:
                raise CommitConflict(str(error), status=409) from error
            except InvalidIcebergUpdate as error:
                raise PolarisUnexpectedAnswer(str(error), status=400) from error
            self.applied.append(updates)
        if self.commits in self.lost:
            raise PolarisOutcomeUnknown("Polaris did not answer", status=None)
        return self._loaded()

    def _begin(self) -> None:
        self.calls += 1
        self.before.get(self.calls, lambda: None)()

    def _loaded(self) -> LoadedTable:
        pointer = self.table.lake.pointers.get(self.table.name)
        if pointer is None:
            raise NoSuchTable(f"no table {self.table.name}", status=404)
        if pointer not in self.table.lake.uris():
            raise TableMetadataMissing(f"Location does not exist: {pointer}", status=400)
        body = {"metadata": self.table.lake.document(pointer), "metadata-location": pointer}
        found = loaded_table(identifier(self.table.name), body)
        prefixes = (found.location,) if self.prefixes is None else self.prefixes
        credentials = tuple(S3Credential(prefix, "key", "secret", "token", None) for prefix in prefixes)
        return replace(found, credentials=credentials)
