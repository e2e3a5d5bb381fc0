"""What it takes to read a large metadata.json: seconds of CPU, and the most memory beside the file's own bytes.

    PYTHONPATH=functions:. python tests/bench/bench_large_metadata.py [--mb N …]

For each kind of table, `json.loads` and `decode_metadata` read the same bytes, each in a process of its own. `kept` is
the memory of what decode_metadata returns. The usual sizes, 20 KB to 1 MB, are read by one parser.
"""

import argparse
import gc
import gzip
import json
import multiprocessing
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from delegation.iceberg.metadata import decode_metadata
from tests.kit.printing import print_now

MB = 1024 * 1024
KINDS = ("snapshots", "schemas", "statistics", "5,000 snapshots")


def document(kind: str, size: int) -> bytes:
    """Return a metadata.json of about so many bytes."""
    base = "s3://lake/warehouse/sales/orders/metadata"
    columns = [
        {"id": number, "name": f"column_{number}", "required": False, "type": "string", "doc": "What it means."}
        for number in range(2_000)
    ]
    summary = {"operation": "append", "spark.app.id": "application_1700000000000_000001"}
    summary |= {
        f"{each}-{what}": "123456" for each in ("added", "total") for what in ("records", "data-files", "bytes")
    }
    if kind == "5,000 snapshots":
        summary |= {
            f"partitions.day={number}": "added-data-files=1,added-records=1000" for number in range(size // 350_000)
        }
    snapshot = {"sequence-number": 1, "timestamp-ms": 1_700_000_000_000, "summary": summary, "schema-id": 0}
    schema = {"type": "struct", "fields": columns}
    blob = {
        "type": "apache-datasketches-theta-v1",
        "fields": [1],
        "properties": {"ndv": "123456"},
        "sequence-number": 1,
    }
    of_kind: Mapping[str, Any] = {
        "snapshots": ("snapshots", snapshot),
        "5,000 snapshots": ("snapshots", snapshot),
        "schemas": ("schemas", schema),
        "statistics": ("statistics", {"blob-metadata": [blob] * 2_000, "file-size-in-bytes": 1}),
    }
    name, element = of_kind[kind]
    number = 5_000 if kind == "5,000 snapshots" else max(1, size // (len(json.dumps(element)) + 300))
    found: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": "6fb0c2b8-9a9a-4f1f-9d1c-0c5a1c6d3b11",
        "location": "s3://lake/warehouse/sales/orders",
        "last-updated-ms": 1_700_000_000_000,
        "current-snapshot-id": 10**18,
    }
    text = [json.dumps(found)[:-1], f', "{name}": [']
    for at in range(number):
        own = {
            "snapshot-id": 10**18 + at,
            "parent-snapshot-id": 10**18 + at - 1,
            "schema-id": at,
            "manifest-list": f"{base}/snap-{10**18 + at}-1-6fb0c2b8-9a9a-4f1f-9d1c-0c5a1c6d3b11.avro",
            "statistics-path": f"{base}/{10**18 + at}.puffin",
        }
        text.append((", " if at else "") + json.dumps({**element, **own}))
    return ("".join(text) + "]}").encode()


def measured(reader: str, data: bytes, answer: Connection) -> None:
    """Send the seconds of CPU, the MB at the peak beside those of before, and the MB that are kept."""
    gc.collect()
    before, began = memory("VmRSS"), time.process_time()
    times = 1 if len(data) > MB * 4 else 50
    for _ in range(times):
        found = json.loads(data) if reader == "json.loads" else decode_metadata("metadata.json", data)
    seconds = (time.process_time() - began) / times
    answer.send((seconds, memory("VmHWM") - before, weight(found)))


def memory(name: str) -> float:
    """Return MB of /proc/self/status: the peak of getrusage is that of the parent, too."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    [kb] = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name}:")]
    return int(kb) / 1024


def weight(value: Any) -> float:
    """Return the MB of a value, each object once."""
    seen: set[int] = set()
    pending, total = [value], 0
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, dict):
            pending += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            pending += one
    return total / MB


def main() -> None:
    """Print a line for each kind, size and reader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, nargs="+", default=[0.02, 1, 200])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--gzip", action="store_true", help="measure decode_metadata of the compressed file, too")
    options = parser.parse_args()
    # A process that begins with the bytes alone: the peak of one that made them would be theirs.
    context = multiprocessing.get_context("spawn")
    for kind in options.kinds:
        for size in options.mb:
            data = document(kind, int(size * MB))
            readers = {"json.loads": data, "decode_metadata": data}
            if options.gzip:
                readers["decode_metadata, gzip"] = gzip.compress(data, 1)
            for reader, stored in readers.items():
                receiving, sending = context.Pipe(duplex=False)
                process = context.Process(target=measured, args=(reader, stored, sending))
                process.start()
                seconds, peak, kept = receiving.recv()
                process.join()
                print_now(
                    f"{kind:16} {len(data) / MB:8.2f} MB  {reader:22} {seconds:8.4f} s  "
                    f"{peak:7.0f} MB more at the peak, {kept:6.1f} MB kept"
                )


if __name__ == "__main__":
    main()
