"""Hostile tables: each is refused with a typed error before the first delete, or purged exactly.

The files of another table and of another bucket are never deleted. The credentials cover the whole bucket, so that
only the guards protect those files.
"""

import io
import re
from collections.abc import Callable
from typing import Any, Final

import fastavro
import pytest

from delegation.removal.purge.run import purge_table
from tests.kit.lakes.lake import Lake, PurgedTables, filled
from tests.unit.iceberg.manifest_files import zigzag

EXACT: Final = "EXACT"
WIDE: Final = ("s3://lake/",)
VICTIM: Final = "s3://lake/wh/victim"

Spoil = Callable[[Lake], object]
Rows = list[dict[str, Any]]


TABLE: Final = "s3://lake/wh/t"


def meta(**changes: Any) -> Spoil:
    return lambda lake: lake.rewrite_metadata("t", {name.replace("_", "-"): value for name, value in changes.items()})


def snapshot(**changes: Any) -> Spoil:
    def spoil(lake: Lake) -> None:
        first, *rest = lake.metadata("t")["snapshots"]
        changed = {**first, **{name.replace("_", "-"): value for name, value in changes.items()}}
        lake.rewrite_metadata("t", {"snapshots": [changed, *rest]})

    return spoil


def log(*paths: str) -> Spoil:
    """Append entries to the metadata log."""

    def spoil(lake: Lake) -> None:
        entries = [{"timestamp-ms": 1, "metadata-file": path} for path in paths]
        lake.rewrite_metadata("t", {"metadata-log": [*lake.metadata("t")["metadata-log"], *entries]})

    return spoil


def former(data: bytes) -> Spoil:
    def spoil(lake: Lake) -> None:
        log(lake.write(f"{TABLE}/metadata/former.metadata.json", data))(lake)

    return spoil


def cycle(lake: Lake) -> None:
    """Add a former metadata file that names the current one, which names it."""
    text = '{"location": "%s", "table-uuid": "%s", "metadata-log": [{"metadata-file": "%s"}]}'
    former((text % (TABLE, lake.metadata("t")["table-uuid"], lake.pointers["t"])).encode())(lake)


def statistics(path: Any, size: Any = 1) -> Spoil:
    return meta(statistics=[{"statistics-path": path, "file-size-in-bytes": size}])


def _rewritten(data: bytes, change: Callable[[Rows], Rows | None]) -> bytes:
    reader = fastavro.reader(io.BytesIO(data))
    records = [dict(record) for record in reader if isinstance(record, dict)]
    changed = change(records)
    schema = reader.writer_schema
    assert schema is not None
    out = io.BytesIO()
    keep = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
    fastavro.writer(out, schema, records if changed is None else changed, codec="null", metadata=keep)
    return out.getvalue()


def lists(change: Callable[[Rows], Rows | None]) -> Spoil:
    """Rewrite every manifest list of the table."""

    def spoil(lake: Lake) -> None:
        for one in lake.metadata("t")["snapshots"]:
            path = one["manifest-list"]
            lake.write(path, _rewritten(lake.read(path), change))

    return spoil


def bytes_of_a_manifest(change: Callable[[bytes], bytes], *, listed: bool = True) -> Spoil:
    """Change one manifest and, if `listed`, its length in every list that names it."""

    def spoil(lake: Lake) -> None:
        path = min(uri for uri in lake.below(f"{TABLE}/") if uri.endswith("-m0.avro"))
        data = change(lake.read(path))
        lake.write(path, data)

        def measure(records: Rows) -> None:
            for record in records:
                if record["manifest_path"] == path and listed:
                    record["manifest_length"] = len(data)

        lists(measure)(lake)

    return spoil


def entries(change: Callable[[dict[str, Any]], object]) -> Spoil:
    """Change the first entry of a manifest; everything else about it is consistent."""

    def rewrite(records: Rows) -> None:
        change(records[0])

    return bytes_of_a_manifest(lambda data: _rewritten(data, rewrite))


def file_path(path: str) -> Spoil:
    return entries(lambda entry: entry["data_file"].update(file_path=path))


def listed(**changes: Any) -> Spoil:
    """Change every record of every manifest list; a callable gets the current value."""

    def change(records: Rows) -> None:
        for record in records:
            for name, value in changes.items():
                record[name] = value(record[name]) if callable(value) else value

    return lists(change)


def first_list(change: Callable[[str, Rows], Rows]) -> Spoil:
    """Rewrite the first manifest list, whose path the change gets too."""

    def spoil(lake: Lake) -> None:
        path = lake.metadata("t")["snapshots"][0]["manifest-list"]
        lake.write(path, _rewritten(lake.read(path), lambda records: change(path, records)))

    return spoil


def stray_manifest(path: str) -> Spoil:
    """Add a manifest to one list."""
    return first_list(lambda _path, records: [*records, {**records[0], "manifest_path": path}])


def twice(records: Rows) -> Rows:
    """Name the first manifest with another length too."""
    return [*records, {**records[0], "manifest_length": records[0]["manifest_length"] + 1}]


def itself(path: str, records: Rows) -> Rows:
    return [*records, {**records[0], "manifest_path": path}]


def of_victim(spoil: Callable[[str], Spoil], ends: str) -> Spoil:
    """Spoil the table with the path of a file of the victim."""
    return lambda lake: spoil(min(uri for uri in lake.below(VICTIM) if re.search(ends, uri)))(lake)


def list_at(path: str | None) -> Spoil:
    return snapshot(manifest_list=path)


def list_is(data: bytes) -> Spoil:
    def spoil(lake: Lake) -> None:
        lake.write(lake.metadata("t")["snapshots"][0]["manifest-list"], data)

    return spoil


def flip(at: int, bit: int) -> Spoil:
    return bytes_of_a_manifest(lambda data: data[:at] + bytes([data[at] ^ bit]) + data[at:][1:])


def less(number: int) -> int:
    return number - 1


def more(number: int) -> int:
    return number + 1


HUGE: Final = zigzag(1 << 62)

CASES: Final[dict[str, tuple[Spoil, str]]] = {
    # The table's metadata
    "another uuid": (meta(table_uuid="00000000-0000-4000-8000-000000000000"), "TABLE_UUID_MISMATCH"),
    "an invalid uuid": (meta(table_uuid="../victim"), "CORRUPT_METADATA"),
    "garbage collection off in capitals": (meta(properties={"gc.enabled": "FALSE"}), "GC_DISABLED"),
    "protected in capitals": (meta(properties={"delegation.protected": "TRUE"}), "TABLE_PROTECTED"),
    "a future format": (meta(format_version=4), "UNSUPPORTED_FORMAT_VERSION"),
    "a format of minus one": (meta(format_version=-1), "UNSUPPORTED_FORMAT_VERSION"),
    "a format as text": (meta(format_version="2"), "CORRUPT_METADATA"),
    "no last update": (meta(last_updated_ms=None), "CORRUPT_METADATA"),
    "a location with ..": (meta(location=f"{TABLE}/../victim"), "AMBIGUOUS_PATH"),
    "a location with #": (meta(location=f"{TABLE}#x"), "AMBIGUOUS_PATH"),
    "a location without a bucket": (meta(location="s3:///wh/t"), "AMBIGUOUS_PATH"),
    "a location on a disk": (meta(location="file:///etc"), "UNSUPPORTED_LOCATION"),
    "a location of S3 Tables": (meta(location="s3://x--table-s3/t"), "UNSUPPORTED_LOCATION"),
    "a write path on a disk": (meta(properties={"write.data.path": "/etc"}), "UNSUPPORTED_LOCATION"),
    "a write path on a disk by URI": (meta(properties={"write.data.path": "file:///etc"}), "UNSUPPORTED_LOCATION"),
    "properties that are a list": (meta(properties=["a"]), "CORRUPT_METADATA"),
    "a property that is a number": (meta(properties={"a": 1}), EXACT),
    # Snapshots and their lists
    "snapshots that are an object": (meta(snapshots={"a": 1}), "CORRUPT_METADATA"),
    "a snapshot without manifests": (list_at(None), "CORRUPT_METADATA"),
    "a snapshot id as text": (snapshot(snapshot_id="1"), "CORRUPT_METADATA"),
    "a manifest list that is missing": (list_at(f"{TABLE}/metadata/none.avro"), "MANIFEST_MISSING"),
    "a manifest list in another bucket": (list_at("s3://other/x.avro"), "CREDENTIALS_DO_NOT_COVER"),
    "the metadata as manifest list": (lambda lake: list_at(lake.pointers["t"])(lake), "CORRUPT_MANIFEST"),
    "the victim's manifest list": (of_victim(list_at, "/snap-"), EXACT),
    "an empty manifest list": (list_is(b""), "CORRUPT_MANIFEST"),
    "a manifest list of zeros": (list_is(bytes(4096)), "CORRUPT_MANIFEST"),
    "a manifest list with a huge header": (list_is(b"Obj\x01" + HUGE), "CORRUPT_MANIFEST"),
    "a manifest list that names itself": (first_list(itself), "MANIFEST_MISMATCH"),
    "two lengths for one manifest": (lists(twice), EXACT),
    "a manifest length one too small": (listed(manifest_length=less), EXACT),
    "a huge manifest length": (listed(manifest_length=1 << 62), EXACT),
    "a negative manifest length": (listed(manifest_length=-1), EXACT),
    "a count of one entry too many": (listed(added_files_count=more), EXACT),
    "a count of no entries": (listed(added_files_count=0, existing_files_count=0, deleted_files_count=0), EXACT),
    "a wrong length and a wrong count": (listed(manifest_length=more, added_rows_count=more), "MANIFEST_MISMATCH"),
    "a wrong length and another snapshot": (listed(manifest_length=less, added_snapshot_id=more), "MANIFEST_MISMATCH"),
    "a wrong length and another spec": (listed(manifest_length=less, partition_spec_id=more), "MANIFEST_MISMATCH"),
    "a wrong length and another content": (
        listed(manifest_length=less, content=lambda kind: 1 - kind),
        "MANIFEST_MISMATCH",
    ),
    "a negative count": (listed(added_files_count=-1), EXACT),
    "a manifest in another bucket": (stray_manifest("s3://other/m.avro"), "CREDENTIALS_DO_NOT_COVER"),
    "a manifest path that is empty": (stray_manifest(""), "CORRUPT_MANIFEST"),
    # Manifests
    "a truncated manifest": (bytes_of_a_manifest(lambda data: data[:-1], listed=False), "MANIFEST_MISMATCH"),
    "a truncated manifest with its length": (bytes_of_a_manifest(lambda data: data[:-1]), "CORRUPT_MANIFEST"),
    "a manifest with a byte appended": (bytes_of_a_manifest(lambda data: data + b"x"), "CORRUPT_MANIFEST"),
    "a manifest without bytes": (bytes_of_a_manifest(lambda _data: b""), "CORRUPT_MANIFEST"),
    "a manifest of another kind of file": (bytes_of_a_manifest(lambda _data: b"PAR1" * 99), "CORRUPT_MANIFEST"),
    "a manifest with wrong magic bytes": (flip(2, 0x80), "CORRUPT_MANIFEST"),
    "a manifest with a wrong sync marker": (flip(-1, 1), "CORRUPT_MANIFEST"),
    # Entries
    "the victim's data file": (of_victim(file_path, r"\.parquet$"), EXACT),
    "a data file in another bucket": (file_path("s3://other/kept"), EXACT),
    "a data file with ?": (file_path(f"{TABLE}/data/x?versionId=1"), "AMBIGUOUS_PATH"),
    "a data file without a name": (file_path(""), "CORRUPT_MANIFEST"),
    "a data file that is a bucket": (file_path("s3://lake"), "AMBIGUOUS_PATH"),
    "a data file on a disk": (file_path("/etc/passwd"), "UNSUPPORTED_LOCATION"),
    "a data file with a nul": (file_path(f"{TABLE}/data/a\0b"), EXACT),
    "the current metadata as data": (lambda lake: file_path(lake.pointers["t"])(lake), EXACT),
    "an unknown content": (entries(lambda one: one["data_file"].update(content=7)), "CORRUPT_MANIFEST"),
    "an unknown status": (entries(lambda one: one.update(status=9)), "CORRUPT_MANIFEST"),
    "a negative file size": (entries(lambda one: one["data_file"].update(file_size_in_bytes=-1)), EXACT),
    # Former metadata and statistics
    "a metadata log with a cycle": (cycle, EXACT),
    "the victim's metadata in the log": (lambda lake: log(lake.pointers["victim"])(lake), EXACT),
    "former metadata nested too deeply": (former(b"[" * 200_000), EXACT),
    "the victim's file as statistics": (of_victim(statistics, "puffin$"), EXACT),
    "statistics of a negative size": (statistics(f"{TABLE}/s.puffin", -1), EXACT),
    "statistics on a disk": (statistics("file:/etc/passwd"), "UNSUPPORTED_LOCATION"),
    "statistics at no path": (statistics(7), "CORRUPT_METADATA"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_table_is_refused_or_purged_exactly(bench: PurgedTables, name: str) -> None:
    spoil, expected = CASES[name]
    filled(bench, "victim")
    strangers = {bench.lake.write(f"{VICTIM}/metadata/kept.puffin"), bench.lake.write("s3://other/kept")}
    strangers |= bench.left("victim")
    spoil(bench.lake)
    ctx = bench.context("t", prefixes=WIDE)
    if expected == EXACT:
        purge_table(ctx)
        left = set(bench.lake.uris())
        assert strangers <= left
        assert len(left - strangers) <= 1  # a file that the changed table does not name
        assert bench.lake.pointers["t"] not in left
    else:
        refused = bench.refused(ctx)
        assert (refused.code, refused.retryable) == (expected, False)
        assert not ctx.attempt.deleting
