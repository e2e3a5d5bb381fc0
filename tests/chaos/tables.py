"""Iceberg tables of a run: a few written by pyiceberg, all others copies of them at other locations."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pyarrow as pa

from delegation.iceberg.metadata import decode_metadata
from tests.chaos.load import Make, TableOfLoad
from tests.faults.shared.growth import grow, rewritten, where
from tests.kit.lakes.lake import Lake, rows

WAREHOUSE: Final = "s3://warehouse/lake"
INLINE_MAX_FILES: Final = 200
_ORIGINAL: Final = "s3://lake/original"
_MORE: Final[Mapping[Make, int]] = {Make.MEDIUM: 60, Make.LARGE: 240}


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table's objects by URI, its current metadata file, and those of its first snapshot, which a clone needs."""

    location: str
    objects: Mapping[str, bytes]
    metadata_location: str
    early_metadata_location: str
    early: frozenset[str]

    @property
    def files(self) -> frozenset[str]:
        return frozenset(self.objects)


def written(table: TableOfLoad, seed: int) -> WrittenTable:
    """Return a table of the load; equal seeds give equal names of files and table uuids."""
    original, metadata = _original(table.make)
    location = f"{WAREHOUSE}/{table.namespace}/{table.name}"
    own_uuid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{seed}/{location}"))
    return _moved(original, location, str(metadata["table-uuid"]), own_uuid)


@cache
def _original(make: Make) -> tuple[WrittenTable, dict[str, Any]]:
    lake = Lake()
    properties = {"gc.enabled": "false"} if make is Make.PROTECTED else {}
    table = lake.create("original", location=_ORIGINAL, **properties)
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    early, early_files = lake.pointers["original"], frozenset(lake.uris())
    lake.table("original").append(rows(4, 5, part="c"))
    lake.table("original").overwrite(rows(6), overwrite_filter="part = 'a'")
    if make in _MORE:
        grow(lake, "original", _MORE[make])
    objects = {f"s3://{bucket}/{key}": data for (bucket, key), data in lake.objects.items()}
    pointer = lake.pointers["original"]
    metadata = dict(decode_metadata(pointer, lake.objects[where(pointer)]))
    return WrittenTable(_ORIGINAL, objects, pointer, early, early_files), metadata


def _moved(table: WrittenTable, location: str, old_uuid: str, new_uuid: str) -> WrittenTable:
    """Return a copy of a table at another location, with another uuid, whose metadata names only its own files."""

    def moved(text: str) -> str:
        return text.replace(_ORIGINAL, location).replace(old_uuid, new_uuid)

    def copied(value: Any) -> Any:
        if isinstance(value, str):
            return moved(value)
        if isinstance(value, dict):
            return {name: copied(one) for name, one in value.items()}
        return [copied(one) for one in value] if isinstance(value, list) else value

    objects: dict[str, bytes] = {}
    for uri in sorted(table.objects, key=lambda uri: "/snap-" in uri):  # lists last: they state the manifests' lengths
        data = table.objects[uri]
        if uri.endswith(".json"):
            data = moved(data.decode()).encode()
        elif uri.endswith(".avro"):
            data = rewritten(data, lambda records: [_sized(copied(one), objects) for one in records])
        else:
            data = b"x"  # a purge reads no data file
        objects[moved(uri)] = data
    return WrittenTable(
        location,
        objects,
        moved(table.metadata_location),
        moved(table.early_metadata_location),
        frozenset(moved(uri) for uri in table.early),
    )


def _sized(record: dict[str, Any], objects: Mapping[str, bytes]) -> dict[str, Any]:
    path = record.get("manifest_path")
    return record if path is None else {**record, "manifest_length": len(objects[path])}
