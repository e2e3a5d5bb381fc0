"""Write Avro files for the tests of the manifest reader: Iceberg's schemas, and bytes that no library writes."""

import io
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import fastavro

from delegation.iceberg.avro import manifests
from delegation.iceberg.avro.container import MAX_BLOCK_BYTES
from delegation.iceberg.avro.decoder import Wanted

CODECS = ["null", "deflate", "snappy", "zstandard"]
SYNC = b"0123456789abcdef"


class ManifestEntry(NamedTuple):
    """A manifest entry with every type of field that the decoder can read; a purge needs only the first four."""

    status: int
    content: int
    file_path: str
    file_size_in_bytes: int
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    referenced_data_file: str | None = None


ENTRY_FIELDS = (
    *manifests._PATH_FIELDS,
    Wanted((manifests.DATA_FILE, (144, ("content_offset",))), least=0),
    Wanted((manifests.DATA_FILE, (145, ("content_size_in_bytes",))), least=0),
    Wanted((manifests.DATA_FILE, (143, ("referenced_data_file",))), text=True),
)


def read_manifest(data: bytes, path: str, *, max_block_bytes: int = MAX_BLOCK_BYTES) -> Iterator[ManifestEntry]:
    """Decode all entries of a manifest, in file order; raise CorruptManifestError while iterating."""
    for rows in manifests.read_fields(data, path, ENTRY_FIELDS, max_block_bytes):
        yield from map(ManifestEntry._make, rows)


def bounds(name: str, key: int, value: int, kind: str) -> dict[str, Any]:
    """Return Iceberg's map with integer keys: an array of key/value records."""
    fields = [field("key", "int", key), field("value", kind, value)]
    pair = {"name": f"k{key}_v{value}", "type": "record", "fields": fields}
    return {"name": name, "type": ["null", {"type": "array", "items": pair, "logicalType": "map"}], "default": None}


def field(name: str, kind: Any, number: int | None = None) -> dict[str, Any]:
    return {"name": name, "type": kind} | ({} if number is None else {"field-id": number})


def optional(name: str, kind: Any, number: int) -> dict[str, Any]:
    return field(name, ["null", kind], number) | {"default": None}


def entry_schema(version: int, partitions: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return Iceberg's schema of manifest entries, by default with a partition by day."""
    day = optional("day", {"type": "int", "logicalType": "date"}, 1000)
    partition = {"type": "record", "name": "r102", "fields": [day] if partitions is None else partitions}
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
    fields = [
        field("manifest_path", "string", 500),
        field("manifest_length", "long", 501),
        field("partition_spec_id", "int", 502),
    ]
    whats = ("added", "existing", "deleted")
    if version == 1:
        fields.append(field("added_snapshot_id", "long", 503))
        fields += [optional(f"{what}_data_files_count", "int", 504 + at) for at, what in enumerate(whats)]
        fields.append(partitions)
        fields += [optional(f"{what}_rows_count", "long", 512 + at) for at, what in enumerate(whats)]
    else:
        fields += [
            field("content", "int", 517),
            field("sequence_number", "long", 515),
            field("min_sequence_number", "long", 516),
            field("added_snapshot_id", "long", 503),
            *(field(f"{what}_files_count", "int", 504 + at) for at, what in enumerate(whats)),
            *(field(f"{what}_rows_count", "long", 512 + at) for at, what in enumerate(whats)),
            partitions,
            optional("key_metadata", "bytes", 519),
            *([optional("first_row_id", "long", 520)] if version == 3 else []),
        ]
    return {"type": "record", "name": "manifest_file", "fields": fields}


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


def zigzag(value: int) -> bytes:
    """Encode a long."""
    rest, out = value << 1 if value >= 0 else (~value << 1) | 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return zigzag(len(raw)) + raw


def container(schema: Any, *blocks: tuple[int, bytes], codec: str = "null") -> bytes:
    """Return a file with any schema and blocks of any count and compressed data."""
    raw = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    metadata = zigzag(2) + text("avro.schema") + text(raw) + text("avro.codec") + text(codec) + zigzag(0)
    body = b"".join(zigzag(count) + zigzag(len(data)) + data + SYNC for count, data in blocks)
    return b"Obj\x01" + metadata + SYNC + body


def encoded(schema: Any, value: Any, splits: Iterator[int], named: dict[str, Any] | None = None) -> bytes:
    """Encode a value. Each array and map uses the next of `splits`: 0 for one block, n for blocks of n items, -n for
    blocks of n items with a negative count and the size in bytes.
    """
    named = {} if named is None else named
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, list):
        branch, inner = value
        return zigzag(branch) + encoded(schema[branch], inner, splits, named)
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    elif isinstance(kind, str) and kind in named:
        return encoded(named[kind], value, splits, named)
    if kind == "record":
        return b"".join(encoded(each["type"], value[each["name"]], splits, named) for each in schema["fields"])
    if kind == "array":
        return chunked([encoded(schema["items"], each, splits, named) for each in value], next(splits))
    if kind == "map":
        items = [text(key) + encoded(schema["values"], each, splits, named) for key, each in value.items()]
        return chunked(items, next(splits))
    return ENCODERS[kind](value) if isinstance(kind, str) else encoded(kind, value, splits, named)


ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "null": lambda _: b"",
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "int": zigzag,
    "long": zigzag,
    "enum": zigzag,
    "float": lambda value: struct.pack("<f", value),
    "double": lambda value: struct.pack("<d", value),
    "bytes": text,
    "string": text,
    "fixed": bytes,
}


def chunked(items: list[bytes], split: int) -> bytes:
    """Encode the blocks of an array or map."""
    size, out = abs(split) or len(items) or 1, b""
    for at in range(0, len(items), size):
        block = items[at : at + size]
        body = b"".join(block)
        out += (zigzag(-len(block)) + zigzag(len(body)) if split < 0 else zigzag(len(block))) + body
    return out + zigzag(0)
