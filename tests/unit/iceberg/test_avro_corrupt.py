"""Corrupt manifests: each is refused with offset and reason, in bounded time and memory."""

import json
import struct
import tracemalloc
from typing import Any

import pytest

from delegation.iceberg.avro import manifests as avro
from tests.unit.iceberg.manifest_files import (
    CODECS,
    LISTED,
    SYNC,
    ManifestEntry,
    container,
    entry,
    entry_schema,
    list_schema,
    read_manifest,
    text,
    written,
    zigzag,
)
from tests.unit.removal.purge.hostile_files import (
    BLOCKS,
    DATA_FILE,
    ENTRY,
    FILES,
    LIMIT,
    PACKED,
    PATH,
    STATUS,
    corrupt,
    only_block,
    outcome,
    stranger,
    unsupported,
)


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_cut_anywhere_is_corrupt_or_ends_between_two_blocks(codec: str) -> None:
    data = FILES[2, codec]
    whole = outcome(read_manifest, data)
    complete = []
    for length in range(len(data)):
        result = outcome(read_manifest, data[:length])
        if isinstance(result, list):
            assert data[:length].endswith(SYNC)
            assert result == whole[: len(result)]
            complete.append(len(result))
    assert complete[0] == 0
    assert len(complete) < 12


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
def test_a_decompression_bomb_uses_no_more_memory_than_the_limit(codec: str) -> None:
    bomb = container(entry_schema(2), (1, PACKED[codec](bytes(64 << 20))), codec=codec)

    tracemalloc.start()
    try:
        corrupt(bomb, "more than 1048576 bytes when decompressed")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < len(bomb) * 3 + 4 * LIMIT


SNAPPY = PACKED["snappy"](BLOCKS[2])


@pytest.mark.parametrize(
    ("codec", "block", "reason"),
    [
        (
            "zstandard",
            b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60) + b"\x01\x00\x00",
            "more than 1048576 bytes",
        ),
        ("snappy", b"\xff\xff\xff\xff\x0f\x00" * 3, "more than 1048576 bytes"),
        ("snappy", SNAPPY[:-1] + bytes([SNAPPY[-1] ^ 1]), "snappy: the checksum differs"),
    ],
    ids=["zstandard's size", "snappy's size", "snappy's checksum"],
)
def test_a_block_that_states_an_absurd_size_or_a_wrong_checksum(codec: str, block: bytes, reason: str) -> None:
    corrupt(container(entry_schema(2), (12, block), codec=codec), reason)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
def test_a_compressed_stream_that_is_too_long_or_cut_off(codec: str) -> None:
    block = PACKED[codec](BLOCKS[2])

    corrupt(container(entry_schema(2), (12, block + b"12345"), codec=codec), codec)
    corrupt(container(entry_schema(2), (12, block[:-1]), codec=codec), codec)
    corrupt(container(entry_schema(2), (12, b""), codec=codec), codec)


def test_deflate_with_a_trailing_zlib_checksum_is_accepted() -> None:
    block = PACKED["deflate"](BLOCKS[2]) + b"abc"

    assert len(list(read_manifest(container(entry_schema(2), (12, block), codec="deflate"), PATH))) == 12


def test_an_unknown_codec() -> None:
    unsupported(container(entry_schema(2), codec="bzip\n2"), r"the codec 'bzip\\n2', not one of deflate, null")


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"PAR1", "a Parquet file"),
        (b"AGS1", "encrypted"),
        (b"ORC\x01", "ORC"),
        (b"", "unknown format"),
        (b"Obj\x02", "unknown"),
    ],
)
def test_other_formats(start: bytes, what: str) -> None:
    assert corrupt(start + b"....", what).offset == 0


def test_a_wrong_number_of_records() -> None:
    good = BLOCKS[2]

    corrupt(container(entry_schema(2), (13, good)), "the block ends inside the record that begins here")
    corrupt(container(entry_schema(2), (11, good)), "bytes are left after the last record")
    corrupt(container(entry_schema(2), ((1 << 63) - 1, good)), "the block ends inside the record that begins here")
    corrupt(container(entry_schema(2), (-1, good)), "a block states -1 objects")
    corrupt(container(entry_schema(2), (0, good)), "bytes are left after the last record")


def test_a_block_longer_than_the_file_and_a_wrong_sync_marker() -> None:
    head = container(entry_schema(2))

    corrupt(head + zigzag(1) + zigzag(1 << 40) + b"x" * 40, "a block states 1 objects in 1099511627776 bytes")
    corrupt(head + zigzag(1) + zigzag(-5) + b"x" * 40, "in -5 bytes")
    corrupt(head + zigzag(0) + zigzag(0) + b"x" * 16, "the sync marker after a block")


def test_the_offset_is_where_the_bytes_are_wrong() -> None:
    head = container(entry_schema(2))
    data = head + zigzag(1) + zigzag(1) + b"\x08" + SYNC

    error = corrupt(data, "status is 4")
    assert error.offset == len(head) + 3

    packed = PACKED["deflate"](b"\x08")
    error = corrupt(
        container(entry_schema(2), (1, packed), codec="deflate"), "at byte 1 of the decompressed block: status"
    )
    assert error.offset == len(container(entry_schema(2), codec="deflate")) + 2


def record(**data_file: Any) -> bytes:
    """Return the only block of a version 2 manifest with one entry."""
    return only_block(written(entry_schema(2), [entry(1, **data_file)]))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"content": 3}, "content is 3"),
        ({"content": -1}, "content is -1"),
        ({"file_path": ""}, "file_path is empty"),
        ({"file_path": "s3://bucket/XX"}, "text that is not UTF-8"),
    ],
)
def test_values_that_no_manifest_may_have(fields: dict[str, Any], reason: str) -> None:
    block = record(**fields).replace(b"XX", b"\xff\xfe")
    corrupt(container(entry_schema(2), (1, block)), reason)


def test_a_negative_count_and_length_of_a_list_agree_with_nothing() -> None:
    data = written(list_schema(2), [LISTED | {"added_files_count": -1, "manifest_length": -9}])
    (manifest,) = avro.read_manifest_list(data, PATH)
    assert (manifest.added_files_count, manifest.entries, manifest.manifest_length) == (None, None, -1)


def test_a_size_that_is_negative_or_null_counts_nothing() -> None:
    path, size = DATA_FILE["type"]["fields"]
    sized = DATA_FILE | {"type": DATA_FILE["type"] | {"fields": [path, size | {"type": ["null", "long"]}]}}
    schema = {"type": "record", "name": "m", "fields": [STATUS, sized]}
    start = zigzag(1) + text("s3://b/k")
    block = start + zigzag(1) + zigzag(-7) + start + zigzag(0) + start + zigzag(1) + zigzag(7)
    entries = list(read_manifest(container(schema, (3, block)), PATH))
    assert [one.file_size_in_bytes for one in entries] == [0, 0, 7]


# Invalid values of skipped fields

LONGS = {"type": "array", "items": "long"}
TREE = {"type": "record", "name": "tree", "fields": [{"name": "next", "type": ["null", "tree"]}]}


@pytest.mark.parametrize(
    ("kind", "encoded", "reason"),
    [
        ("boolean", b"\x02", "a boolean"),
        ("int", b"\x80" * 5 + b"\x00", "a varint of more than 5 bytes"),
        ("long", b"\x80" * 10 + b"\x00", "a varint of more than 10 bytes"),
        ("string", zigzag(-1), "a negative length"),
        ("string", b"\xff" * 9 + b"\x7f", "a varint of more than 64 bits"),
        ("string", b"\x80" * 10 + b"\x00", "a varint of more than ten bytes"),
        ("bytes", zigzag(1 << 40), "ends inside the record"),
        ("bytes", zigzag((1 << 63) - 1), "ends inside the record"),
        ("double", b"", "text that is not UTF-8|ends inside|is -?[0-9]+|length of"),
        ({"type": "fixed", "name": "f", "size": 1 << 61}, b"", "ends inside the record"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, zigzag(2), "no such symbol"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, zigzag(-1), "no such symbol"),
        (["null", "long"], zigzag(2), "no such branch"),
        (["null", "long"], zigzag(-1), "no such branch"),
        ([], zigzag(0), "no such branch"),
        (LONGS, zigzag((1 << 63) - 1), "ends inside the record"),
        (LONGS, zigzag(-(1 << 63)) + zigzag(1), "ends inside the record"),
        (LONGS, zigzag(-2) + zigzag(3) + b"\x02\x02" + zigzag(0), "differs from its size"),
        (LONGS, zigzag(-2) + zigzag(-2) + b"\x02\x02" + zigzag(0), "a negative length"),
        ({"type": "array", "items": "double"}, zigzag(1 << 62), "ends inside the record"),
        ({"type": "array", "items": "null"}, zigzag(-5) + zigzag(1) + zigzag(0), "differs from its size"),
        ({"type": "map", "values": "null"}, zigzag(1 << 62), "a negative length"),
        ({"type": "map", "values": "int"}, zigzag(1) + zigzag(-1), "a negative length"),
        (TREE, b"\x02" * 200_000, "nested too deep"),
    ],
)
def test_an_invalid_skipped_value(kind: Any, encoded: bytes, reason: str) -> None:
    corrupt(container(stranger(kind), (1, encoded + ENTRY)), reason)


def test_2_to_the_62_values_without_bytes_are_skipped_at_once() -> None:
    empty = {"type": "record", "name": "empty", "fields": [{"name": "n", "type": "null"}]}
    schema = stranger({"type": "array", "items": empty}, {"type": "array", "items": "null"})
    block = zigzag(1 << 62) + zigzag(0) + zigzag(-(1 << 62)) + zigzag(0) + zigzag(0) + ENTRY

    assert list(read_manifest(container(schema, (1, block)), PATH)) == [ManifestEntry(1, 0, "s3://b/k", 9)]


def doubling(levels: int, leaf: Any) -> list[Any]:
    """Return record types, each with two fields of the type before it."""
    kinds: list[Any] = [{"type": "record", "name": "r_0", "fields": [{"name": "a", "type": leaf}]}]
    for level in range(1, levels):
        fields = [{"name": name, "type": f"r_{level - 1}"} for name in "ab"]
        kinds.append({"type": "record", "name": f"r_{level}", "fields": fields})
    return kinds


@pytest.mark.parametrize(
    "leaf", ["null", "int", "double", ["null", "int"], LONGS, {"type": "fixed", "name": "f", "size": 0}]
)
def test_a_schema_that_doubles_forty_times(leaf: Any) -> None:
    result = outcome(read_manifest, container(stranger(*doubling(40, leaf)), (1, ENTRY * 1000)))

    assert isinstance(result, tuple)


def test_a_record_that_contains_itself() -> None:
    kind = {"type": "record", "name": "self", "fields": [{"name": "a", "type": "self"}]}

    corrupt(container(stranger(kind), (1, ENTRY)), "nested too deep")
    corrupt(container(stranger({"type": "array", "items": kind}), (1, zigzag(1 << 62) + ENTRY)), "nested too deep")


def entries_of(name: str) -> Any:
    return {"type": "record", "name": name, "fields": [STATUS]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON|nested too deep"),
        (b"1" * 10_000, "not JSON|not a schema"),
        (b"NaN", "nan is not a schema"),
        (stranger("nowhere"), "no type 'nowhere'"),
        (stranger({"type": "fixed", "name": "f", "size": -1}), "a fixed of size -1"),
        (stranger({"type": "fixed", "name": "f", "size": True}), "a fixed of size True"),
        (stranger({"type": "fixed", "size": 1}), "a named type without a name"),
        (stranger(TREE, TREE), "defines 'tree' twice"),
        (stranger({"type": "enum", "name": "e"}), "an enum without symbols"),
        (stranger({"type": "record", "name": "r"}), "a record without fields"),
        (stranger({"type": "record", "name": "r", "fields": [{"name": 1, "type": "int"}]}), "not a field of a record"),
        (stranger({"type": "\ud800"}), r"no type '\\ud800'"),
        ("long", "a long where status is expected in a record"),
        ({"type": "record", "name": "m", "fields": [STATUS]}, r"no field file_path \(100\)"),
        ({"type": "record", "name": "m", "fields": [DATA_FILE]}, r"no field status \(0\)"),
        ({"type": "record", "name": "m", "fields": [STATUS, STATUS, DATA_FILE]}, "2 fields 'status'"),
        (
            {"type": "record", "name": "m", "fields": [STATUS | {"type": "string"}, DATA_FILE]},
            "status an unusable",
        ),
        ({"type": "record", "name": "m", "fields": [STATUS | {"type": []}, DATA_FILE]}, "status an unusable"),
        ({"type": "record", "name": "m", "fields": [STATUS, DATA_FILE | {"type": "int"}]}, "a int where content"),
    ],
)
def test_invalid_schemas_are_refused(schema: Any, reason: str) -> None:
    assert corrupt(container(schema, (1, ENTRY)), reason).offset < 40


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (b'{"type":' * 50 + b'"null"' + b"}" * 50, "nested too deep"),
        (b" " * ((1 << 20) + 1), "more than 1048576"),
        (["null", *({"type": "fixed", "name": f"f{n}", "size": 1} for n in range(300))], "a union of 301 types"),
        (stranger(*["null"] * 5000), "too many types"),
        ([entries_of("one"), entries_of("two")], "a union in its schema where status"),
        (
            {"type": "record", "name": "m", "fields": [STATUS, DATA_FILE | {"type": [DATA_FILE["type"], "int"]}]},
            "a union in its schema where content",
        ),
    ],
)
def test_valid_schemas_that_are_not_read_are_named_as_unsupported(schema: Any, reason: str) -> None:
    unsupported(container(schema, (1, ENTRY)), reason)


def test_a_required_field_that_is_null() -> None:
    schema = stranger()
    schema["fields"][0] = STATUS | {"type": ["null", "int"]}

    corrupt(container(schema, (1, zigzag(0) + ENTRY)), "status is null")


def test_fields_without_ids_are_found_by_name_and_ids_win_over_names() -> None:
    schema = stranger()
    bare = {"name": "file_size_in_bytes", "type": "long"}
    decoy = {"name": "file_path", "type": "string", "field-id": 999}
    renamed = {"name": "renamed", "type": "string", "field-id": 100}
    inner = {"type": "record", "name": "r2", "fields": [decoy, renamed, bare]}
    schema["fields"] = [{"name": "status", "type": "int"}, {"name": "data_file", "type": inner}]
    block = zigzag(2) + text("s3://decoy/k") + text("s3://b/k") + zigzag(9)

    assert list(read_manifest(container(schema, (1, block)), PATH)) == [ManifestEntry(2, 0, "s3://b/k", 9)]


def test_a_field_with_another_id_does_not_match_by_name() -> None:
    schema = stranger()
    other = [{"name": "file_path", "type": "string", "field-id": 999}, {"name": "file_size_in_bytes", "type": "long"}]
    schema["fields"][1] = DATA_FILE | {"type": {"type": "record", "name": "r2", "fields": other}}

    corrupt(container(schema, (1, ENTRY)), "no field file_path")


def test_names_are_resolved_in_their_namespace() -> None:
    short = {"type": "fixed", "name": "f", "size": 1}
    inner = [{"name": "a", "type": {"type": "fixed", "name": "f", "size": 3}}, {"name": "b", "type": "f"}]
    spaced = {"type": "record", "name": "r", "namespace": "some.where", "fields": inner}
    dotted = {"type": "record", "name": "else.where.r", "fields": [{"name": "a", "type": "some.where.f"}]}
    schema = stranger(short, spaced, "f", dotted, {"type": "array", "items": "else.where.r"})
    block = b"1" + b"333" * 2 + b"1" + b"333" + zigzag(2) + b"333" * 2 + zigzag(0) + ENTRY

    assert list(read_manifest(container(schema, (1, block)), PATH)) == [ManifestEntry(1, 0, "s3://b/k", 9)]


def test_the_last_skipped_value_ends_beyond_the_block() -> None:
    schema = stranger()
    schema["fields"].append({"name": "last", "type": "bytes"})

    corrupt(container(schema, (1, ENTRY + zigzag(2) + b"x")), "the block ends inside its last record")


@pytest.mark.parametrize(("size", "right"), [(0, True), (1, False), (-1, False)])
def test_header_metadata_in_blocks_with_their_size(size: int, right: bool) -> None:
    pairs = text("avro.schema") + text(json.dumps(stranger())) + text("avro.codec") + text("null")
    body = zigzag(1) + zigzag(len(ENTRY)) + ENTRY + SYNC
    data = b"Obj\x01" + zigzag(-2) + zigzag(len(pairs) + size) + pairs + zigzag(0) + SYNC + body

    if right:
        assert len(list(read_manifest(data, PATH))) == 1
    else:
        corrupt(data, "a block of the header's metadata differs from its size")


def test_a_header_without_a_codec_is_not_compressed() -> None:
    head = b"Obj\x01" + zigzag(1) + text("avro.schema") + text(json.dumps(stranger())) + zigzag(0) + SYNC

    assert len(list(read_manifest(head + zigzag(1) + zigzag(len(ENTRY)) + ENTRY + SYNC, PATH))) == 1
    corrupt(head[:-1], "the file ends inside its header")
    corrupt(b"Obj\x01" + zigzag(0) + SYNC, "the header has no schema")
