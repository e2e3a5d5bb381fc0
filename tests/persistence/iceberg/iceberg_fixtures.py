"""A store of objects as bytes, tables made by pyiceberg, and a hand-made table of format version 3."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType, TimestampType

from polaris_persistence.backends.base import ObjectKey, StoredObject
from polaris_persistence.iceberg.layout import TABLE, Json, Layout
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import ICEBERG_TYPES, IcebergMetadata
from polaris_persistence.iceberg.updates.managed import update_table
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel, encode
from polaris_persistence.objects.types import ObjectTypes

TYPES = ObjectTypes([STRIPES, *ICEBERG_TYPES])


@dataclass
class Objects:
    """Objects as stored bytes; it counts what is read and written."""

    stored: dict[tuple[str, int], bytes] = field(default_factory=dict)
    written: list[tuple[str, int]] = field(default_factory=list)
    read: list[ObjectRef] = field(default_factory=list)
    ids: Iterable[int] = field(default_factory=lambda: itertools.count(1 << 60))

    def write(self, value: PersistedModel) -> ObjectRef:
        ref = ObjectRef(TYPES.of(type(value)).name, next(iter(self.ids)))
        self.stored[ref.type, ref.id] = encode(value)
        self.written.append((ref.type, len(self.stored[ref.type, ref.id])))
        return ref

    def fetch(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        wanted = list(refs)
        self.read += wanted
        return [self._loaded(ref) for ref in wanted]

    def _loaded(self, ref: ObjectRef) -> Loaded[PersistedModel] | None:
        data = self.stored.get((ref.type, ref.id))
        if data is None:
            return None
        key = ObjectKey("realm", "catalog", ref.type, ref.id)
        return Loaded(key, TYPES.decode(StoredObject(key, data, 0)), 0, len(data))

    def written_since(self, count: int) -> list[str]:
        return [kind for kind, _ in self.written[count:]]


@dataclass
class Held:
    """Managed metadata, from state to state."""

    objects: Objects = field(default_factory=Objects)
    policy: IndexPolicy = field(default_factory=IndexPolicy)
    state: ObjectRef | None = None

    def imported(self, document: Json, layout: Layout = TABLE) -> "Held":
        self.save(ManagedMetadata.of(document, layout, self.objects.fetch))
        return self

    def load(self) -> ManagedMetadata:
        assert self.state is not None
        [loaded] = self.objects.fetch([self.state])
        assert loaded is not None
        assert isinstance(loaded.value, IcebergMetadata)
        return ManagedMetadata(loaded.value, self.objects.fetch)

    def save(self, metadata: ManagedMetadata) -> None:
        self.state = self.objects.write(metadata.finish(self.policy, self.objects.write))

    def document(self) -> Json:
        return self.load().document()


NOW = 1_800_000_000_000


def apply(table: ManagedMetadata, *updates: Json, now_ms: int = NOW) -> bool:
    return update_table(table, [], updates, now_ms=now_ms)


def adding(snapshot: Json) -> Json:
    return {"action": "add-snapshot", "snapshot": snapshot}


def pointing(name: str, snapshot_id: int, type_: str = "branch") -> Json:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": type_}


def nested_structs(count: int) -> Json:
    """Return a field of structs within each other, three levels of JSON each, with ids from 11 on."""
    type_: Any = "string"
    for id_ in range(10 + count, 10, -1):
        type_ = {"type": "struct", "fields": [{"id": id_, "name": f"f{id_}", "required": False, "type": type_}]}
    found: Json = type_["fields"][0]
    return found


def as_json(document: Any) -> str:
    """Return text that is equal for the same JSON values only (1, 1.0 and true differ, the order of lists counts)."""
    return json.dumps(document, sort_keys=True)


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "at", TimestampType()),
    NestedField(3, "tags", ListType(4, StringType(), element_required=False)),
    NestedField(5, "nested", StructType(NestedField(6, "a", StringType()), NestedField(7, "b", LongType()))),
    NestedField(8, "map", MapType(9, StringType(), 10, LongType())),
    identifier_field_ids=[1],
)


def snapshot_of(number: int, version: int = 2) -> Snapshot:
    """Return the number-th snapshot of a table; ids have 63 bits."""
    first = 4_611_686_018_427_387_904
    return Snapshot(
        snapshot_id=first + number * 7_919_777,
        parent_snapshot_id=first + (number - 1) * 7_919_777 if number else None,
        sequence_number=number + 1 if version > 1 else None,
        timestamp_ms=1_700_000_000_000 + number * 60_000,
        manifest_list=f"s3://lake/warehouse/db/t/metadata/snap-{first + number * 7_919_777}-0-{number:08x}.avro",
        summary=Summary(
            Operation.APPEND,
            **{
                "added-data-files": "4",
                "added-records": str(1_000 + number),
                "added-files-size": str(400_000 + number),
                "total-data-files": str(4 * number),
                "total-records": str(1_000 * number),
                "spark.app.id": f"application_17000000_{number:04}",
            },
        ),
        schema_id=0,
    )


def snapshot_json_of(number: int, version: int = 2) -> Json:
    found: Json = json.loads(snapshot_of(number, version).model_dump_json(exclude_none=True, by_alias=True))
    return found


def pyiceberg_table(version: int, snapshots: int) -> TableMetadata:
    """Return metadata made by pyiceberg, with a tag, a branch, statistics, a partition spec and a sort order."""
    metadata = new_table_metadata(
        schema=SCHEMA,
        partition_spec=PartitionSpec(
            PartitionField(2, 1000, DayTransform(), "at_day"), PartitionField(1, 1001, BucketTransform(16), "id_bucket")
        ),
        sort_order=SortOrder(SortField(source_id=1, transform=IdentityTransform())),
        location="s3://lake/warehouse/db/t",
        properties={"format-version": str(version), "owner": "ü€\U0001f600", "write.parquet.compression-codec": "zstd"},
    )
    updates: list[TableUpdate] = []
    for number in range(snapshots):
        snapshot = snapshot_of(number, version)
        updates += [
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id,
                max_ref_age_ms=None, max_snapshot_age_ms=None, min_snapshots_to_keep=None,
            ),
        ]  # fmt: skip
    if snapshots:
        first = snapshot_of(0, version).snapshot_id
        updates += [
            SetSnapshotRefUpdate(
                ref_name="ünïcode tag", type=SnapshotRefType.TAG, snapshot_id=first,
                max_ref_age_ms=86_400_000, max_snapshot_age_ms=None, min_snapshots_to_keep=None,
            ),
            SetStatisticsUpdate(
                statistics=StatisticsFile(
                    snapshot_id=first, statistics_path="s3://lake/s.puffin", file_size_in_bytes=413,
                    file_footer_size_in_bytes=42,
                    blob_metadata=[
                        BlobMetadata(
                            type="apache-datasketches-theta-v1", snapshot_id=first, sequence_number=1, fields=[1],
                            properties={"ndv": "7"},
                        )
                    ],
                )
            ),
        ]  # fmt: skip
    metadata = update_table_metadata(metadata, tuple(updates)) if updates else metadata
    # As from a metadata.json: defaults filled in, validated.
    return TableMetadataUtil.parse_raw(metadata.model_dump_json())


def document_of(metadata: TableMetadata) -> Json:
    document: Json = json.loads(metadata.model_dump_json())
    return document


def version_3() -> Json:
    """Return hand-made metadata of format version 3: row lineage, encryption keys, defaults, unknown fields."""
    return {
        "format-version": 3,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "s3://lake/v3",
        "last-sequence-number": 34,
        "last-updated-ms": 1_602_638_573_590,
        "last-column-id": 5,
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [
                    {"id": 1, "name": "x", "required": True, "type": "long", "initial-default": 9_007_199_254_740_993}
                ],
            },
            {
                "type": "struct",
                "schema-id": 1,
                "identifier-field-ids": [1],
                "fields": [
                    {"id": 1, "name": "x", "required": True, "type": "long"},
                    {"id": 4, "name": "v", "required": False, "type": "variant"},
                    {"id": 5, "name": "g", "required": False, "type": "geography(srid:4326, vincenty)", "doc": None},
                ],
            },
        ],
        "current-schema-id": 1,
        "partition-specs": [
            {"spec-id": 0, "fields": []},
            {
                "spec-id": 1,
                "fields": [{"name": "b", "transform": "bucket[4]", "source-ids": [1, 5], "field-id": 1000}],
            },
        ],
        "default-spec-id": 1,
        "last-partition-id": 1000,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {},
        "current-snapshot-id": 9_223_372_036_854_775_807,
        "next-row-id": 150,
        "encryption-keys": [
            {"key-id": "k2", "encrypted-key-metadata": "b64", "encrypted-by-id": "k1", "properties": {"a": "b"}},
            {"key-id": "k1", "encrypted-key-metadata": "b64=="},
        ],
        "refs": {
            "main": {"snapshot-id": 9_223_372_036_854_775_807, "type": "branch"},
            "5": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 9_223_372_036_854_775_807},
        },
        "snapshots": [
            {
                "snapshot-id": 9_223_372_036_854_775_807,
                "timestamp-ms": 1_555_100_955_770,
                "sequence-number": 34,
                "summary": {"operation": "append"},
                "manifest-list": "s3://a/b/2.avro",
                "schema-id": 1,
                "first-row-id": 100,
                "added-rows": 50,
                "key-id": "k2",
            },
            {
                "snapshot-id": 1,
                "timestamp-ms": 1_515_100_955_770,
                "sequence-number": 0,
                "summary": {"operation": "append"},
                "manifest-list": "s3://a/b/1.avro",
                "first-row-id": 0,
                "added-rows": 100,
            },
        ],
        "statistics": [],
        "partition-statistics": [{"snapshot-id": 1, "statistics-path": "s3://a/p.parquet", "file-size-in-bytes": 43}],
        "snapshot-log": [
            {"snapshot-id": 1, "timestamp-ms": 1_515_100_955_770},
            {"snapshot-id": 9_223_372_036_854_775_807, "timestamp-ms": 1_555_100_955_770},
        ],
        "metadata-log": [{"metadata-file": "s3://a/b/1.json", "timestamp-ms": 1_515_100}],
        "invented-later": {"small": [1, 2.5, None, True]},
        "invented-later-and-large": {f"key {number}": "x" * 100 for number in range(200)},
    }


def view() -> Json:
    """Return a view of two versions (Iceberg View Spec, Appendix A, shortened)."""
    return {
        "view-uuid": "fa6506c3-7681-40c8-86dc-e36561f83385",
        "format-version": 1,
        "location": "s3://bucket/warehouse/default.db/event_agg",
        "current-version-id": 2,
        "properties": {"comment": "Daily event counts"},
        "versions": [
            {
                "version-id": number,
                "timestamp-ms": 1_573_518_431_292 + number,
                "schema-id": number,
                "default-catalog": "prod",
                "default-namespace": ["default"],
                "summary": {"engine-name": "Spark", "engineVersion": "3.3.2"},
                "representations": [{"type": "sql", "sql": f"SELECT {number}", "dialect": "spark"}],
            }
            for number in (1, 2)
        ],
        "schemas": [
            {"schema-id": 1, "type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]},
            {"schema-id": 2, "type": "struct", "fields": [{"id": 1, "name": "b", "required": False, "type": "int"}]},
        ],
        "version-log": [{"timestamp-ms": 1_573_518_431_292 + number, "version-id": number} for number in (1, 2)],
    }
