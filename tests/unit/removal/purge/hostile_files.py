"""Hostile Avro files, and the only outcomes that reading them may have."""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import pytest
import zstandard

from delegation.iceberg.avro import container as avro_container
from delegation.iceberg.errors import CorruptManifestError, EncryptedMetadataFile
from tests.unit.iceberg.manifest_files import CODECS, entry, entry_schema, read_manifest, text, written, zigzag

PATH = "s3://bucket/db/t/metadata/m0.avro"
LIMIT = 1 << 20

Outcome = list[Any] | tuple[str, int, str]


def outcome(read: Callable[..., Iterator[Any]], data: bytes) -> Outcome:
    """Return what reading yields or the error's fields; any other exception fails the test."""
    try:
        return list(read(data, PATH, max_block_bytes=LIMIT))
    except EncryptedMetadataFile as error:
        return error.path, 0, str(error)
    except CorruptManifestError as error:
        ended = error.path, error.offset, error.reason
    assert 0 <= ended[1] <= len(data)
    return ended


def corrupt(data: bytes, reason: str, read: Callable[..., Iterator[Any]] = read_manifest) -> CorruptManifestError:
    with pytest.raises(CorruptManifestError, match=reason) as caught:
        list(read(data, PATH, max_block_bytes=LIMIT))
    assert caught.value.path == PATH
    assert 0 <= caught.value.offset <= len(data)
    return caught.value


def unsupported(data: bytes, reason: str) -> None:
    with pytest.raises(EncryptedMetadataFile, match=reason) as caught:
        list(read_manifest(data, PATH, max_block_bytes=LIMIT))
    assert (caught.value.path, caught.value.code) == (PATH, "UNSUPPORTED")


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda plain: zlib.compress(plain, wbits=-15),
    "snappy": lambda plain: bytes(cramjam.snappy.compress_raw(plain)) + struct.pack(">I", zlib.crc32(plain)),
    "zstandard": lambda plain: zstandard.ZstdCompressor(write_content_size=False).compress(plain),
}


def only_block(data: bytes) -> bytes:
    (block,) = avro_container.read_blocks(data, avro_container.read_header(data), LIMIT)
    return block.data


VERSIONS = (1, 2, 3)
FILES = {
    (version, codec): written(entry_schema(version), [entry(n, columns=2) for n in range(12)], codec, interval=500)
    for version in VERSIONS
    for codec in CODECS
}
BLOCKS = {v: only_block(written(entry_schema(v), [entry(n, columns=2) for n in range(12)])) for v in VERSIONS}


STATUS = {"name": "status", "type": "int", "field-id": 0}
FILE_FIELDS = [
    {"name": "file_path", "type": "string", "field-id": 100},
    {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
]
DATA_FILE = {"name": "data_file", "type": {"type": "record", "name": "r2", "fields": FILE_FIELDS}, "field-id": 2}
ENTRY = zigzag(1) + text("s3://b/k") + zigzag(9)


def stranger(*kinds: Any) -> dict[str, Any]:
    """A manifest whose entries begin with fields of these types."""
    fields = [{"name": f"x{at}", "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": "manifest_entry", "fields": [*fields, STATUS, DATA_FILE]}
