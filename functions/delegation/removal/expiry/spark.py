"""Expiring snapshots with Spark: the driver commits and compares, executors plan, subtract and delete.

`removal.executors` and `removal.executors` describe what all such functions have in common.

The driver reads metadata and manifest lists; executors read manifests and chunks, and each part of a plan is written by
one of them (`removal.executors`). The driver has names of manifests and chunks, and counts.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self, cast

from pyspark import RDD, SparkContext

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.paths import Row
from delegation.iceberg.reach import Tolerance
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Chunk, read_chunk
from delegation.removal.executors import (
    ExecutorResources,
    Gathered,
    ManifestToRead,
    Result,
    Run,
    SpreadSources,
    WriteParts,
    WrittenParts,
    entries_of,
    expected_rows,
    part_writer,
    plans_of,
    store_of,
    written,
)
from delegation.removal.expiry.context import ExpiryContext, ExpiryIndex, ExpiryResult
from delegation.removal.expiry.planning import (
    ANY_SPELLING,
    Retained,
    finish_plan,
    survey,
    unless_missing,
    with_others_read,
    write_candidates,
)
from delegation.removal.expiry.reduction import (
    FORMER,
    REACHABLE_NOW,
    SHARED_NOW,
    NeededRows,
    OtherPlaces,
    Rest,
    write_rest,
)
from delegation.removal.expiry.retention import Expired
from delegation.removal.expiry.run import ExpiryRun
from delegation.removal.index import common_of_two
from delegation.removal.model import Neighbour
from delegation.removal.paths import GuardVerdict
from delegation.removal.spark import (
    OWN,
    UNREAD,
    NearTables,
    ReadNear,
    SparkDeletes,
    SparkJobs,
    WritesPlan,
    in_session,
    noting,
)
from delegation.removal.unread import UnreadNeighbours

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


def expire_with_spark(spark: SparkContext, ctx: ExpiryContext, resources: ExecutorResources) -> ExpiryResult:
    """Expire snapshots with executors; like `run.expire_snapshots`, and raises EngineFailed as well.

    `ctx` is the driver's; with `resources` each executor process opens its stores and checks the lease. What is needed
    is subtracted before each step, as in one process.
    """
    return ExpiryRun(ctx, SparkExpiry(SparkJobs(spark, resources))).run()


expire_in_session = in_session(expire_with_spark)


class SparkExpiry(SparkDeletes):
    """ExpiryEngine with the executors of one context."""

    def plan(self, ctx: ExpiryContext, table: LoadedTable, gone: Expired) -> tuple[ExpiryIndex, PlanSegment]:
        jobs, found = self._jobs, survey(ctx, table, gone)
        plan_id = ctx.new_plan_id()
        written = WrittenParts()
        near = NearTables(ctx, found.unread)
        if found.small:
            sources = ExpirySources(jobs, ctx, near, given_up=found.outdated)
            sources.add_rows(CANDIDATE, found.small)
            sources.add_rows(NEEDED, found.kept.small)
            sources.add_manifests(GOING, found.going.manifests_to_read())
            sources.add_manifests(OWN, found.kept.manifests)
            writing = WriteCandidates(jobs.resources, plan_id, ctx.settings.chunk_paths, found.guard, found.foreign)
            results = jobs.run(ctx.attempt, sources.runs().mapPartitions(WriteParts(writing)))
            for result in results:
                near.take(result["unread"])
                for path in result["missing"]:
                    found.unread.note_missing(path)
            written = WrittenParts.of(results)
        found.guard.add((cast("GuardVerdict", verdict), finding) for verdict, finding in written.kept.items())
        return finish_plan(
            ctx,
            table,
            gone,
            found,
            plan_id=plan_id,
            engine=self.name,
            chunks=written.chunks,
            totals=written.totals,
        )

    def needed(self, ctx: ExpiryContext) -> NeededRows:
        return SpreadRows(self._jobs, ctx)


class ExpirySources:
    """What the executors of one job read and spread over parts; `near` are the other tables."""

    def __init__(
        self, jobs: SparkJobs, ctx: ExpiryContext, near: NearTables, *, given_up: frozenset[str] = frozenset()
    ) -> None:
        self._jobs = jobs
        self._ctx = ctx
        self._near = near
        self._given_up = given_up
        self._expected = near.expected
        self._rows: list[tuple[int, str, int, int]] = []
        self._manifests: list[Any] = [(number, *one) for number, one in near.listed]
        self._chunks: list[tuple[str, str]] = []
        self.add_rows(SHARED, near.rows)

    def add_rows(self, mark: int, rows: Sequence[Row]) -> None:
        """Add rows that the driver has read."""
        self._rows.extend((mark, *row) for row in rows)
        self._expected += len(rows)

    def add_manifests(self, number: int, manifests: Mapping[str, ManifestFile]) -> None:
        """Add manifests of the table."""
        limit = self._ctx.settings.max_file_bytes
        self._manifests.extend((number, *ManifestToRead(path, limit, one)) for path, one in manifests.items())
        self._expected += expected_rows(manifests.values())

    def add_chunks(self, index: ExpiryIndex) -> None:
        """Add the chunks of a plan."""
        self._chunks.extend((index.plan_id, chunk.model_dump_json()) for chunk in index.chunks)
        self._expected += sum(chunk.count for chunk in index.chunks)

    def runs(self, *, needs_former: bool = False) -> RDD[Run]:
        """Return the sorted runs of all rows, with duplicates."""
        jobs, ctx = self._jobs, self._ctx
        sources = [
            *(ExpirySource(manifests=share) for share in jobs.shares_of_rows(self._manifests, self._expected)),
            *(ExpirySource(chunks=share) for share in jobs.shares_of_rows(self._chunks, self._expected)),
            ExpirySource(rows=self._rows),
        ]
        reading = ReadExpirySource(
            jobs.resources,
            ctx.identifier,
            self._near.reading(jobs.resources),
            ctx.settings.read_threads,
            self._given_up,
            needs_former,
        )
        return jobs.spread(SpreadSources.of(reading, jobs.parts_for(self._expected), sources))


class SpreadRows:
    """NeededRows that executors read, when all that is to be read is known."""

    def __init__(self, jobs: SparkJobs, ctx: ExpiryContext) -> None:
        self._jobs = jobs
        self._ctx = ctx
        self._near = NearTables(ctx, UnreadNeighbours(ctx))
        self._own: Sequence[Row] = ()
        self._manifests: Mapping[str, ManifestFile] = {}
        self._needs_former = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to release: Spark drops what was spread."""

    def add_own(self, found: Retained, known: Collection[str]) -> None:
        """See NeededRows.add_own; manifests that an earlier call added may be deleted by now, and are not read."""
        self._own, self._manifests = found.small, found.manifests_without(known)

    def add_former_metadata(self, index: ExpiryIndex) -> None:
        """See NeededRows.add_former_metadata; `subtracted` gets chunks of the same plan."""
        del index
        self._needs_former = True

    def add_others(self, near: Iterable[Neighbour], unread: UnreadNeighbours) -> None:
        self._near = NearTables(self._ctx, unread)
        for neighbour in near:
            self._near.add(neighbour, slim=neighbour.unlisted)

    def subtracted(self, left: ExpiryIndex, places: Callable[[], OtherPlaces]) -> Rest | None:
        """See NeededRows.subtracted; most often nothing is needed, and one job states it."""
        ctx, jobs = self._ctx, self._jobs
        sources = ExpirySources(jobs, ctx, self._near)
        sources.add_rows(NEEDED, self._own)
        sources.add_manifests(OWN, self._manifests)
        sources.add_chunks(left)
        runs = sources.runs(needs_former=self._needs_former)
        while True:
            now = places()
            counted = jobs.run(ctx.attempt, runs.mapPartitions(WriteParts(CountNeeded(now))))
            for result in counted:
                self._near.take(result["unread"])
            # Of a table of which no file can be read after all, every file in its last known areas stays.
            if places().last_known.uris == now.last_known.uris:
                break
        if not any(result["needed"] for result in counted):
            return None
        plan_id = ctx.new_plan_id()
        writing = WriteRest(jobs.resources, plan_id, ctx.settings.chunk_paths, now)
        found = WrittenParts.of(jobs.run(ctx.attempt, runs.mapPartitions(WriteParts(writing))))
        return Rest(plan_id, found.chunks, found.totals, found.kept)
