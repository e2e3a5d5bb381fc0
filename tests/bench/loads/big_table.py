"""A table of any number of files in few manifests, written fast: metadata, manifest list and manifests only.

No entry is DELETED, because the other contenders would not delete its file. fastavro encodes one manifest's entries;
the others are the same bytes with another commit and day in each path.
"""

import io
import json
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro

from tests.bench.loads.manifests import manifest
from tests.unit.iceberg.manifest_files import LISTED, SYNC, list_schema, text, written, zigzag

BUCKET = "lake-bucket"
TABLE = "warehouse/sales.db/orders"
UUID = "9f6c1b52-5c1e-4a6e-9a57-5d1c7f0e2b11"
COLUMNS = 12
_SEED = 0
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "day", "required": False, "type": "date"}]
    + [{"id": n, "name": f"c{n}", "required": False, "type": "long"} for n in range(2, COLUMNS + 1)],
}
_SPEC = [{"name": "day", "transform": "identity", "source-id": 1, "field-id": 1000}]


@dataclass(frozen=True)
class BigTable:
    """`folder` has the objects by their keys; the data files exist only as `data_keys`.

    With `orphans_every` N there is an orphan file beside every Nth data file, of a job that failed.
    """

    folder: Path
    entries: int
    manifests: int
    orphans_every: int = 0

    @property
    def metadata_key(self) -> str:
        return f"{TABLE}/metadata/00001-{UUID}.metadata.json"

    @property
    def metadata_location(self) -> str:
        return f"s3://{BUCKET}/{self.metadata_key}"

    @property
    def files(self) -> int:
        """The number of files that a purge deletes: data, manifests, their list and metadata.json."""
        return self.entries + self.manifests + 2

    @property
    def orphans(self) -> int:
        return -(-self.entries // self.orphans_every) if self.orphans_every else 0

    def data_keys(self) -> Iterator[str]:
        """Yield the keys of the data files and of the orphan files."""
        for number, key in enumerate(self._data_keys()):
            yield key
            if self.orphans_every and number % self.orphans_every == 0:
                yield key.replace(".parquet", "-failed.parquet")

    def _data_keys(self) -> Iterator[str]:
        for blocks in _variants(_template(self.entries // self.manifests), self.manifests):
            for _, data in blocks:
                yield from _paths(data)

    def write(self) -> "BigTable":
        """Write the objects; the same table has the same bytes."""
        metadata = self.folder / TABLE / "metadata"
        metadata.mkdir(parents=True)
        each = self.entries // self.manifests
        header, blocks = _template(each)
        listed = []
        for number, variant in enumerate(_variants((header, blocks), self.manifests)):
            name = f"{number:05d}-m0.avro"
            body = b"".join(_block(count, data) for count, data in variant)
            (metadata / name).write_bytes(header + body)
            listed.append(
                LISTED
                | {
                    "manifest_path": f"s3://{BUCKET}/{TABLE}/metadata/{name}",
                    "manifest_length": len(header) + len(body),
                    "partition_spec_id": 0,
                    "content": 0,
                    "added_files_count": each,
                    "existing_files_count": 0,
                    "deleted_files_count": 0,
                    "partitions": None,
                }
            )
        (metadata / "snap-1.avro").write_bytes(written(list_schema(2), listed, "deflate"))
        (self.folder / self.metadata_key).write_text(json.dumps(self._metadata()))
        return self

    def _metadata(self) -> dict[str, Any]:
        return {
            "format-version": 2,
            "table-uuid": UUID,
            "location": f"s3://{BUCKET}/{TABLE}",
            "last-sequence-number": 7,
            "last-updated-ms": 1_763_700_000_000,
            "last-column-id": COLUMNS,
            "current-schema-id": 0,
            "schemas": [_SCHEMA],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": _SPEC}],
            "last-partition-id": 1000,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {},
            "current-snapshot-id": 1,
            "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
            "snapshots": [
                {
                    "snapshot-id": 1,
                    "sequence-number": 7,
                    "timestamp-ms": 1_763_700_000_000,
                    "schema-id": 0,
                    "summary": {"operation": "append", "total-records": "0", "total-data-files": str(self.entries)},
                    "manifest-list": f"s3://{BUCKET}/{TABLE}/metadata/snap-1.avro",
                }
            ],
            "statistics": [],
            "partition-statistics": [],
            "snapshot-log": [],
            "metadata-log": [],
        }


Blocks = list[tuple[int, bytes]]


def _template(entries: int) -> tuple[bytes, Blocks]:
    """Return the header that Iceberg's readers need, and the uncompressed blocks of the first manifest."""
    data = manifest(_SEED, entries, COLUMNS, "null", statuses=2)
    reader = fastavro.block_reader(io.BytesIO(data))
    blocks = [(block.num_records, block.bytes_.getvalue()) for block in reader]
    values = {
        "avro.schema": reader.metadata["avro.schema"],
        "avro.codec": "deflate",
        "schema": json.dumps(_SCHEMA),
        "partition-spec": json.dumps(_SPEC),
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    pairs = b"".join(text(name) + text(value) for name, value in values.items())
    return b"Obj\x01" + zigzag(len(values)) + pairs + zigzag(0) + SYNC, blocks


def _variants(template: tuple[bytes, Blocks], manifests: int) -> Iterator[Blocks]:
    """Yield the blocks of each manifest, with another commit and day but the same length."""
    _, blocks = template
    path = next(_paths(blocks[0][1])).encode()
    day = path.partition(b"day=")[2][:5]
    # …/day=19000/00000-0-{commit}-0-00001.parquet
    commit = path.partition(b"00000-0-")[2][:36]
    for number in range(manifests):
        other = str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))).encode()
        other_day = b"%05d" % (19_000 + number % 365)
        yield [(n, data.replace(commit, other).replace(b"day=" + day, b"day=" + other_day)) for n, data in blocks]


def _paths(data: bytes) -> Iterator[str]:
    """Yield the keys in a block, found by their prefix and suffix."""
    start, end = f"s3://{BUCKET}/".encode(), b".parquet"
    at = data.find(start)
    while at >= 0:
        until = data.index(end, at) + len(end)
        yield data[at + len(start) : until].decode()
        at = data.find(start, until)


def _block(count: int, data: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush()
    return zigzag(count) + zigzag(len(packed)) + packed + SYNC
