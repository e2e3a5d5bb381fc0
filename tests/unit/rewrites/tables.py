"""Tables of any format version in memory, with manifests that fastavro writes."""

from dataclasses import dataclass, field
from typing import Any

from delegation.iceberg.metadata import parse_metadata
from delegation.iceberg.reach import Fetcher
from delegation.rewrites.choose import Thresholds
from delegation.rewrites.files import TableFiles, read_files
from delegation.rewrites.pruning import FileFilter
from delegation.rewrites.terms import CompactionTerms
from delegation.storage.memory import MemoryObjectStore
from tests.unit.iceberg.manifest_files import entry_schema, list_schema, written

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
PLACE = "s3://lake/t"
SPEC = ({"name": "day", "transform": "identity", "source-id": 1, "field-id": 1000},)
FIELDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "name": "day", "type": "string", "required": False},
    {"id": 2, "name": "id", "type": "long", "required": False},
)


def data(path: str, size: int = 10, *, day: str | None = "a", rows: int = 100, **others: Any) -> dict[str, Any]:
    """Return a file of a manifest; `status`, `snapshot_id` and `sequence_number` are those of its entry."""
    return {
        "file_path": f"{PLACE}/{path}",
        "file_size_in_bytes": size,
        "record_count": rows,
        "content": 0,
        "partition": {"day": day},
        **others,
    }


def position(path: str, of: str | None = None, **others: Any) -> dict[str, Any]:
    named = {} if of is None else {"referenced_data_file": f"{PLACE}/{of}"}
    return {**data(path, **others), "content": 1, **named}


def equality(path: str, *ids: int, **others: Any) -> dict[str, Any]:
    return {**data(path, **others), "content": 2, "equality_ids": list(ids)}


def stats(
    column: int, lower: bytes | None = None, upper: bytes | None = None, *, nulls: int | None = 0, values: int = 100
) -> dict[str, Any]:
    """Return what an entry states of a column."""
    named = {
        "lower_bounds": lower,
        "upper_bounds": upper,
        "null_value_counts": nulls,
        "value_counts": None if nulls is None else values,
    }
    return {name: [{"key": column, "value": value}] for name, value in named.items() if value is not None}


def vector(path: str, of: str, **others: Any) -> dict[str, Any]:
    return {**position(path, of, **others), "file_format": "PUFFIN"}


@dataclass
class SyntheticTable:
    """A table to which commits are added: each is a snapshot with its own manifests and all former ones."""

    version: int = 2
    specs: dict[int, tuple[dict[str, Any], ...]] = field(default_factory=lambda: {0: SPEC})
    current_spec: int = 0
    fields: tuple[dict[str, Any], ...] = FIELDS
    properties: dict[str, str] = field(default_factory=dict)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    refs: dict[str, Any] = field(default_factory=dict)
    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    manifests: list[dict[str, Any]] = field(default_factory=list)

    def commit(self, *files: dict[str, Any], at: int = 0, spec: int = 0, operation: str = "append") -> int:
        """Add a snapshot with one manifest of data files and one of delete files, and return its id."""
        number = len(self.snapshots) + 1
        for content in (0, 1):
            of_content = [one for one in files if (one["content"] > 0) == bool(content)]
            if of_content:
                self._write(of_content, number, content, spec)
        path = f"{PLACE}/metadata/snap-{number}.avro"
        self._put(path, written(list_schema(self.version), self.manifests))
        summary = {"summary": {"operation": operation}}
        sequence = {} if self.version == 1 else {"sequence-number": number}
        snapshot = {"snapshot-id": number, "timestamp-ms": at, "manifest-list": path, **sequence, **summary}
        self.snapshots.append(snapshot)
        self.refs["main"] = {"snapshot-id": number, "type": "branch"}
        return number

    def _write(self, files: list[dict[str, Any]], number: int, content: int, spec: int) -> None:
        types = {"bucket": "int", "day": "int"}
        columns = {one["id"]: one["type"] for one in self.fields}
        partition = [
            {
                "name": one["name"],
                "type": ["null", types.get(one["transform"].partition("[")[0], columns[one["source-id"]])],
                "default": None,
                "field-id": one["field-id"],
            }
            for one in self.specs[spec]
        ]
        names = {one["name"] for one in self.specs[spec]}
        records = []
        for one in files:
            entry = {key: one[key] for key in ("status", "snapshot_id", "sequence_number") if key in one}
            values = {key: value for key, value in one["partition"].items() if key in names}
            records.append({"status": 1, **entry, "data_file": {"file_format": "PARQUET", **one, "partition": values}})
        path = f"{PLACE}/metadata/{number}-{content}.avro"
        raw = written(entry_schema(3, partition), records)
        self._put(path, raw)
        names_of = ("data_files" if self.version == 1 else "files",)
        counts = {f"{kind}_{name}_count": 0 for kind in ("added", "existing", "deleted") for name in names_of}
        rows = dict.fromkeys(("added_rows_count", "existing_rows_count", "deleted_rows_count"), 0)
        self.manifests = [
            *self.manifests,
            {
                "manifest_path": path,
                "manifest_length": len(raw),
                "partition_spec_id": spec,
                "content": content,
                "sequence_number": number,
                "min_sequence_number": number,
                "added_snapshot_id": number,
                **counts,
                **rows,
            },
        ]

    def _put(self, path: str, raw: bytes) -> None:
        bucket, _, key = path.removeprefix("s3://").partition("/")
        self.store.objects[bucket, key] = raw

    @property
    def document(self) -> dict[str, Any]:
        common: dict[str, Any] = {
            "format-version": self.version,
            "table-uuid": UUID,
            "location": PLACE,
            "last-updated-ms": 0,
            "properties": self.properties,
            "snapshots": self.snapshots,
            "refs": self.refs,
            "current-snapshot-id": self.refs.get("main", {}).get("snapshot-id"),
        }
        schema = {"type": "struct", "schema-id": 0, "fields": list(self.fields)}
        if self.version == 1:
            return {**common, "schema": schema, "partition-spec": list(self.specs[self.current_spec])}
        specs = [{"spec-id": one, "fields": list(fields)} for one, fields in self.specs.items()]
        return {
            **common,
            "schemas": [schema],
            "current-schema-id": 0,
            "partition-specs": specs,
            "default-spec-id": self.current_spec,
        }

    def files(self, *, branch: str = "main", target: int = 1_000, **terms: Any) -> TableFiles:
        given = CompactionTerms(target_file_size_bytes=target, **terms)
        thresholds = Thresholds.of(given, self.properties)
        metadata = parse_metadata(f"{PLACE}/metadata/v.json", self.document)
        filtered = FileFilter.of(given.filter, self.document)
        fetcher = Fetcher(self.store, threads=1, checkpoint=lambda: None)
        return read_files(metadata, self.document, fetcher, thresholds, branch=branch, filtered=filtered, limit=1 << 20)
