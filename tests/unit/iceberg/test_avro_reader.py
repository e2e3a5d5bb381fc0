"""The manifest reader on manifests that fastavro wrote."""

import pytest

from delegation.iceberg.avro.manifests import ManifestFile, read_manifest_list, read_paths, verify
from delegation.iceberg.errors import CorruptManifestError, ManifestMismatchError
from tests.unit.iceberg.manifest_files import (
    CODECS,
    LISTED,
    ManifestEntry,
    entry,
    entry_schema,
    list_schema,
    read_manifest,
    written,
)


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
    verify(manifest, actual_length=6543, counted=17)


def test_verify_compares_size_and_entries() -> None:
    (manifest,) = read_manifest_list(written(list_schema(2), [LISTED]), "snap.avro")

    verify(manifest, actual_length=6543, counted=6)
    with pytest.raises(ManifestMismatchError, match="has 6542 bytes, but its manifest list records 6543"):
        verify(manifest, actual_length=6542, counted=6)
    with pytest.raises(ManifestMismatchError, match="has 5 entries, but its manifest list records 6"):
        verify(manifest, actual_length=6543, counted=5)


def test_a_manifest_listed_inline_by_a_v1_snapshot_is_not_compared() -> None:
    verify(ManifestFile("s3://bucket/m.avro", None), actual_length=1, counted=1)


def test_another_file_format_is_corrupt() -> None:
    with pytest.raises(CorruptManifestError, match="a Parquet file") as caught:
        list(read_manifest(b"PAR1...", "s3://bucket/m.avro"))
    assert (caught.value.path, caught.value.offset) == ("s3://bucket/m.avro", 0)
