"""Avro files: header, blocks, codecs (Avro 1.11 Specification, Object Container Files). No length is trusted: it is
compared with the rest of the file before use, and no block may decompress to more than the caller's limit."""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import cramjam
import zstandard

from delegation.iceberg.avro.schema import shown
from delegation.iceberg.errors import MalformedError, UnsupportedAvroError

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTANDARD_BLOCK = 1 << 17
MAX_BLOCK_BYTES = 64 << 20
OTHER_FORMATS = {b"PAR1": "a Parquet file", b"AGS1": "encrypted", b"ORC\x01": "an ORC file"}


@dataclass(frozen=True, slots=True)
class Header:
    """A file's header; `start` is the position of the first block."""

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
            raise MalformedError(start, f"a block of {count} objects in {size} bytes, {len(data) - pos} are left")
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
        raise MalformedError(pos, f"{size} bytes of metadata, {len(data) - start} are left")
    return data[start : start + size], start + size


def _too_large(limit: int) -> MalformedError:
    return MalformedError(0, f"a block of more than {limit} bytes when decompressed")


def _bounded(plain: bytes, limit: int) -> bytes:
    if len(plain) > limit:
        raise _too_large(limit)
    return plain


def _deflate(data: bytes, limit: int) -> bytes:
    """Decompress RFC 1951; Python's Avro writers leave up to four bytes of a zlib checksum after the stream."""
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
    """Decompress raw Snappy, which begins with its decompressed size, and check the big-endian CRC-32 after it."""
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
    """Decompress one frame of RFC 8878. Java's frames omit their size, so it is estimated from their blocks."""
    most = _most_bytes(data)
    try:
        if zstandard.frame_content_size(data) > limit:
            raise _too_large(limit)
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=min(most, limit))
    except zstandard.ZstdError as error:
        more = f", or more than {limit} bytes when decompressed" if most > limit else ""
        raise MalformedError(0, f"zstandard: {error}{more}") from error


def _most_bytes(data: bytes) -> int:
    """Return the most bytes that a frame may decompress to, at least 1 (RFC 8878, Section 3.1.1.2). Raises
    MalformedError unless the frame ends where the data ends, which the library does not check."""
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
