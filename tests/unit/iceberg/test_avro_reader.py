"""The manifest reader on manifests that fastavro wrote."""

import io
import zlib
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.iceberg.avro import manifests
from delegation.iceberg.avro.manifests import BATCH, ManifestFile, mismatch_of, read_manifest_list, read_paths
from delegation.iceberg.errors import ManifestMismatchError
from tests.unit.iceberg.manifest_files import (
    CODECS,
    LISTED,
    ManifestEntry,
    container,
    entry,
    entry_schema,
    list_schema,
    read_manifest,
    written,
    zigzag,
)
from tests.unit.removal.purge.hostile_files import DATA_FILE, ENTRY, STATUS


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


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_list(version: int, codec: str) -> None:
    data = written(list_schema(version), [LISTED] * 3, codec)

    manifests = list(read_manifest_list(data, "snap.avro"))

    expected = ManifestFile(**{name: value for name, value in LISTED.items() if name != "partitions"})
    assert manifests == [expected] * 3
    assert manifests[0].entries == 6


def test_a_v1_manifest_list_may_omit_the_counts() -> None:
    data = written(list_schema(1), [LISTED | {"added_data_files_count": 4}])

    (manifest,) = read_manifest_list(data, "snap.avro")

    assert (manifest.content, manifest.sequence_number, manifest.added_files_count) == (0, None, 4)
    assert manifest.entries is None
    assert mismatch_of(manifest, bytes(6543), "m") is None


DESCRIBED = ManifestFile("m", 0, 3, 0, 7, 5, 77, 2, 1, 1, 20, 10, 5)
"""Of two files with 10 rows each that the snapshot 77 added, one of 10 rows that was there, and one of 5 that went."""
ROWS = [(1, 77, 10), (1, None, 10), (0, 76, 10), (2, 77, 5)]


def described(rows: list[tuple[int, int | None, int]] = ROWS, spec: str = "3", content: str = "data") -> bytes:
    records = [entry(at, status=status) for at, (status, _, _) in enumerate(rows)]
    for record, (_, snapshot_id, count) in zip(records, rows, strict=True):
        record["snapshot_id"] = snapshot_id
        record["data_file"]["record_count"] = count
    out = io.BytesIO()
    fastavro.writer(out, entry_schema(2), records, metadata={"partition-spec-id": spec, "content": content})
    return out.getvalue()


def test_a_manifest_is_whole_by_its_length_whatever_the_counts() -> None:
    data = described()
    claims = ManifestFile("m", len(data), added_files_count=9, existing_files_count=0, deleted_files_count=0)
    assert mismatch_of(claims, data, "m") is None


def test_a_manifest_is_whole_by_all_its_counts_and_ids_whatever_the_length() -> None:
    data = described()
    for length in (-1, 0, len(data) - 1, len(data) + 1, 1 << 40):
        assert mismatch_of(DESCRIBED._replace(manifest_length=length), data, "m") is None


@pytest.mark.parametrize("name", DESCRIBED._fields[6:])
def test_a_count_or_id_that_is_absent_agrees_with_nothing(name: str) -> None:
    found = mismatch_of(DESCRIBED._replace(**{name: None}), described(), "m")
    assert isinstance(found, ManifestMismatchError)
    assert "bytes, but its manifest list records 0" in str(found)


@pytest.mark.parametrize("name", [*DESCRIBED._fields[6:], "partition_spec_id", "content"])
def test_a_count_or_id_that_differs_is_named(name: str) -> None:
    claims = DESCRIBED._replace(**{name: getattr(DESCRIBED, name) + 1})
    found = mismatch_of(claims, described(), "m")
    assert isinstance(found, ManifestMismatchError)
    assert found.cut_off is name.endswith("files_count")


@pytest.mark.parametrize("length", [-1, 0, 1])
def test_a_manifest_with_fewer_entries_may_be_cut_off_whatever_the_length(length: int) -> None:
    """Iceberg's own `rewrite_table_path` leaves lengths of shorter paths, and some writers state 0."""
    found = mismatch_of(DESCRIBED._replace(manifest_length=length), described(ROWS[:3]), "m")
    assert found is not None
    assert found.cut_off


def test_counts_agree_for_each_status_and_not_only_in_sum() -> None:
    swapped = DESCRIBED._replace(added_files_count=1, existing_files_count=2)
    assert "has 2 added entries, but its manifest list records 1" in str(mismatch_of(swapped, described(), "m"))


def test_a_manifest_with_fewer_bytes_may_be_cut_off() -> None:
    data = described()
    claims = DESCRIBED._replace(manifest_length=len(data) + 1, added_rows_count=99)
    found = mismatch_of(claims, data, "m")
    assert found is not None
    assert found.cut_off
    longer = mismatch_of(claims._replace(manifest_length=len(data) - 1), data, "m")
    assert longer is not None
    assert not longer.cut_off
    broken = mismatch_of(claims._replace(manifest_length=1), data[:-20], "m")
    assert broken is not None
    assert broken.cut_off


def test_a_manifest_listed_inline_by_a_v1_snapshot_is_not_compared() -> None:
    assert mismatch_of(ManifestFile("s3://bucket/m.avro", None), b"x", "m") is None


PATH = "s3://lake/wh/t/metadata/m0.avro"
RECORDS = {"name": "record_count", "type": "int", "field-id": 103}
COUNTED = DATA_FILE | {"type": DATA_FILE["type"] | {"fields": [*DATA_FILE["type"]["fields"], RECORDS]}}
SCHEMA = {"type": "record", "name": "manifest_entry", "fields": [STATUS, COUNTED]}


def manifest(blocks: int, count: int) -> bytes:
    """Return a manifest with the same compressed block many times."""
    packed = zlib.compress((ENTRY + zigzag(1)) * count, wbits=-15)
    return container(SCHEMA, *[(count, packed)] * blocks, codec="deflate")


def claims(data: bytes, entries: int) -> ManifestFile:
    """Return the manifest as a list has it whose length is stale, so that the counts decide."""
    counts = {"added_files_count": entries, "existing_files_count": 0, "deleted_files_count": 0}
    rows = {"added_rows_count": entries, "existing_rows_count": 0, "deleted_rows_count": 0}
    return ManifestFile(PATH, len(data) + 1, 0, added_snapshot_id=1, **counts, **rows)


def test_a_small_manifest_that_claims_one_entry_and_holds_ten_million_is_read_for_one_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = manifest(blocks=160, count=65_536)
    assert len(data) < 600_000
    decoded, rows = 0, manifests._rows

    def counting(*given: Any) -> Iterator[list[Any]]:
        nonlocal decoded
        for batch in rows(*given):
            decoded += len(batch)
            yield batch

    monkeypatch.setattr(manifests, "_rows", counting)
    found = manifests.mismatch_of(claims(data, 1), data, PATH)
    assert found is not None
    assert decoded <= BATCH


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 200))
def test_a_manifest_of_a_stale_length_is_whole_with_as_many_entries_as_it_claims(
    count: int, blocks: int, claimed: int
) -> None:
    data = manifest(blocks, count)
    assert (manifests.mismatch_of(claims(data, claimed), data, PATH) is None) == (claimed == blocks * count)
