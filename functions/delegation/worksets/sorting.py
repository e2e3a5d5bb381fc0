"""External merge sort of more rows than fit in memory, without duplicate paths.

Rows are processed in lists: a million of them take a few thousand steps of Python.
"""

import json
import tempfile
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice, starmap
from operator import eq
from pathlib import Path

from delegation.iceberg.files import Row, TableFile
from delegation.worksets.errors import SortingFailed

RUN_RECORDS = 50_000
# Rows per line of a spilled run, parsed together, and in memory per run when merging.
_LINE_RECORDS = 500
# Runs merged at a time; more take several passes.
_FAN_IN = 64


class Sorter:
    """Sorts rows and returns one per path, with `run_records` rows in memory.

    Use it as a context manager: leaving it deletes the temporary directory of the spilled runs.
    """

    def __init__(self, *, run_records: int = RUN_RECORDS) -> None:
        self._run_records = run_records
        self._run: list[Row] = []
        self._spilled: list[Path] = []
        self._made = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    @property
    def empty(self) -> bool:
        return not self._run and not self._spilled

    def extend(self, rows: Iterable[Row]) -> None:
        left = iter(rows)
        while True:
            space = self._run_records - len(self._run)
            self._run.extend(islice(left, space))
            if len(self._run) < self._run_records:
                return
            self._spill()

    def batches(self) -> Iterator[list[Row]]:
        """Yield all rows in order, each path once, in lists; call it once, after the last `extend`."""
        while len(self._spilled) >= _FAN_IN:
            fresh = self._write(merged([_read(path) for path in self._spilled[:_FAN_IN]]))
            for path in self._spilled[:_FAN_IN]:
                path.unlink()
            self._spilled = [*self._spilled[_FAN_IN:], fresh]
        self._run.sort()
        return merged([*(_read(path) for path in self._spilled), _lines(self._run)])

    def sorted(self) -> Iterator[TableFile]:
        """Yield the rows one by one, instead of `batches`."""
        return starmap(TableFile, chain.from_iterable(self.batches()))

    def _spill(self) -> None:
        self._run.sort()
        self._spilled.append(self._write(_lines(self._run)))
        self._run = []

    def _write(self, lines: Iterable[Sequence[Row]]) -> Path:
        with _disk(None if self._directory is None else self._directory.name):
            if self._directory is None:
                self._directory = tempfile.TemporaryDirectory(prefix="purge-plan-")
            self._made += 1
            path = Path(self._directory.name) / f"{self._made:06d}"
            with path.open("w", encoding="utf-8") as out:
                for rows in lines:
                    for line in _lines(rows):
                        out.write(json.dumps(list(zip(*line, strict=True)), separators=(",", ":")) + "\n")
        return path


def merged(sources: Sequence[Iterator[list[Row]]]) -> Iterator[list[Row]]:
    """Merge sorted sources, each path once.

    Each step takes from every source the rows up to the smallest last row of the current lists, and sorts them, which
    for Python's sort is a merge.
    """
    return distinct(_steps(sources))


def _steps(sources: Sequence[Iterator[list[Row]]]) -> Iterator[list[Row]]:
    held = [(rows, 0, source) for source in sources if (rows := next(source, None))]
    while held:
        bound = min(rows[-1] for rows, _, _ in held)
        ready: list[Row] = []
        left = []
        for rows, start, source in held:
            end = bisect_right(rows, bound, start)
            ready += rows[start:end]
            if end < len(rows):
                left.append((rows, end, source))
            elif (more := next(source, None)) is not None:
                left.append((more, 0, source))
        held = left
        ready.sort()
        yield ready


def distinct(batches: Iterable[list[Row]]) -> Iterator[list[Row]]:
    """Yield the first row of every path from sorted rows."""
    last: str | None = None
    for rows in batches:
        paths = [path for path, _, _ in rows]
        first_of_each = rows
        if paths[0] == last or any(map(eq, paths, islice(paths, 1, None))):
            before = chain((last,), paths)
            first_of_each = [row for row, former in zip(rows, before, strict=False) if row[0] != former]
        last = paths[-1]
        if first_of_each:
            yield first_of_each


def common(batches: Iterable[list[Row]], paths: Iterable[str]) -> Iterator[tuple[list[Row], set[str]]]:
    """Yield each list of sorted rows with the set of its paths that are among the sorted `paths`, in one pass."""
    theirs = iter(paths)
    at = next(theirs, None)
    for rows in batches:
        last = rows[-1][0]
        both: set[str] = set()
        if at is not None and at <= last:
            ours = {path for path, _, _ in rows}
            while at is not None and at <= last:
                if at in ours:
                    both.add(at)
                at = next(theirs, None)
        yield rows, both


def common_of_two(
    batches: Iterable[list[Row]], first: Iterable[str], second: Iterable[str]
) -> Iterator[tuple[list[Row], set[str], set[str]]]:
    """Yield each list of sorted rows with the sets of its paths that are among two sorted sources, in one pass."""
    held: deque[set[str]] = deque()

    def rows_alone() -> Iterator[list[Row]]:
        for rows, both in common(batches, first):
            held.append(both)
            yield rows

    for rows, both in common(rows_alone(), second):
        yield rows, held.popleft(), both


def without(batches: Iterable[list[Row]], paths: Iterable[str]) -> Iterator[list[Row]]:
    """Yield the sorted rows whose path is not among the sorted `paths`."""
    for rows, both in common(batches, paths):
        left = [row for row in rows if row[0] not in both] if both else rows
        if left:
            yield left


def _lines(rows: Sequence[Row]) -> Iterator[list[Row]]:
    return (list(rows[at : at + _LINE_RECORDS]) for at in range(0, len(rows), _LINE_RECORDS))


def _read(path: Path) -> Iterator[list[Row]]:
    with _disk(str(path.parent)), path.open(encoding="utf-8") as lines:
        for line in lines:
            yield list(zip(*json.loads(line), strict=True))


@contextmanager
def _disk(place: str | None) -> Iterator[None]:
    """Raise SortingFailed for an error of the disk on which runs are written and read."""
    try:
        yield
    except OSError as error:
        raise SortingFailed(place or "the temporary directory", error.strerror or type(error).__name__) from error
