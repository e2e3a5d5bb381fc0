"""Sorting more paths than memory holds, dropping duplicates on the way (external merge sort)."""

import heapq
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

RUN_RECORDS = 50_000
# So many records share a line of a spilled run: one JSON call for all of them, and this many in memory per run when
# merging.
_LINE_RECORDS = 500
# Runs open at a time; more are merged in several passes.
_FAN_IN = 64


class Record(NamedTuple):
    """A path to delete: canonical URI, rank of its type (the lowest wins when a path has several) and size in bytes.

    Sorts by path first, by code point, which is also the byte order of UTF-8 and so Spark's.
    """

    path: str
    rank: int
    size: int


class Sorter:
    """Collects records in any order, gives them back sorted, one per path. Memory is bounded by `run_records`.

    Use as a context manager: spilled runs lie in a temporary directory that goes with it.
    """

    def __init__(self, *, run_records: int = RUN_RECORDS) -> None:
        self._run_records = run_records
        self._run: list[Record] = []
        self._spilled: list[Path] = []
        self._made = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    @property
    def empty(self) -> bool:
        return not self._run and not self._spilled

    def add(self, record: Record) -> None:
        self._run.append(record)
        if len(self._run) >= self._run_records:
            self._spill()

    def extend(self, records: Iterable[Record]) -> None:
        for record in records:
            self.add(record)

    def sorted(self) -> Iterator[Record]:
        """All records in order, each path once; call it once, after the last `add`."""
        while len(self._spilled) >= _FAN_IN:
            merged = heapq.merge(*(_read(path) for path in self._spilled[:_FAN_IN]))
            fresh = self._write(distinct(merged))
            for path in self._spilled[:_FAN_IN]:
                path.unlink()
            self._spilled = [*self._spilled[_FAN_IN:], fresh]
        self._run.sort()
        if not self._spilled:
            return distinct(self._run)
        return distinct(heapq.merge(*(_read(path) for path in self._spilled), self._run))

    def _spill(self) -> None:
        self._run.sort()
        self._spilled.append(self._write(distinct(self._run)))
        self._run = []

    def _write(self, records: Iterable[Record]) -> Path:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="purge-plan-")
        self._made += 1
        path = Path(self._directory.name) / f"{self._made:06d}"
        with path.open("w", encoding="utf-8") as out:
            line: list[Record] = []
            for record in records:
                line.append(record)
                if len(line) >= _LINE_RECORDS:
                    out.write(json.dumps(line, separators=(",", ":")) + "\n")
                    line = []
            if line:
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
        return path


def distinct(records: Iterable[Record]) -> Iterator[Record]:
    """The first record of every path, out of sorted ones."""
    last = None
    for record in records:
        if record.path != last:
            last = record.path
            yield record


def subtract(records: Iterable[Record], paths: Iterable[str]) -> Iterator[tuple[Record, bool]]:
    """Each of the sorted records with whether its path is among the sorted paths, in one pass over both."""
    theirs = iter(paths)
    at = next(theirs, None)
    for record in records:
        while at is not None and at < record.path:
            at = next(theirs, None)
        yield record, at == record.path


def _read(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            for one in json.loads(line):
                yield Record(*one)
