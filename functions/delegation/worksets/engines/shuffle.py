"""Shuffle rows between the tasks of a Spark job, sorted and packed by Python, so that the JVM moves few, small rows.

A reading task distributes its rows over the plan's parts by a hash of the path, as sorted runs; a task that writes a
part merges its runs. For Spark a run is one row: a key, a mark (the kind of rows) and the run's packed lists.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import zstandard

from delegation.iceberg.files import Row
from delegation.worksets.sorting import RUN_RECORDS, merged

RUNS = "key int, mark int, lists array<binary>"
_SCHEMA = pa.schema([("key", pa.int32()), ("mark", pa.int32()), ("lists", pa.list_(pa.binary()))])
# Rows per list, which is in memory as a whole when runs are merged.
_LIST_ROWS = 500
_WORD = 0xFFFFFFFF
_ODD = 0x9E3779B1  # 2³² by the golden ratio (Knuth's multiplicative hashing)


def pack(value: Any) -> bytes:
    """Compress a JSON value; `unpack` returns it with lists for tuples."""
    return zstandard.ZstdCompressor(level=1).compress(json.dumps(value, separators=(",", ":")).encode())


def unpack(data: bytes) -> Any:
    return json.loads(zstandard.ZstdDecompressor().decompress(data))


class Spread:
    """Collects up to about `most` rows and yields them as runs. `keys` has one key per part."""

    def __init__(self, keys: Sequence[int], *, most: int = RUN_RECORDS) -> None:
        self._keys = keys
        self._most = most
        self._parts: defaultdict[int, list[list[Row]]] = defaultdict(lambda: [[] for _ in keys])
        self._held = 0

    def add(self, rows: Sequence[Row], mark: int) -> Iterator[pa.RecordBatch]:
        parts, count, crc32 = self._parts[mark], len(self._keys), zlib.crc32
        for row in rows:
            # CRC-32 alone is uneven: it hardly differs for paths that differ in one digit.
            parts[(crc32(row[0].encode()) * _ODD & _WORD) * count >> 32].append(row)
        self._held += len(rows)
        if self._held >= self._most:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows collected as runs; call it once more at the end."""
        for mark, parts in self._parts.items():
            for key, rows in zip(self._keys, parts, strict=True):
                if rows:
                    rows.sort()
                    lists = [
                        pack(list(zip(*rows[at : at + _LIST_ROWS], strict=True)))
                        for at in range(0, len(rows), _LIST_ROWS)
                    ]
                    yield pa.RecordBatch.from_pylist([{"key": key, "mark": mark, "lists": lists}], schema=_SCHEMA)
        self._parts.clear()
        self._held = 0


class Gathered:
    """The runs that a task received, by key and mark; one list of each run is unpacked at a time."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._runs: defaultdict[int, defaultdict[int, list[list[bytes]]]] = defaultdict(lambda: defaultdict(list))
        for batch in batches:
            for key, mark, lists in zip(*(batch.column(number).to_pylist() for number in range(3)), strict=True):
                self._runs[key][mark].append(lists)

    @property
    def keys(self) -> list[int]:
        return sorted(self._runs)

    def rows(self, key: int, mark: int) -> Iterator[list[Row]]:
        """Yield the rows sorted, each path once."""
        return merged([_lists(run) for run in self._runs[key][mark]])

    def paths(self, key: int, mark: int) -> Iterator[str]:
        """Yield the paths sorted, each once."""
        return (path for path, _, _ in chain.from_iterable(self.rows(key, mark)))


def _lists(run: Sequence[bytes]) -> Iterator[list[Row]]:
    for data in run:
        yield list(zip(*unpack(data), strict=True))


def part_keys(count: int) -> list[int]:
    """Return `count` keys that Spark's `repartition(count, "key")` assigns to different partitions.

    Spark hashes an int by Murmur3 with seed 42 (`HashPartitioning`), modulo the number of partitions. If that changes,
    parts share partitions and the plan is the same.
    """
    found: dict[int, int] = {}
    key = 0
    while len(found) < count:
        found.setdefault(_murmur3(key) % count, key)
        key += 1
    return [found[partition] for partition in range(count)]


def _murmur3(value: int) -> int:
    """Return Spark's signed hash of a non-negative int."""
    mixed = value * 0xCC9E2D51 & _WORD
    mixed = _rotated(mixed, 15) * 0x1B873593 & _WORD
    mixed = _rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & _WORD
    mixed ^= 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
