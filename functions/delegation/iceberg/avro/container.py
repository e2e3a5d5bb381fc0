"""Avro files (Avro 1.11 Specification, Object Container Files, Schema Declaration): schema, header, blocks, codecs.

The untrusted writer's schema is parsed into a flat list of nodes. Children come before their parents, which refer to
them by index, so widths, patterns and source take linear time without recursion. Only a recursive type refers to an
index above its own. `field-id` is from the Iceberg Table Spec, Appendix A.

No length is trusted: it is compared with the rest of the file before use, and no block may decompress to more than the
caller's limit.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import cramjam
import zstandard

from delegation.iceberg.errors import MalformedError, UnsupportedAvroError

MAX_SCHEMA_BYTES = 1 << 20
MAX_NODES = 4096
MAX_NESTING = 32
MAX_BRANCHES = 256  # Python's compiler recurses once per `elif`
MAX_WIDTH = 1 << 62  # wider than any block; keeps sums of widths small numbers


class AvroType(StrEnum):
    """The Avro types; logical types do not change the encoding."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    FIXED = "fixed"
    ENUM = "enum"
    ARRAY = "array"
    MAP = "map"
    UNION = "union"
    RECORD = "record"


PRIMITIVES = {kind.value: kind for kind in list(AvroType)[:8]}
CONSTANT_WIDTH = {AvroType.NULL: 0, AvroType.BOOLEAN: 1, AvroType.FLOAT: 4, AvroType.DOUBLE: 8}


@dataclass(slots=True)
class Node:
    """A type of the schema. `width` is the encoded size if constant; `recursive` is for records."""

    kind: AvroType
    children: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of a record's fields; untrusted, never put into source
    ids: list[int | None] = field(default_factory=list)  # Iceberg field ids of a record's fields
    size: int = 0  # bytes of a fixed, symbols of an enum
    width: int | None = None
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """A writer's schema; `root` is the index of the type of the file's objects."""

    nodes: tuple[Node, ...]
    root: int


def shown(text: object) -> str:
    """Return untrusted text shortened and made safe for an error message."""
    return ascii(text)[:80]


def parse_schema(raw: bytes) -> Schema:
    """Parse the `avro.schema` entry of a file's header. Raises MalformedError at position 0 for an invalid schema, or
    one beyond this module's limits."""
    if len(raw) > MAX_SCHEMA_BYTES:
        raise UnsupportedAvroError(0, f"has a schema of {len(raw)} bytes, more than {MAX_SCHEMA_BYTES}")
    try:
        document = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedError(0, f"the schema is not JSON: {type(error).__name__}") from error
    parser = _Parser()
    root = parser.parse(document, "", 0)
    return Schema(tuple(parser.nodes), root)


class _Parser:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.named: dict[str, int] = {}
        self.recursions: set[int] = set()  # placeholders of unfinished records that contain themselves
        self.uses = 0

    def parse(self, document: object, namespace: str, depth: int) -> int:
        """Add a type and its children; return its index, negative for a record that is still being parsed."""
        self.uses += 1
        if depth > MAX_NESTING or self.uses > MAX_NODES:
            raise UnsupportedAvroError(0, "has a schema that is nested too deep or has too many types")
        if isinstance(document, str):
            return self._reference(document, namespace)
        if isinstance(document, list):
            return self._union(document, namespace, depth)
        if isinstance(document, dict):
            return self._complex(document, namespace, depth)
        raise MalformedError(0, f"{shown(document)} is not a schema")

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _reference(self, name: str, namespace: str) -> int:
        kind = PRIMITIVES.get(name)
        if kind is not None:
            return self._add(Node(kind, width=CONSTANT_WIDTH.get(kind)))
        for full in (name,) if "." in name or not namespace else (f"{namespace}.{name}", name):
            if full in self.named:
                index = self.named[full]
                if index < 0:
                    self.recursions.add(index)
                return index
        raise MalformedError(0, f"the schema has no type {shown(name)}")

    def _union(self, branches: list[Any], namespace: str, depth: int) -> int:
        if len(branches) > MAX_BRANCHES:
            raise UnsupportedAvroError(0, f"has a union of {len(branches)} types")
        return self._add(Node(AvroType.UNION, [self.parse(branch, namespace, depth + 1) for branch in branches]))

    def _complex(self, document: Mapping[str, Any], namespace: str, depth: int) -> int:
        kind = document.get("type")
        if kind in ("record", "error"):
            return self._record(document, namespace, depth)
        if kind == "enum":
            symbols = document.get("symbols")
            if not isinstance(symbols, list):
                raise MalformedError(0, "an enum without symbols")
            return self._add_named(Node(AvroType.ENUM, size=len(symbols)), document, namespace)
        if kind == "fixed":
            size = document.get("size")
            if type(size) is not int or not 0 <= size < MAX_WIDTH:
                raise MalformedError(0, f"a fixed of size {shown(size)}")
            return self._add_named(Node(AvroType.FIXED, size=size, width=size), document, namespace)
        if kind == "array":
            return self._add(Node(AvroType.ARRAY, [self.parse(document.get("items"), namespace, depth + 1)]))
        if kind == "map":
            return self._add(Node(AvroType.MAP, [self.parse(document.get("values"), namespace, depth + 1)]))
        return self.parse(kind, namespace, depth + 1)

    def _record(self, document: Mapping[str, Any], namespace: str, depth: int) -> int:
        fields = document.get("fields")
        if not isinstance(fields, list):
            raise MalformedError(0, "a record without fields")
        node = Node(AvroType.RECORD)
        placeholder = ~self.uses
        full = self._register(document, namespace, placeholder)
        inner = full.rpartition(".")[0]
        for entry in fields:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or "type" not in entry:
                raise MalformedError(0, f"{shown(entry)} is not a field of a record")
            field_id = entry.get("field-id")
            node.names.append(entry["name"])
            node.ids.append(field_id if type(field_id) is int else None)
            node.children.append(self.parse(entry["type"], inner, depth + 1))
        widths = [self.nodes[child].width if child >= 0 else None for child in node.children]
        if None not in widths:
            node.width = min(MAX_WIDTH, sum(width for width in widths if width is not None))
        index = self._add(node)
        self.named[full] = index
        if placeholder in self.recursions:
            node.recursive = True
            for other in self.nodes:
                if placeholder in other.children:
                    other.children = [index if child == placeholder else child for child in other.children]
        return index

    def _add_named(self, node: Node, document: Mapping[str, Any], namespace: str) -> int:
        index = self._add(node)
        self._register(document, namespace, index)
        return index

    def _register(self, document: Mapping[str, Any], namespace: str, index: int) -> str:
        """Record a named type's index; return its full name."""
        name, own = document.get("name"), document.get("namespace", namespace)
        if not isinstance(name, str) or not name:
            raise MalformedError(0, "a named type without a name")
        full = f"{own}.{name}" if "." not in name and isinstance(own, str) and own else name
        if full in self.named or full in PRIMITIVES:
            raise MalformedError(0, f"the schema defines {shown(full)} twice")
        self.named[full] = index
        return full


MAGIC = b"Obj\x01"
SYNC_BYTES = 16
ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTANDARD_BLOCK = 1 << 17
MAX_BLOCK_BYTES = 64 << 20
OTHER_FORMATS = {b"PAR1": "a Parquet file", b"AGS1": "encrypted", b"ORC\x01": "an ORC file"}


@dataclass(frozen=True, slots=True)
class Header:
    """A file's header. `start` is the position of the first block."""

    schema: bytes
    codec: str
    sync: bytes
    start: int
    metadata: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Block:
    """A decompressed block of `count` objects; `offset` is the position of its compressed data."""

    count: int
    offset: int
    data: bytes
    compressed: bool


def read_header(data: bytes) -> Header:
    """Read the header. Raises MalformedError with a position in the file."""
    if data[:4] != MAGIC:
        raise MalformedError(0, f"it is not an Avro file but {OTHER_FORMATS.get(data[:4], 'an unknown format')}")
    metadata: dict[bytes, bytes] = {}
    pos = len(MAGIC)
    while True:
        start = pos
        count, pos = read_long(data, pos)
        if count == 0:
            break
        stop = -1
        if count < 0:
            size, pos = read_long(data, pos)
            count, stop = -count, pos + size
        for _ in range(count):
            key, pos = _read_bytes(data, pos)
            metadata[key], pos = _read_bytes(data, pos)
        if stop >= 0 and pos != stop:
            raise MalformedError(start, "a block of the header's metadata differs from its size")
    sync = data[pos : pos + SYNC_BYTES]
    if len(sync) < SYNC_BYTES:
        raise MalformedError(pos, "the file ends inside its header")
    if b"avro.schema" not in metadata:
        raise MalformedError(len(MAGIC), "the header has no schema")
    codec = metadata.get(b"avro.codec", b"null").decode("ascii", "replace")
    if codec not in CODECS:
        raise UnsupportedAvroError(len(MAGIC), f"has the codec {shown(codec)}, not one of {', '.join(sorted(CODECS))}")
    return Header(metadata[b"avro.schema"], codec, sync, pos + SYNC_BYTES, metadata)


def read_blocks(data: bytes, header: Header, limit: int) -> Iterator[Block]:
    """Yield the decompressed blocks, each of at most `limit` bytes. Raises MalformedError with the file position."""
    decompress = CODECS[header.codec]
    pos = header.start
    while pos < len(data):
        start = pos
        count, pos = read_long(data, pos)
        size, pos = read_long(data, pos)
        if count < 0 or not 0 <= size <= len(data) - pos - SYNC_BYTES:
            raise MalformedError(
                start, f"a block states {count} objects in {size} bytes, but {len(data) - pos} bytes are left"
            )
        stop = pos + size
        if data[stop : stop + SYNC_BYTES] != header.sync:
            raise MalformedError(stop, "the sync marker after a block differs from the header's")
        try:
            plain = decompress(data[pos:stop], limit)
        except MalformedError as error:
            raise MalformedError(pos, error.reason) from error
        yield Block(count, pos, plain, header.codec != "null")
        pos = stop + SYNC_BYTES


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """Return a zig-zag varint of at most 64 bits and the position after it."""
    value = shift = 0
    for at in range(pos, min(pos + 10, len(data))):
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                raise MalformedError(pos, "a varint of more than 64 bits")
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
    raise MalformedError(pos, "a varint that does not end")


def _read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, start = read_long(data, pos)
    if not 0 <= size <= len(data) - start:
        raise MalformedError(pos, f"the metadata states {size} bytes, but {len(data) - start} are left")
    return data[start : start + size], start + size


def _too_large(limit: int) -> MalformedError:
    return MalformedError(0, f"a block of more than {limit} bytes when decompressed")


def _bounded(plain: bytes, limit: int) -> bytes:
    if len(plain) > limit:
        raise _too_large(limit)
    return plain


def _deflate(data: bytes, limit: int) -> bytes:
    """Decompress RFC 1951. Python's Avro writers leave up to four bytes of a zlib checksum after the stream."""
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        plain = decoder.decompress(data, limit + 1)
    except zlib.error as error:
        raise MalformedError(0, f"deflate: {error}") from error
    _bounded(plain, limit)
    if not decoder.eof or len(decoder.unused_data) > 4:
        raise MalformedError(0, "deflate: the stream does not end with its block")
    return plain


def _snappy(data: bytes, limit: int) -> bytes:
    """Decompress raw Snappy, which starts with its decompressed size, and check the big-endian CRC-32 after it."""
    body = data[:-4]
    claimed = shift = 0
    for byte in body[:5]:
        claimed |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if claimed > limit:
        raise _too_large(limit)
    try:
        plain = bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise MalformedError(0, f"snappy: {shown(error)}") from error
    if struct.pack(">I", zlib.crc32(plain)) != data[-4:]:
        raise MalformedError(0, "snappy: the checksum differs")
    return plain


def _zstandard(data: bytes, limit: int) -> bytes:
    """Decompress one frame of RFC 8878. Java's frames omit their size, so it is estimated from the blocks."""
    most = _most_bytes(data)
    try:
        if zstandard.frame_content_size(data) > limit:
            raise _too_large(limit)
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=min(most, limit))
    except zstandard.ZstdError as error:
        more = f", or more than {limit} bytes when decompressed" if most > limit else ""
        raise MalformedError(0, f"zstandard: {error}{more}") from error


def _most_bytes(data: bytes) -> int:
    """Return the maximum decompressed size of a frame, at least 1 (RFC 8878, Section 3.1.1.2). Raises MalformedError
    unless the frame ends where the data ends, which the library does not check."""
    try:
        pos = zstandard.frame_header_size(data)
        checksum = zstandard.get_frame_parameters(data).has_checksum
    except zstandard.ZstdError as error:
        raise MalformedError(0, f"zstandard: {error}") from error
    most, last = 1, data[:4] != ZSTANDARD_MAGIC
    while not last:
        header = int.from_bytes(data[pos : pos + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        most += ZSTANDARD_BLOCK if kind == 2 else size
        pos += 3 + (1 if kind == 1 else size)
        if pos > len(data):
            break
    if pos + 4 * checksum != len(data):
        raise MalformedError(0, "zstandard: the frame does not end with its block")
    return most


CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": _bounded,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
}
