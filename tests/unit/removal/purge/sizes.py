"""Tables that are large by what their manifest lists state; nothing but the lists is as large."""

import io
from typing import Any

import fastavro

from delegation.storage.locations import parse
from tests.kit.lakes.lake import Lake


def state(lake: Lake, name: str, **stated: int) -> None:
    """Write fields of each manifest into a table's manifest lists, such as `added_files_count=1_000`."""
    for snapshot in lake.metadata(name)["snapshots"]:
        found = parse(snapshot["manifest-list"])
        where = (found.bucket, found.key)
        reader = fastavro.reader(io.BytesIO(lake.objects[where]))
        records: list[dict[str, Any]] = [{**record, **stated} for record in reader if isinstance(record, dict)]
        out = io.BytesIO()
        schema = reader.writer_schema
        assert schema is not None
        keep = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
        fastavro.writer(out, schema, records, codec="deflate", metadata=keep)
        lake.objects[where] = out.getvalue()
