"""The manifest reader on tables of pyiceberg and of fastavro: paths, and entries with partitions and references."""

import contextlib
import io
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from delegation.iceberg.avro import manifests as avro
from delegation.iceberg.avro.entries import FileEntry, read_entries
from delegation.iceberg.errors import CorruptManifestError
from tests.unit.iceberg.manifest_files import entry_schema, read_manifest

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "score", DoubleType(), required=False),
    NestedField(4, "part", LongType(), required=False),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "name"), PartitionField(4, 1001, IdentityTransform(), "part")
)


def rows(start: int) -> pa.Table:
    ids = list(range(start, start + 20))
    names = [None if number % 5 == 0 else f"ü/{number % 3}" for number in ids]
    return pa.table(
        {"id": ids, "name": names, "score": [number / 3 for number in ids], "part": [number % 4 for number in ids]}
    )


@pytest.fixture(params=[1, 2])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """A partitioned table with added, existing and deleted entries."""
    with contextlib.closing(SqlCatalog("local", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table(
            "db.t", SCHEMA, partition_spec=SPEC, properties={"format-version": str(request.param)}
        )
        table.append(rows(0))
        table.append(rows(20))
        table.delete("name == 'ü/1'")
        table.delete("id < 4")
        table.append(rows(40))
        yield table


def local(uri: str) -> Path:
    return Path(urlsplit(uri).path) if uri.startswith("file:") else Path(uri)


def test_every_data_file_of_a_pyiceberg_table_is_found_and_each_manifest_verifies(table: Table, tmp_path: Path) -> None:
    manifests: set[Path] = set()
    listed: set[Path] = set()
    statuses: set[int] = set()
    for snapshot in table.metadata.snapshots:
        manifest_list = local(snapshot.manifest_list)
        for manifest in avro.read_manifest_list(manifest_list.read_bytes(), snapshot.manifest_list):
            manifests.add(local(manifest.manifest_path))
            data = local(manifest.manifest_path).read_bytes()
            entries = list(read_manifest(data, manifest.manifest_path))
            assert avro.mismatch_of(manifest, data, "m") is None
            assert avro.mismatch_of(manifest._replace(manifest_length=1), data, "m") is None
            for entry in entries:
                statuses.add(entry.status)
                listed.add(local(entry.file_path))
                assert local(entry.file_path).stat().st_size == entry.file_size_in_bytes

    assert listed == set(tmp_path.rglob("*.parquet"))
    assert manifests == set(tmp_path.rglob("*-m[0-9]*.avro"))
    assert {1, 2} <= statuses


def test_a_pyiceberg_manifest_list_reads_as_fastavro_reads_it(table: Table, tmp_path: Path) -> None:
    files = [*tmp_path.rglob("snap-*.avro")]
    assert len(files) == len(table.metadata.snapshots)
    for path in files:
        with path.open("rb") as file:
            oracle = list(fastavro.reader(file))
        manifests = list(avro.read_manifest_list(path.read_bytes(), str(path)))
        assert [each.manifest_path for each in manifests] == [each["manifest_path"] for each in oracle]
        assert [each.manifest_length for each in manifests] == [each["manifest_length"] for each in oracle]
        assert [each.added_rows_count for each in manifests] == [each["added_rows_count"] for each in oracle]
        assert [each.added_files_count for each in manifests] == [
            each.get("added_files_count", each.get("added_data_files_count")) for each in oracle
        ]


PATHS = 2147483546


def test_entries_of_a_pyiceberg_table_are_those_that_fastavro_reads(table: Table) -> None:
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


def manifest(partition: list[dict[str, Any]], *files: dict[str, Any], codec: str = "null") -> bytes:
    target = io.BytesIO()
    plain = {"content": 1, "file_format": "PARQUET", "partition": {}, "record_count": 1, "file_size_in_bytes": 10}
    described = [{**plain, "file_path": f"s3://b/{at}", **one} for at, one in enumerate(files)]
    records = [{"status": 1, "data_file": one} for one in described]
    fastavro.writer(target, entry_schema(3, partition), records, codec=codec)
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
