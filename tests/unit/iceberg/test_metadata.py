"""Parsing table metadata: the fields read, and invalid metadata refused."""

import gzip
import json
import uuid
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.iceberg import metadata as module
from delegation.iceberg.errors import CorruptMetadata
from delegation.iceberg.metadata import decode_metadata, parse_former_metadata, parse_metadata
from delegation.identifiers import is_stand_in
from tests.kit.errors import coded

PATH = "s3://lake/t/metadata/1.metadata.json"
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def metadata(**changes: Any) -> dict[str, Any]:
    whole = {
        "format-version": 2,
        "table-uuid": UUID,
        "location": "s3://lake/t",
        "last-updated-ms": 1,
        "properties": {"write.data.path": "s3://lake/d", "write.folder-storage.path": "s3://lake/f"},
        "snapshots": [{"snapshot-id": 2**62 + 1, "manifest-list": "s3://lake/t/metadata/snap-1.avro"}],
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": "s3://lake/t/metadata/0.metadata.json"}],
        "statistics": [{"snapshot-id": 1, "statistics-path": "s3://lake/t/s.puffin", "file-size-in-bytes": 7}],
        "partition-statistics": [{"snapshot-id": 1, "statistics-path": "s3://lake/t/p.parquet"}],
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def test_every_field_that_names_a_file_is_read() -> None:
    found = parse_metadata(PATH, metadata())
    assert found.snapshots[0].snapshot_id == 2**62 + 1
    assert found.snapshots[0].manifest_list == "s3://lake/t/metadata/snap-1.avro"
    assert found.former == ("s3://lake/t/metadata/0.metadata.json",)
    assert [(one.path, one.size) for one in found.statistics] == [("s3://lake/t/s.puffin", 7)]
    assert [(one.path, one.size) for one in found.partition_statistics] == [("s3://lake/t/p.parquet", 0)]
    assert found.locations == ("s3://lake/t", "s3://lake/d", "s3://lake/f")
    assert found.gc_enabled


def test_a_table_without_snapshots_log_or_properties() -> None:
    bare = metadata(**dict.fromkeys(("properties", "snapshots", "metadata-log", "statistics")))
    found = parse_metadata(PATH, bare)
    assert (found.snapshots, found.former, found.statistics, found.locations) == ((), (), (), ("s3://lake/t",))


def test_manifests_listed_inline_in_version_1() -> None:
    snapshots = [{"snapshot-id": 1, "manifests": ["s3://lake/t/m1.avro"]}]
    found = parse_metadata(PATH, metadata(**{"format-version": 1, "snapshots": snapshots}))
    assert found.snapshots[0].manifests == ("s3://lake/t/m1.avro",)


@pytest.mark.parametrize(
    ("value", "enabled"),
    [
        *((one, True) for one in ("true", "TRUE", "tRuE")),
        *((one, False) for one in ("false", " false ", "no", "0", "", "f", " true", "true ", "yes", "1", "on", "truе")),
    ],
)
def test_gc_is_disabled_by_every_value_that_does_not_read_true(value: str, enabled: bool) -> None:
    """As in Iceberg's PropertyUtil.propertyAsBoolean, which is Java's Boolean.parseBoolean."""
    assert parse_metadata(PATH, metadata(properties={"gc.enabled": value})).gc_enabled is enabled


@pytest.mark.parametrize("size", [-1, "9", None, 1.5, True, []])
@pytest.mark.parametrize("kind", ["statistics", "partition-statistics"])
def test_a_size_that_is_no_length_counts_nothing(kind: str, size: Any) -> None:
    one = {"statistics-path": "s3://x/y", "file-size-in-bytes": size, "snapshot-id": 1}
    found = parse_metadata(PATH, metadata(**{kind: [one]}))
    named = {each.path: each.size for each in (*found.statistics, *found.partition_statistics)}
    assert named["s3://x/y"] == 0


def test_properties_that_are_no_texts_are_read_as_json_writes_them() -> None:
    given = {"a": None, "b": 7, "c": False, "gc.enabled": False, "delegation.protected": True}
    found = parse_metadata(PATH, metadata(properties=given))
    assert found.properties == {"b": "7", "c": "false", "gc.enabled": "false", "delegation.protected": "true"}
    assert not found.gc_enabled
    assert parse_metadata(PATH, metadata(properties={"gc.enabled": None})).gc_enabled


def test_a_table_of_version_1_without_a_uuid_has_its_metadata_location_for_one() -> None:
    first, second = (
        parse_metadata(path, metadata(**{"format-version": 1, "table-uuid": None})).table_uuid
        for path in (PATH, "s3://lake/t/other.metadata.json")
    )
    assert first != second
    assert is_stand_in(first)
    assert uuid.UUID(first)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("format-version", {"format-version": None}),
        ("format-version", {"format-version": "2"}),
        ("table-uuid", {"table-uuid": None}),
        ("table-uuid", {"table-uuid": "../../x"}),
        ("location", {"location": None}),
        ("location", {"location": ["s3://x/y"]}),
        ("last-updated-ms", {"last-updated-ms": True}),
        ("properties", {"properties": ["a"]}),
        ("snapshots", {"snapshots": {"a": 1}}),
        ("snapshots", {"snapshots": ["s3://x/y"]}),
        ("snapshot-id", {"snapshots": [{"manifest-list": "s3://x/y"}]}),
        ("snapshot 1", {"snapshots": [{"snapshot-id": 1}]}),
        ("snapshot 1", {"snapshots": [{"snapshot-id": 1, "manifests": [7]}]}),
        ("manifest-list", {"snapshots": [{"snapshot-id": 1, "manifest-list": 7}]}),
        ("metadata-file", {"metadata-log": [{"timestamp-ms": 1}]}),
        ("statistics-path", {"statistics": [{"file-size-in-bytes": 1}]}),
    ],
)
def test_an_invalid_field_is_named(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptMetadata) as refused:
        parse_metadata(PATH, metadata(**changes))
    assert refused.value.field == field
    assert refused.value.path == PATH
    assert f"is corrupt ({field}): " in str(refused.value)


@pytest.mark.parametrize(("version", "experimental"), [(0, False), (4, False), (99, False), (0, True)])
def test_unknown_format_versions_are_refused_and_newer_ones_are_experimental(version: int, experimental: bool) -> None:
    assert parse_metadata(PATH, metadata(**{"format-version": 4}), experimental=True).format_version == 4
    with pytest.raises(GuardRefused, check=coded("UNSUPPORTED_FORMAT_VERSION")):
        parse_metadata(PATH, metadata(**{"format-version": version}), experimental=experimental)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_former_metadata_is_read_plain_or_gzip(pack: Any) -> None:
    found = parse_former_metadata(PATH, pack(json.dumps(metadata(**{"table-uuid": None})).encode()))
    assert found.table_uuid is None
    assert found.locations == ("s3://lake/t", "s3://lake/d", "s3://lake/f")
    assert found.former == ("s3://lake/t/metadata/0.metadata.json",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b"\x1f\x8b",
        b"\x1f\x8bxxxxxxxxxxxxxxxx",
        gzip.compress(b"{}", mtime=0)[:-9],
    ],
)
def test_files_that_are_not_metadata_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptMetadata, match="is corrupt: it"):
        decode_metadata(PATH, data)


def test_a_gzip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_METADATA_BYTES", 1000)
    with pytest.raises(CorruptMetadata, match="too large when decompressed"):
        decode_metadata(PATH, gzip.compress(b'{"a": "' + b"x" * 5000 + b'"}'))
