"""The manifest reader on tables written by pyiceberg, compared with fastavro and the files on disk."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
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
from tests.unit.iceberg.manifest_files import read_manifest

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


def test_a_pyiceberg_manifest_reads_as_fastavro_reads_it(table: Table, tmp_path: Path) -> None:
    files = [*tmp_path.rglob("*-m[0-9]*.avro")]
    assert files
    for path in files:
        with path.open("rb") as file:
            oracle = [(record["status"], record["data_file"]) for record in fastavro.reader(file)]
        entries = [each for batch in avro.read_paths(path.read_bytes(), str(path)) for each in batch]
        assert entries == [
            (status, file.get("content", 0), file["file_path"], file["file_size_in_bytes"]) for status, file in oracle
        ]


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
