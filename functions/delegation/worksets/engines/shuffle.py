"""Shuffle rows between the tasks of a Spark job, sorted and packed by Python, so that the JVM moves few, small rows.

A reading task distributes its rows over the plan's parts by a hash of the path, as sorted runs; a task that writes a
part merges its runs. For Spark a run is one pair: the part, and a mark (the kind of rows) with the run's packed lists.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import zstandard

from delegation.iceberg.files import Row
from delegation.worksets.sorting import RUN_RECORDS, dump_rows, load_rows, merged, sort_rows

Run = tuple[int, tuple[int, list[bytes]]]
"""The number of a part, and a mark with packed lists of rows; sorted over all lists."""

# Rows per list, which is in memory as a whole when runs are merged.
_LIST_ROWS = 500
_WORD = 0xFFFFFFFF
_ODD = 0x9E3779B1  # 2³² by the golden ratio (Knuth's multiplicative hashing)


def pack(value: Any) -> bytes:
    """Compress a JSON value; `unpack` returns it with lists for tuples."""
    return compress(json.dumps(value, separators=(",", ":")).encode())


def unpack(data: bytes) -> Any:
    return json.loads(decompress(data))


def compress(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(data)


def decompress(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


class Spread:
    """Collects up to about `most` rows and yields them as runs of `count` parts.

    The part of a row is that of the hash of its path, which goes up to `end` where rows state more than what they are
    joined by; or `part_of` states which.
    """

    def __init__(
        self, count: int, *, most: int = RUN_RECORDS, end: str = "", part_of: Callable[[str], int] | None = None
    ) -> None:
        self._count = count
        self._most = most
        self._end = end
        self._part_of = part_of
        self._parts: defaultdict[int, list[list[Row]]] = defaultdict(lambda: [[] for _ in range(count)])
        self._held = 0

    def add(self, rows: Sequence[Row], mark: int) -> Iterator[Run]:
        parts, count, crc32, end, part_of = self._parts[mark], self._count, zlib.crc32, self._end, self._part_of
        if part_of is not None:
            for row in rows:
                parts[part_of(row[0])].append(row)
        elif end:
            for row in rows:
                parts[(crc32(row[0].partition(end)[0].encode()) * _ODD & _WORD) * count >> 32].append(row)
        else:
            for row in rows:
                # CRC-32 alone is uneven: it hardly differs for paths that differ in one digit.
                parts[(crc32(row[0].encode()) * _ODD & _WORD) * count >> 32].append(row)
        self._held += len(rows)
        if self._held >= self._most:
            yield from self.flush()

    def flush(self) -> Iterator[Run]:
        """Yield the rows collected as runs; call it once more at the end."""
        for mark, parts in self._parts.items():
            for part, rows in enumerate(parts):
                if rows:
                    sort_rows(rows)
                    lists = [compress(dump_rows(rows[at : at + _LIST_ROWS])) for at in range(0, len(rows), _LIST_ROWS)]
                    yield part, (mark, lists)
        self._parts.clear()
        self._held = 0


class Gathered:
    """The runs that a task received, by part and mark; one list of each run is unpacked at a time."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs: defaultdict[int, defaultdict[int, list[list[bytes]]]] = defaultdict(lambda: defaultdict(list))
        for part, (mark, lists) in runs:
            self._runs[part][mark].append(lists)

    @property
    def parts(self) -> list[int]:
        return sorted(self._runs)

    def rows(self, part: int, mark: int) -> Iterator[list[Row]]:
        """Yield the rows sorted, each path once."""
        return merged([_lists(run) for run in self._runs[part][mark]])

    def paths(self, part: int, mark: int) -> Iterator[str]:
        """Yield the paths sorted, each once."""
        return (path for path, _, _ in chain.from_iterable(self.rows(part, mark)))


def _lists(run: Sequence[bytes]) -> Iterator[list[Row]]:
    for data in run:
        yield load_rows(decompress(data))
