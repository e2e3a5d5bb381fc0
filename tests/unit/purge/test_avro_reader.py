"""The manifest reader on hand-written Iceberg manifests, with fastavro as the writer."""

import io
from typing import Any

import fastavro
import pytest

from delegation.purge.avro import (
    CorruptManifestError,
    ManifestEntry,
    ManifestFile,
    ManifestMismatchError,
    read_manifest,
    read_manifest_list,
    read_paths,
    verify,
)

CODECS = ["null", "deflate", "snappy", "zstandard"]
SYNC = b"0123456789abcdef"


def bounds(name: str, key: int, value: int, kind: str) -> dict[str, Any]:
    """Iceberg's map with integer keys: an array of key/value records."""
    fields = [field("key", "int", key), field("value", kind, value)]
    pair = {"name": f"k{key}_v{value}", "type": "record", "fields": fields}
    return {"name": name, "type": ["null", {"type": "array", "items": pair, "logicalType": "map"}], "default": None}


def field(name: str, kind: Any, number: int | None = None) -> dict[str, Any]:
    return {"name": name, "type": kind} | ({} if number is None else {"field-id": number})


def optional(name: str, kind: Any, number: int) -> dict[str, Any]:
    return field(name, ["null", kind], number) | {"default": None}


def entry_schema(version: int) -> dict[str, Any]:
    day = optional("day", {"type": "int", "logicalType": "date"}, 1000)
    partition = {"type": "record", "name": "r102", "fields": [day]}
    data_file = [
        field("file_path", "string", 100),
        field("file_format", "string", 101),
        field("partition", partition, 102),
        field("record_count", "long", 103),
        field("file_size_in_bytes", "long", 104),
        bounds("column_sizes", 117, 118, "long") | {"field-id": 108},
        bounds("value_counts", 119, 120, "long") | {"field-id": 109},
        bounds("null_value_counts", 121, 122, "long") | {"field-id": 110},
        bounds("nan_value_counts", 138, 139, "long") | {"field-id": 137},
        bounds("lower_bounds", 126, 127, "bytes") | {"field-id": 125},
        bounds("upper_bounds", 129, 130, "bytes") | {"field-id": 128},
        optional("key_metadata", "bytes", 131),
        optional("split_offsets", {"type": "array", "items": "long", "element-id": 133}, 132),
        optional("sort_order_id", "int", 140),
    ]
    top = [field("status", "int", 0), optional("snapshot_id", "long", 1)]
    if version == 1:
        data_file.insert(5, field("block_size_in_bytes", "long", 105))
        top[1] = field("snapshot_id", "long", 1)
    else:
        top += [optional("sequence_number", "long", 3), optional("file_sequence_number", "long", 4)]
        data_file.insert(0, field("content", "int", 134))
        data_file.append(optional("equality_ids", {"type": "array", "items": "int", "element-id": 136}, 135))
    if version == 3:
        data_file += [
            optional("first_row_id", "long", 142),
            optional("referenced_data_file", "string", 143),
            optional("content_offset", "long", 144),
            optional("content_size_in_bytes", "long", 145),
        ]
    top.append(field("data_file", {"type": "record", "name": "r2", "fields": data_file}, 2))
    return {"type": "record", "name": "manifest_entry", "fields": top}


def entry(number: int, *, status: int = 1, columns: int = 3, **data_file: Any) -> dict[str, Any]:
    counts = [{"key": column, "value": 100 * number + column} for column in range(1, columns + 1)]
    values = [{"key": column, "value": b"v" * (column * number % 70)} for column in range(1, columns + 1)]
    return {
        "status": status,
        "snapshot_id": 6_000_000_000_000_000_000 + number,
        "sequence_number": None,
        "file_sequence_number": number,
        "data_file": {
            "content": 0,
            "file_path": f"s3://bucket/db/t/data/day={number}/{number:05d}-ü.parquet",
            "file_format": "PARQUET",
            "partition": {"day": None if number % 3 == 0 else number},
            "record_count": number,
            "file_size_in_bytes": 1000 + number * 1_000_000,
            "block_size_in_bytes": 67108864,
            "column_sizes": counts,
            "value_counts": counts,
            "null_value_counts": counts if number % 2 else None,
            "nan_value_counts": [],
            "lower_bounds": values,
            "upper_bounds": values,
            "split_offsets": [4, 8],
        }
        | data_file,
    }


def written(schema: Any, records: list[Any], codec: str = "null", interval: int = 16_000) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec, sync_interval=interval, sync_marker=SYNC)
    return out.getvalue()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_status_and_content_of_every_version_and_codec(version: int, codec: str) -> None:
    records = [entry(number, status=number % 3, content=number % 3 if version > 1 else 0) for number in range(500)]
    data = written(entry_schema(version), records, codec)

    entries = list(read_manifest(data, "m.avro"))

    assert entries == [
        ManifestEntry(
            record["status"],
            record["data_file"]["content"],
            record["data_file"]["file_path"],
            record["data_file"]["file_size_in_bytes"],
        )
        for record in records
    ]
    assert [path for batch in read_paths(data, "m.avro") for path in batch] == [tuple(each[:4]) for each in entries]


def list_schema(version: int) -> dict[str, Any]:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            field("contains_null", "boolean", 509),
            optional("contains_nan", "boolean", 518),
            optional("lower_bound", "bytes", 510),
            optional("upper_bound", "bytes", 511),
        ],
    }
    partitions = optional("partitions", {"type": "array", "items": summary, "element-id": 508}, 507)
    head = [
        field("manifest_path", "string", 500),
        field("manifest_length", "long", 501),
        field("partition_spec_id", "int", 502),
    ]
    if version == 1:
        counts = [
            field("added_snapshot_id", "long", 503),
            optional("added_data_files_count", "int", 504),
            optional("existing_data_files_count", "int", 505),
            optional("deleted_data_files_count", "int", 506),
            partitions,
            optional("added_rows_count", "long", 512),
            optional("existing_rows_count", "long", 513),
            optional("deleted_rows_count", "long", 514),
        ]
    else:
        head += [
            field("content", "int", 517),
            field("sequence_number", "long", 515),
            field("min_sequence_number", "long", 516),
        ]
        counts = [
            field("added_snapshot_id", "long", 503),
            field("added_files_count", "int", 504),
            field("existing_files_count", "int", 505),
            field("deleted_files_count", "int", 506),
            field("added_rows_count", "long", 512),
            field("existing_rows_count", "long", 513),
            field("deleted_rows_count", "long", 514),
            partitions,
            optional("key_metadata", "bytes", 519),
        ]
        if version == 3:
            counts.append(optional("first_row_id", "long", 520))
    return {"type": "record", "name": "manifest_file", "fields": head + counts}


LISTED: dict[str, Any] = {
    "manifest_path": "s3://bucket/db/t/metadata/m0.avro",
    "manifest_length": 6543,
    "partition_spec_id": 2,
    "content": 1,
    "sequence_number": 7,
    "min_sequence_number": 5,
    "added_snapshot_id": 9_007_199_254_740_993,
    "added_files_count": 3,
    "existing_files_count": 2,
    "deleted_files_count": 1,
    "added_rows_count": 30,
    "existing_rows_count": 20,
    "deleted_rows_count": 10,
    "partitions": [{"contains_null": False, "contains_nan": None, "lower_bound": b"a", "upper_bound": b"z"}],
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_list(version: int, codec: str) -> None:
    data = written(list_schema(version), [LISTED] * 3, codec)

    manifests = list(read_manifest_list(data, "snap.avro"))

    expected = ManifestFile(**{name: value for name, value in LISTED.items() if name != "partitions"})
    assert manifests == [expected] * 3
    assert manifests[0].entries == 6


def test_a_v1_manifest_list_may_leave_the_counts_out() -> None:
    data = written(list_schema(1), [LISTED | {"added_data_files_count": 4}])

    (manifest,) = read_manifest_list(data, "snap.avro")

    assert (manifest.content, manifest.sequence_number, manifest.added_files_count) == (0, None, 4)
    assert manifest.entries is None
    verify(manifest, actual_length=6543, counted=17)


def test_verify_compares_size_and_entries() -> None:
    (manifest,) = read_manifest_list(written(list_schema(2), [LISTED]), "snap.avro")

    verify(manifest, actual_length=6543, counted=6)
    with pytest.raises(ManifestMismatchError, match="has 6542 bytes, its manifest list says 6543"):
        verify(manifest, actual_length=6542, counted=6)
    with pytest.raises(ManifestMismatchError, match="has 5 entries, its manifest list says 6"):
        verify(manifest, actual_length=6543, counted=5)


def test_a_manifest_named_inline_by_a_v1_snapshot_has_nothing_to_be_compared_with() -> None:
    verify(ManifestFile("s3://bucket/m.avro", None), actual_length=1, counted=1)


def test_something_else_is_corrupt() -> None:
    with pytest.raises(CorruptManifestError, match="a Parquet file") as caught:
        list(read_manifest(b"PAR1...", "s3://bucket/m.avro"))
    assert (caught.value.path, caught.value.offset) == ("s3://bucket/m.avro", 0)
