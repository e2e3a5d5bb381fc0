"""The reader of manifest entries with partitions and references, on files of pyiceberg and of fastavro."""

import io
import math
import struct
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pytest
from pyiceberg.table import Table

from delegation.iceberg.avro.entries import FileEntry, read_entries
from delegation.iceberg.errors import CorruptManifestError
from tests.unit.iceberg.test_avro_pyiceberg import table  # noqa: F401 - the fixture

PATHS = 2147483546


def test_entries_of_a_pyiceberg_table_are_those_that_fastavro_reads(table: Table) -> None:  # noqa: F811
    read = 0
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            data = Path(urlsplit(manifest.manifest_path).path).read_bytes()
            entries = [entry for batch in read_entries(data, "m.avro", deletes=False) for entry in batch]
            records: list[Any] = list(fastavro.reader(io.BytesIO(data)))
            assert [entry.file_path for entry in entries] == [one["data_file"]["file_path"] for one in records]
            for entry, record in zip(entries, records, strict=True):
                file = record["data_file"]
                assert entry == FileEntry(
                    record["status"],
                    record["snapshot_id"],
                    record.get("sequence_number"),
                    file.get("content", 0),
                    file["file_path"],
                    file["file_format"],
                    file["record_count"],
                    file["file_size_in_bytes"],
                    ((1000, file["partition"]["name"]), (1001, file["partition"]["part"])),
                )
                read += 1
    assert read > 20


def entry_schema(partition: list[dict[str, Any]]) -> dict[str, Any]:
    def columns(name: str, number: int, key: int, kind: str = "bytes") -> dict[str, Any]:
        fields = [("key", "int", key), ("value", kind, key + 1)]
        members = [{"name": member, "type": kind, "field-id": one} for member, kind, one in fields]
        pair = {"name": f"k{key}_v{key + 1}", "type": "record", "fields": members}
        array = {"type": "array", "items": pair, "logicalType": "map"}
        return {"name": name, "type": ["null", array], "default": None, "field-id": number}

    equality_ids = {"type": "array", "items": "int", "element-id": 136}
    fields = [
        {"name": "content", "type": "int", "field-id": 134},
        {"name": "file_path", "type": "string", "field-id": 100},
        {"name": "file_format", "type": "string", "field-id": 101},
        {"name": "partition", "type": {"name": "r102", "type": "record", "fields": partition}, "field-id": 102},
        {"name": "record_count", "type": "long", "field-id": 103},
        {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
        columns("value_counts", 109, 119, "long"),
        columns("null_value_counts", 110, 121, "long"),
        columns("lower_bounds", 125, 126),
        columns("upper_bounds", 128, 129),
        {"name": "equality_ids", "type": ["null", equality_ids], "default": None, "field-id": 135},
        {"name": "referenced_data_file", "type": ["null", "string"], "default": None, "field-id": 143},
        {"name": "content_size_in_bytes", "type": ["null", "long"], "default": None, "field-id": 145},
    ]
    return {
        "name": "manifest_entry",
        "type": "record",
        "fields": [
            {"name": "status", "type": "int", "field-id": 0},
            {"name": "snapshot_id", "type": ["null", "long"], "default": None, "field-id": 1},
            {"name": "sequence_number", "type": ["null", "long"], "default": None, "field-id": 3},
            {"name": "data_file", "type": {"name": "r2", "type": "record", "fields": fields}, "field-id": 2},
        ],
    }


def manifest(partition: list[dict[str, Any]], *files: dict[str, Any], codec: str = "null") -> bytes:
    target = io.BytesIO()
    plain = {"content": 1, "file_format": "PARQUET", "partition": {}, "record_count": 1, "file_size_in_bytes": 10}
    described = [{**plain, "file_path": f"s3://b/{at}", **one} for at, one in enumerate(files)]
    records = [{"status": 1, "data_file": one} for one in described]
    fastavro.writer(target, entry_schema(partition), records, codec=codec)
    return target.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_partition_of_every_type(codec: str) -> None:
    types: dict[str, tuple[Any, Any, Any]] = {
        "boolean": ("boolean", True, True),
        "int": ("int", -7, -7),
        "long": ("long", 1 << 40, 1 << 40),
        "float": ("float", 1.5, 1.5),
        "double": ("double", -2.25, -2.25),
        "string": ("string", "ü/1", "ü/1"),
        "bytes": ("bytes", b"\x00\xff", b"\x00\xff"),
        "fixed": ({"type": "fixed", "name": "f3", "size": 3}, b"abc", b"abc"),
    }
    partition = [
        {"name": name, "type": ["null", kind], "default": None, "field-id": 1000 + at}
        for at, (name, (kind, _, _)) in enumerate(types.items())
    ]
    given = {name: value for name, (_, value, _) in types.items()}
    data = manifest(partition, {"partition": given}, {"partition": dict.fromkeys(types)}, codec=codec)
    (entries,) = read_entries(data, "m.avro", deletes=True)
    assert entries[0].partition == tuple((1000 + at, value) for at, (_, _, value) in enumerate(types.values()))
    assert entries[1].partition == tuple((1000 + at, None) for at in range(len(types)))


def test_partitions_of_nan_are_equal_between_manifests() -> None:
    partition = [{"name": "x", "type": ["null", "double"], "default": None, "field-id": 1000}]
    first, second = (
        next(read_entries(manifest(partition, {"partition": {"x": value}}), "m", deletes=True))[0].partition
        for value in (math.nan, struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\x7f")[0])
    )
    assert {first: 1}[second] == 1


def bound(path: str, key: int = PATHS) -> list[dict[str, Any]]:
    return [{"key": 2147483545, "value": b"\x01"}, {"key": key, "value": path.encode()}]


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ({}, None),
        ({"referenced_data_file": "s3://b/d"}, "s3://b/d"),
        ({"lower_bounds": bound("s3://b/d"), "upper_bounds": bound("s3://b/d")}, "s3://b/d"),
        ({"lower_bounds": bound("s3://b/d"), "upper_bounds": bound("s3://b/e")}, None),
        ({"lower_bounds": bound("s3://b/d")}, None),
        ({"lower_bounds": bound("x", 7), "upper_bounds": bound("x", 7)}, None),
        ({"content": 2, "lower_bounds": bound("s3://b/d"), "upper_bounds": bound("s3://b/d")}, None),
    ],
)
def test_a_delete_file_of_one_data_file_names_it(file: dict[str, Any], named: str | None) -> None:
    ((entry,),) = read_entries(manifest([], file), "m.avro", deletes=True)
    assert entry.referenced_data_file == named
    assert entry.partition == ()


def test_a_vector_has_its_own_size_within_its_file() -> None:
    vector = {"file_format": "PUFFIN", "referenced_data_file": "s3://b/d", "content_size_in_bytes": 43}
    ((entry,),) = read_entries(manifest([], vector), "m.avro", deletes=True)
    assert (entry.content_size_in_bytes, entry.file_size_in_bytes) == (43, 10)


def test_a_bound_that_is_no_text_is_a_corrupt_manifest() -> None:
    broken = [{"key": PATHS, "value": b"\xff"}]
    data = manifest([], {"lower_bounds": broken, "upper_bounds": broken})
    with pytest.raises(CorruptManifestError, match="cannot be decoded"):
        list(read_entries(data, "m.avro", deletes=True))


def test_a_partition_of_an_unknown_type_is_named_with_its_place_in_the_value() -> None:
    kind = {"type": "enum", "name": "e", "symbols": ["A"]}
    data = manifest([{"name": "x", "type": ["null", kind], "field-id": 1000}], {"partition": {"x": "A"}})
    with pytest.raises(CorruptManifestError, match="cannot be decoded") as refused:
        list(read_entries(data, "m.avro", deletes=True))
    text = str(refused.value)
    assert text.startswith("m.avro is corrupt: ")
    assert "enum" in text
    assert "byte 2 of the value" in text
    assert "(" not in text  # no Python tuple
