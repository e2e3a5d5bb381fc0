"""Functions that executors run to plan an expiry, and to take out of a plan what is needed; no path goes to the driver.

`worksets.engines.parts` and `worksets.engines.spark_tasks` describe what all such functions have in common.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from delegation.iceberg.files import Row
from delegation.iceberg.reach import Tolerance
from delegation.identifiers import TableIdentifier
from delegation.keeping.executors import OWN, UNREAD, ReadNear, WritesPlan, noting
from delegation.operations.expiry.engines.inline import FORMER
from delegation.operations.expiry.planning.plan import write_candidates
from delegation.operations.expiry.planning.reach import ANY_SPELLING, unless_missing, with_others_read
from delegation.operations.expiry.reduction import REACHABLE_NOW, SHARED_NOW, OtherPlaces, write_rest
from delegation.worksets.chunks import Chunk, read_chunk
from delegation.worksets.engines.parts import ManifestToRead, entries_of, part_writer, written
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.shuffle import Gathered
from delegation.worksets.engines.spark_tasks import Result, plans_of, store_of
from delegation.worksets.sorting import common_of_two

CANDIDATE, NEEDED, SHARED, GONE = range(4)
"""The marks of rows: what may be deleted, what the table itself needs, what other tables need, missing manifests."""
GOING: Final = -1
"""The number of manifests that only expired snapshots name; those that stay have OWN."""


class ExpirySource(NamedTuple):
    """What one Spark task reads.

    `manifests` are (number, then as in `ManifestToRead`), `chunks` of the plan to reduce (plan id, chunk as JSON),
    `rows` that the driver has read (mark, path, rank, size).
    """

    manifests: Sequence[tuple[int, str, int, Sequence[Any]]] = ()
    chunks: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[int, str, int, int]] = ()


@dataclass(frozen=True, slots=True)
class ReadExpirySource:
    """Yields the rows of a source with their mark; `near` reads the manifests of other tables.

    Files that the table has `given_up` are not needed by it. With `needs_former` it needs the former metadata files of
    the plan's chunks.
    """

    resources: ExecutorResources
    identifier: TableIdentifier
    near: ReadNear
    threads: int
    given_up: frozenset[str] = frozenset()
    needs_former: bool = False

    def __call__(self, stored: Sequence[Any]) -> Iterator[tuple[Sequence[Row], int]]:
        source = ExpirySource(*stored)
        for mark, group in groupby(source.rows, itemgetter(0)):
            yield from self._marked([(path, rank, size) for _, path, rank, size in group], mark)
        for plan_id, chunk in source.chunks:
            planned = read_chunk(plans_of(self.resources), plan_id, Chunk.model_validate_json(chunk))
            yield planned, CANDIDATE
            if self.needs_former:
                yield [row for row in planned if row.rank == FORMER], NEEDED
        listed = [(one[0], ManifestToRead(*one[1:])) for one in source.manifests]
        for number, mark in ((GOING, CANDIDATE), (OWN, NEEDED)):
            of_table = [one for of, one in listed if of == number]
            noted, gone = list[Row](), list[str]()
            tolerance = noting(noted) if number == OWN else Tolerance(unless_missing(gone.append), ANY_SPELLING)
            for rows in self._entries(of_table, tolerance, live=number == OWN):
                yield from self._marked(rows, mark)
            yield noted, UNREAD
            yield [(path, 0, 0) for path in gone], GONE
        for some, mark in self.near([one for one in listed if one[0] > OWN], SHARED):
            yield from [(some, mark)] if mark == UNREAD else self._marked(some, mark)

    def _entries(self, listed: Sequence[ManifestToRead], tolerance: Tolerance, *, live: bool) -> Iterator[list[Row]]:
        if listed:
            store = store_of(self.resources, self.identifier)
            yield from entries_of(store, listed, tolerance, threads=self.threads, live=live)

    def _marked(self, rows: Sequence[Row], mark: int) -> Iterator[tuple[Sequence[Row], int]]:
        """Yield rows with their mark; of those that are needed, what some reader opens instead is needed, too."""
        if mark == CANDIDATE:
            yield rows, mark
            return
        stays = list(with_others_read(rows))
        yield ([row for row in stays if row[0] not in self.given_up] if mark == NEEDED else stays), mark


@dataclass(frozen=True, slots=True)
class WriteCandidates(WritesPlan):
    """Writes the chunks of a part, of the candidates that are not needed; returns its result."""

    def __call__(self, runs: Gathered, part: int) -> Result:
        guard = self.guard.fresh()
        writer = self.writer(part)
        write_candidates(writer, runs.rows(part, CANDIDATE), runs.paths(part, NEEDED), guard, self.foreign)
        unread, missing = list(runs.paths(part, UNREAD)), list(runs.paths(part, GONE))
        return {**written(writer, guard.counted()), "unread": unread, "missing": missing}


@dataclass(frozen=True, slots=True)
class CountNeeded:
    """Counts the files of a plan's part that are needed now; returns the number, and what could not be read."""

    places: OtherPlaces

    def __call__(self, runs: Gathered, part: int) -> Result:
        needed = sum(len(reasons) for _, reasons in _with_reasons(runs, part, self.places))
        return {"needed": needed, "unread": list(runs.paths(part, UNREAD))}


@dataclass(frozen=True, slots=True)
class WriteRest:
    """Writes what is left of a plan's part, and what is kept of it with the reason; returns its result."""

    resources: ExecutorResources
    plan_id: str
    chunk_paths: int
    places: OtherPlaces

    def __call__(self, runs: Gathered, part: int) -> Result:
        writer = part_writer(self.resources, self.plan_id, part, chunk_paths=self.chunk_paths)
        kept = write_rest(writer, _with_reasons(runs, part, self.places))
        return written(writer, kept)


def _with_reasons(runs: Gathered, part: int, places: OtherPlaces) -> Iterator[tuple[list[Row], dict[str, int]]]:
    """Yield the rows of a plan's part with the paths that are kept; the reason that comes first counts."""
    for rows, own, shared in common_of_two(
        runs.rows(part, CANDIDATE), runs.paths(part, NEEDED), runs.paths(part, SHARED)
    ):
        reasons = places.among(rows)
        reasons.update(dict.fromkeys(shared, SHARED_NOW))
        reasons.update(dict.fromkeys(own, REACHABLE_NOW))
        yield rows, reasons
