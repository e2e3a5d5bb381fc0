"""What Spark executors read of tables and plans, spread over parts, and the plan that they write from it. This is
common to all operations. A subclass of `ReadSources` defines what an operation has in its chunks and in its table's
manifests, and the resulting marks of rows."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast, get_args

from pyspark import RDD

from delegation.errors import RunStopped
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.paths import ALL_KINDS, Row, Spelling
from delegation.iceberg.reach import Tolerance, is_whole_otherwise, refuse_cut_off
from delegation.identifiers import TableIdentifier
from delegation.references.reading import digest
from delegation.removal.chunks import Chunk, read_chunk
from delegation.removal.context import RemovalContext
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.neighbours import ReadOnce, Unread, survey_neighbour, tolerance_of
from delegation.removal.path_guard import GuardVerdict, PathGuard
from delegation.removal.spark import SparkJobs
from delegation.removal.spark_executors import (
    ExecutorResources,
    ManifestToRead,
    ReceivedRuns,
    Result,
    Run,
    SpreadSources,
    WriteParts,
    WrittenParts,
    decode_error,
    encode_error,
    entries_of,
    expected_rows,
    part_writer,
    plans_of,
    store_of,
    written,
)
from delegation.removal.unread_neighbours import reading, reading_of
from polaris_common.errors import DelegationError

CANDIDATE, NEEDED, SHARED, TAKEN, DAMAGED, FOREIGN = range(6)
"""Marks of rows: candidates to delete; what the table itself needs or an earlier segment has; what other tables need;
what a formerly purged table kept for this one, which has a row of CANDIDATE too; manifests that are kept unread, with
the number of the verdict in VERDICTS as rank; what foreign tables need, with their numbers as rank."""
MISSING: Final = 7
"""The mark of a missing manifest's path. The driver decides on it."""
UNREAD: Final = 8
"""The mark of an encoded error in a table's files, which is not a path. The driver decides on it."""
VERDICTS: Final = get_args(GuardVerdict)
OWN: Final = 0
"""The number of the table itself among tables whose manifests are read. Other tables have numbers from 1."""
_ROWS: Final = 50_000
"""Rows already read by the driver, for one task."""

Noted = dict[tuple[str, int], int]
"""Texts and ranks of rows that an executor records while it reads, with their marks."""
MarkedRows = tuple[Sequence[Row], int]


class Source(NamedTuple):
    """What one Spark task reads: `manifests` (number of the table, then as in `ManifestToRead`), `chunks` (mark, id of
    the plan, chunk as JSON), and `rows` that the driver has read (mark, path, rank, size)."""

    manifests: Sequence[tuple[int, str, int, Sequence[Any]]] = ()
    chunks: Sequence[tuple[int, str, str]] = ()
    rows: Sequence[tuple[int, str, int, int]] = ()


class NeighbourToRead(NamedTuple):
    """Another table whose manifests executors read. `foreign` is its number as a foreign table. If it is `reported`,
    unreadable files are accepted. The driver decides on unreadable files with the digests in `noted`, or on all if that
    is None. Others raise NeighbourUnreadable or NeighbourChanged."""

    identifier: TableIdentifier
    reported: bool
    noted: frozenset[bytes] | None
    foreign: int


def noting(noted: Noted) -> Tolerance:
    """Return how an executor reads what the table itself needs. It records manifests that differ as rows of UNREAD."""

    def unreadable(path: str, error: DelegationError) -> None:
        refuse_cut_off(path, error)
        noted[json.dumps([OWN, path, encode_error(error)]), 0] = UNREAD

    return Tolerance(unreadable, Spelling(ALL_KINDS))


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Yields the rows of a source in lists with their mark. `neighbours` are the other tables, by number."""

    resources: ExecutorResources
    identifier: TableIdentifier
    neighbours: tuple[NeighbourToRead, ...]
    threads: int

    def own(self, number: int, noted: Noted) -> tuple[int, Tolerance, bool]:
        """Return the mark of what the table's manifests name, how they are read, and if only live entries count."""
        del number
        return NEEDED, noting(noted), False

    def planned(self, mark: int, plan_id: str, chunk: Chunk) -> Iterator[MarkedRows]:
        """Yield the rows of a chunk that was added with this mark."""
        yield read_chunk(plans_of(self.resources), plan_id, chunk), mark

    def marked(self, rows: Sequence[Row], mark: int) -> Iterator[MarkedRows]:
        """Yield the rows of files that tables name, in the compared form."""
        yield rows, mark

    def __call__(self, stored: Sequence[Any]) -> Iterator[MarkedRows]:
        source = Source(*stored)
        for mark, some in groupby(source.rows, itemgetter(0)):
            yield from self.marked([(path, rank, size) for _, path, rank, size in some], mark)
        for mark, plan_id, chunk in source.chunks:
            yield from self.planned(mark, plan_id, Chunk.model_validate_json(chunk))
        of_tables: dict[int, list[ManifestToRead]] = {}
        for row in source.manifests:
            of_tables.setdefault(row[0], []).append(ManifestToRead(*row[1:]))
        for number in sorted(of_tables):
            read = self._of_another if number > OWN else self._of_itself
            for rows, mark in read(number, of_tables[number]):
                yield from self.marked(rows, mark) if mark < MISSING else [(rows, mark)]

    def _of_itself(self, number: int, listed: Sequence[ManifestToRead]) -> Iterator[MarkedRows]:
        noted: Noted = {}
        mark, tolerance, live = self.own(number, noted)
        store = store_of(self.resources, self.identifier)
        for rows in entries_of(store, listed, tolerance, threads=self.threads, live=live):
            yield rows, mark
        for (text, rank), of in noted.items():
            yield [(text, rank, 0)], of

    def _of_another(self, number: int, listed: Sequence[ManifestToRead]) -> Iterator[MarkedRows]:
        table, unread = self.neighbours[number - 1], list[Row]()

        def unreadable(path: str, error: DelegationError) -> None:
            if not (table.noted is None or digest(path) in table.noted or is_whole_otherwise(error)):
                raise error
            unread.append((json.dumps([number, path, encode_error(error)]), 0, 0))

        tolerance = tolerance_of(unreadable, reported=table.reported)
        # An error in another table's files has another type, which may be retryable.
        with reading_of(table.identifier):
            store = store_of(self.resources, table.identifier)
            for rows in entries_of(store, listed, tolerance, threads=self.threads):
                yield ([(row[0], table.foreign, 0) for row in rows], FOREIGN) if table.foreign else (rows, SHARED)
        yield unread, UNREAD


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Writes the candidates of a part as chunks of a plan, by the guard's verdicts. Returns its result."""

    resources: ExecutorResources
    plan_id: str
    chunk_paths: int
    guard: PathGuard
    foreign: frozenset[str]

    def __call__(self, runs: ReceivedRuns, part: int) -> Result:
        guard = self.guard.fresh()
        damaged = (row for rows in runs.rows(part, DAMAGED) for row in rows)
        guard.damaged.update((path, VERDICTS[rank]) for path, rank, _ in damaged)
        writer = part_writer(self.resources, self.plan_id, part, chunk_paths=self.chunk_paths)
        rows, needed, shared, taken = (
            runs.rows(part, CANDIDATE),
            *(runs.paths(part, of) for of in (NEEDED, SHARED, TAKEN)),
        )
        guard.write(writer, rows, needed, self.foreign, shared=shared, taken=taken)
        missing, unread = list(runs.paths(part, MISSING)), list(runs.paths(part, UNREAD))
        return {**written(writer, guard.counted()), "missing": missing, "unread": unread}


class NeighbourSources:
    """Other tables whose manifests executors read. `add` reads everything else of them in this process. `rows` are the
    files found this way, `listed` the remaining manifests, each with its table's number, and `tables` what executors
    know of tables."""

    def __init__(self, ctx: RemovalContext, unread: Unread, once: ReadOnce | None = None) -> None:
        self._ctx = ctx
        self._unread = unread
        self._once = once or ReadOnce()
        self._neighbours: list[tuple[Neighbour, Unread]] = []
        self._foreign_listed: set[tuple[int, str]] = set()
        self.tables: list[NeighbourToRead] = []
        self.rows: list[tuple[int, str, int, int]] = []
        self.listed: list[tuple[int, ManifestToRead]] = []
        self.expected = 0

    def add(self, neighbour: Neighbour, *, slim: bool = False) -> None:
        """Read a table except its manifests. Raises as `survey_neighbour`. A `slim` table's metadata is not kept."""
        small, manifests = self._survey(neighbour, self._unread, self._once, slim=slim)
        self.rows.extend((SHARED, *row) for row in small)
        self._list(manifests)

    def add_foreign(self, head: Neighbour, number: int, unread: Unread, once: ReadOnce) -> None:
        """Read a version of a foreign table in the same way. Its versions share most manifests, which are read once."""
        small, manifests = self._survey(head, unread, once, slim=True, foreign=number)
        self.rows.extend((FOREIGN, path, number, 0) for path, _, _ in small)
        fresh = {path: manifest for path, manifest in manifests.items() if (number, path) not in self._foreign_listed}
        self._foreign_listed.update((number, path) for path in fresh)
        self._list(fresh)

    def _survey(
        self, neighbour: Neighbour, unread: Unread, once: ReadOnce, *, slim: bool, foreign: int = 0
    ) -> tuple[Sequence[Row], Mapping[str, ManifestFile]]:
        accepts = unread.accepts(exempt=neighbour.exempt)
        is_noted = neighbour.former or accepts
        noted = neighbour.unread if is_noted else frozenset()
        self.tables.append(NeighbourToRead(neighbour.table.identifier, accepts, noted, foreign))
        bare = replace(neighbour, table=replace(neighbour.table, metadata={})) if slim else neighbour
        self._neighbours.append((bare, unread))
        small, manifests = survey_neighbour(self._ctx, neighbour, unread, once)
        if not is_noted:
            # An unreadable manifest ends the plan, so one read serves all tables. Where damage may be accepted, each
            # table with the manifest must read it.
            once.manifests.update(manifests)
        return small, manifests

    def _list(self, manifests: Mapping[str, ManifestFile]) -> None:
        limit, number = self._ctx.settings.max_file_bytes, len(self.tables)
        self.listed.extend((number, ManifestToRead(path, limit, manifest)) for path, manifest in manifests.items())
        self.expected += expected_rows(manifests.values())

    def take(self, unread: Iterable[str]) -> None:
        """Decide on what executors could not read, by the texts of rows of UNREAD. Raises unaccepted errors."""
        for number, path, encoded in map(json.loads, unread):
            error = decode_error(encoded)
            if isinstance(error, RunStopped):
                raise error
            if number == OWN:
                self._unread.note_differing("the table", path)
                continue
            neighbour, decides = self._neighbours[number - 1]
            with reading(neighbour):
                decides.of(neighbour)(path, error)


class Sources:
    """What the executors of one job read and spread over parts: what is added, and the rest of `neighbours`. `expected`
    is the number of rows by the manifest lists and the chunks, which may be wrong."""

    def __init__(self, ctx: RemovalContext, jobs: SparkJobs, neighbours: NeighbourSources) -> None:
        self._ctx = ctx
        self._jobs = jobs
        self._neighbours = neighbours
        self._rows = list(neighbours.rows)
        self._manifests: list[Any] = [(number, *manifest) for number, manifest in neighbours.listed]
        self._chunks: list[tuple[int, str, str]] = []
        self.expected = len(neighbours.rows) + neighbours.expected

    def add_rows(self, mark: int, rows: Sequence[Row]) -> None:
        """Add rows that the driver has read."""
        self._rows.extend((mark, *row) for row in rows)
        self.expected += len(rows)

    def add_manifests(self, number: int, manifests: Mapping[str, ManifestFile]) -> None:
        """Add manifests of the table itself."""
        limit = self._ctx.settings.max_file_bytes
        self._manifests.extend((number, *ManifestToRead(path, limit, manifest)) for path, manifest in manifests.items())
        self.expected += expected_rows(manifests.values())

    def add_chunks(self, mark: int, plan_id: str, chunks: Iterable[Chunk]) -> None:
        """Add chunks of a plan."""
        for chunk in chunks:
            self._chunks.append((mark, plan_id, chunk.model_dump_json()))
            self.expected += chunk.count

    def spread(self, read: Callable[..., ReadSources], *, end: str = "") -> RDD[Run]:
        """Return the sorted runs of all rows, with duplicates. `read` creates the reader from the fields of all."""
        jobs, ctx, rows = self._jobs, self._ctx, self.expected
        sources = [
            *(Source(manifests=share) for share in jobs.shares_of_rows(self._manifests, rows)),
            *(Source(chunks=share) for share in jobs.shares_of_rows(self._chunks, rows)),
            *(Source(rows=self._rows[at : at + _ROWS]) for at in range(0, max(1, len(self._rows)), _ROWS)),
        ]
        made = read(jobs.resources, ctx.identifier, tuple(self._neighbours.tables), ctx.settings.read_threads)
        return jobs.spread(SpreadSources.of(made, jobs.parts_for(rows), sources, end=end))

    def write_plan(
        self, runs: RDD[Run], plan_id: str, guard: PathGuard, foreign: frozenset[str], missing: Callable[[str], object]
    ) -> WrittenParts:
        """Write a plan's chunks on executors. The guard gets what it kept, `missing` the paths of missing manifests."""
        jobs, ctx = self._jobs, self._ctx
        writing = WriteParts(WritePlan(jobs.resources, plan_id, ctx.settings.chunk_paths, guard, foreign))
        results = jobs.run(ctx.attempt, runs.mapPartitions(writing))
        for result in results:
            for path in result["missing"]:
                missing(path)
            self._neighbours.take(result["unread"])
        parts = WrittenParts.of(results)
        guard.add((cast("GuardVerdict", verdict), finding) for verdict, finding in parts.kept.items())
        return parts
