"""Rewriting the manifests of a lake's tables: more files in one of them, or all of a table somewhere else."""

import io
from collections.abc import Callable
from typing import Any

import fastavro

from delegation.storage.locations import parse
from tests.kit.lakes.lake import Lake

Records = list[dict[str, Any]]


def grow(lake: Lake, name: str, more: int) -> None:
    """Add so many data files to the first manifest of a table."""
    metadata = lake.metadata(name)
    location = metadata["location"].rstrip("/")
    path = min(uri for uri in lake.below(f"{location}/") if uri.endswith("-m0.avro"))

    def entries(records: Records) -> Records:
        first, added = records[0], []
        for number in range(more):
            uri = f"{location}/data/more/{number:05d}.parquet"
            lake.objects[where(uri)] = b"x"
            added.append({**first, "status": 1, "data_file": {**first["data_file"], "file_path": uri}})
        return [*records, *added]

    lake.objects[where(path)] = rewritten(lake.objects[where(path)], entries)
    length = len(lake.objects[where(path)])

    def count(records: Records) -> Records:
        for record in records:
            if record["manifest_path"] == path:
                record["manifest_length"] = length
                record["added_files_count"] += more
        return records

    for one in metadata["snapshots"]:
        listed = where(one["manifest-list"])
        lake.objects[listed] = rewritten(lake.objects[listed], count)


def rewritten(data: bytes, change: Callable[[Records], Records]) -> bytes:
    """Return an Avro file with other records."""
    reader = fastavro.reader(io.BytesIO(data))
    records = change([dict(record) for record in reader if isinstance(record, dict)])
    schema, out = reader.writer_schema, io.BytesIO()
    assert schema is not None
    keep = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
    fastavro.writer(out, schema, records, codec="deflate", metadata=keep)
    return out.getvalue()


def where(uri: str) -> tuple[str, str]:
    """Return the bucket and the key of an object."""
    found = parse(uri)
    return found.bucket, found.key
