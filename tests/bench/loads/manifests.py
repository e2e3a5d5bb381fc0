"""Manifests like those that Spark writes, and the schema of the four fields that are read of them.

Entries are like Spark's: day partitions, paths with task numbers, counts for every column, bounds of integers, dates,
decimals and strings of any length up to 16, columns without values in a tenth of the files.
"""

import random
import uuid

from tests.unit.iceberg.manifest_files import entry, entry_schema, written

WIDTHS = (4, 8, 8, 16, None, 8, None, 4, 8, 5)  # bytes of a bound by column; None: a string of up to 16
PROJECTED = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        {"name": "status", "type": "int"},
        {
            "name": "data_file",
            "type": {
                "type": "record",
                "name": "r2",
                "fields": [
                    {"name": "content", "type": "int"},
                    {"name": "file_path", "type": "string"},
                    {"name": "file_size_in_bytes", "type": "long"},
                ],
            },
        },
    ],
}


def manifest(seed: int, entries: int, columns: int, codec: str, *, statuses: int = 3) -> bytes:
    """Return a v2 data manifest of one commit; with two `statuses` no entry is DELETED."""
    chance = random.Random(seed)
    commit = uuid.UUID(int=chance.getrandbits(128))
    records = []
    for number in range(entries):
        sparse = number % 10 == 0
        present = [column for column in range(1, columns + 1) if not sparse or chance.random() > 0.1]
        long_map = [{"key": column, "value": chance.randrange(1, 1 << 21)} for column in range(1, columns + 1)]
        limits = [
            {"key": column, "value": chance.randbytes(WIDTHS[column % len(WIDTHS)] or chance.randrange(1, 17))}
            for column in present
        ]
        day = 19_000 + seed % 365
        records.append(
            entry(
                number,
                status=number % statuses,
                file_path=f"s3://lake-bucket/warehouse/sales.db/orders/data/day={day}/"
                f"{number:05d}-{seed * 7919 + number}-{commit}-0-{number % 12 + 1:05d}.parquet",
                partition={"day": day},
                record_count=chance.randrange(1, 1 << 20),
                file_size_in_bytes=chance.randrange(1 << 20, 1 << 29),
                column_sizes=long_map,
                value_counts=[each | {"value": 100_000} for each in long_map],
                null_value_counts=[each | {"value": 0} for each in long_map],
                nan_value_counts=[each | {"value": 0} for each in long_map[:2]],
                lower_bounds=limits,
                upper_bounds=limits,
                split_offsets=[4],
                sort_order_id=0,
            )
        )
    return written(entry_schema(2), records, codec, interval=64_000)
