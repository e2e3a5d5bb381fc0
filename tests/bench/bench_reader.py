"""Entries per second of the manifest reader, fastavro and pyiceberg over the same manifests, in one process.

    PYTHONPATH=functions:. python tests/bench/bench_reader.py [--entries N] [--manifests N] [--columns N] [--codec C]

Entries are like Spark's: day partitions, paths with task numbers, counts for every column, bounds of integers, dates,
decimals and strings of any length up to 16, columns without values in a tenth of the files. The rounds of all readers
are interleaved; the figures are medians of CPU time. `first` is a process's first read of a manifest with the schema.
"""

import argparse
import gc
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile as PyIcebergManifest

from delegation.iceberg.avro import manifests as avro
from tests.kit.printing import print_now
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


def main() -> None:
    """Write the manifests, run every reader in turn, print medians and ratios."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--entries", type=int, default=100_000)
    options.add_argument("--manifests", type=int, default=20)
    options.add_argument("--columns", type=int, default=12)
    options.add_argument("--codec", default="deflate")
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    each = given.entries // given.manifests
    total = each * given.manifests
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}-m0.avro" for number in range(given.manifests)]
        for number, path in enumerate(paths):
            path.write_bytes(manifest(number, each, given.columns, given.codec))
        size = sum(path.stat().st_size for path in paths)
        what = f"{total:,} entries of {given.columns} columns in {given.manifests} manifests"
        print_now(f"{what}, {given.codec}, {size / 1e6:.1f} MB")
        rates: dict[str, list[float]] = {}
        for _ in range(given.rounds):
            for name, read in readers(paths).items():
                rates.setdefault(name, []).append(total / seconds(read, total))
    medians = {name: statistics.median(runs) for name, runs in rates.items()}
    ours = medians["read_paths"]
    for name, rate in medians.items():
        print_now(f"{name:42} {rate:12,.0f} entries/s   read_paths is {ours / rate:5.1f} times as fast")


def seconds(read: Callable[[], int], total: int) -> float:
    """Return the CPU time that a reader needs for all manifests, and check its number of entries."""
    gc.collect()
    start = time.process_time()
    count = read()
    used = time.process_time() - start
    if count != total:
        raise SystemExit(f"{count} entries read, {total} written")
    return used


def readers(paths: list[Path]) -> dict[str, Callable[[], int]]:
    """Return readers that count the entries of all manifests with status, content, path and size of each decoded."""
    io = PyArrowFileIO()

    def first(read: Callable[[], int]) -> int:
        avro.decoder_of.cache_clear()
        return read()

    def ours() -> int:
        return sum(len(batch) for path in paths for batch in avro.read_paths(path.read_bytes(), str(path)))

    def fast(schema: Any) -> Callable[[], int]:
        def read() -> int:
            count = 0
            for path in paths:
                with path.open("rb") as file:
                    count += sum(1 for _ in fastavro.reader(file, schema))
            return count

        return read

    def pyiceberg() -> int:
        count = 0
        for path in paths:
            listed = PyIcebergManifest.from_args(
                manifest_path=str(path), manifest_length=path.stat().st_size, partition_spec_id=0, content=0,
                sequence_number=1, min_sequence_number=1, added_snapshot_id=1,
            )  # fmt: skip
            count += len(listed.fetch_manifest_entry(io, discard_deleted=False))
        return count

    return {
        "read_paths, first": partial(first, ours),
        "read_paths": ours,
        "fastavro, four fields": fast(PROJECTED),
        "fastavro, all fields": fast(None),
        "pyiceberg fetch_manifest_entry": pyiceberg,
    }


if __name__ == "__main__":
    main()
