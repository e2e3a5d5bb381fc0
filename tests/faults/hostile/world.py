"""The tables of a run: one to purge, small or large, and objects that are not its own."""

import io
from collections.abc import Callable
from typing import Any

import fastavro

from delegation.storage.locations import parse
from tests.faults.hostile.server import BUCKET
from tests.unit.operations.purge.lake import Lake, busy_table

TABLE = "s3://lake/wh/doomed/"
STRANGERS = ("wh/doomed", "wh/doomed2/data/x", "wh/doomed/data/of-no-snapshot", "lake/wh/doomed", "x0", "x1")
LARGE = 600

Records = list[dict[str, Any]]


def world(*, more: int = 0) -> tuple[Lake, frozenset[str]]:
    """Return a lake and the files of its table `doomed`, which has so many more than a small one."""
    lake = Lake()
    busy_table(lake, "doomed")
    if more:
        _grow(lake, more)
    own = frozenset(lake.below(TABLE))
    busy_table(lake, "sibling")
    lake.objects.update({(BUCKET, key): b"x" for key in STRANGERS})
    lake.objects["other", "kept"] = b"x"
    return lake, own


def _grow(lake: Lake, more: int) -> None:
    path = min(uri for uri in lake.below(TABLE) if uri.endswith("-m0.avro"))

    def entries(records: Records) -> Records:
        first, added = records[0], []
        for number in range(more):
            uri = f"{TABLE}data/more/{number:05d}.parquet"
            lake.objects[_where(uri)] = b"x"
            added.append({**first, "status": 1, "data_file": {**first["data_file"], "file_path": uri}})
        return [*records, *added]

    _rewrite(lake, path, entries)
    length = len(lake.objects[_where(path)])

    def count(records: Records) -> Records:
        for record in records:
            if record["manifest_path"] == path:
                record["manifest_length"] = length
                record["added_files_count"] += more
        return records

    for one in lake.metadata("doomed")["snapshots"]:
        _rewrite(lake, one["manifest-list"], count)


def _rewrite(lake: Lake, path: str, change: Callable[[Records], Records]) -> None:
    reader = fastavro.reader(io.BytesIO(lake.objects[_where(path)]))
    records = change([dict(record) for record in reader if isinstance(record, dict)])
    schema, out = reader.writer_schema, io.BytesIO()
    assert schema is not None
    keep = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
    fastavro.writer(out, schema, records, codec="deflate", metadata=keep)
    lake.objects[_where(path)] = out.getvalue()


def _where(uri: str) -> tuple[str, str]:
    found = parse(uri)
    return found.bucket, found.key
