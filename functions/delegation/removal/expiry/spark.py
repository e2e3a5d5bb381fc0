"""Expires snapshots with Spark. The driver commits and compares; executors plan, subtract and delete.

The driver reads metadata and manifest lists. Executors read manifests and chunks, and one executor writes each part of
a plan (`removal.spark_executors`, `removal.sources`). The driver has only names of manifests and chunks, and counts.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from pyspark import SparkContext

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.paths import Row
from delegation.iceberg.reach import Tolerance
from delegation.removal.chunks import Chunk, Total, read_chunk
from delegation.removal.expiry.context import ExpiryContext, ExpiryIndex, ExpiryResult
from delegation.removal.expiry.planning import ANY_SPELLING, ExpirySurvey, Retained, unless_missing, with_others_read
from delegation.removal.expiry.reduction import (
    FORMER,
    REACHABLE_NOW,
    SHARED_NOW,
    NeededRows,
    OtherPlaces,
    RemainingPlan,
    write_rest,
)
from delegation.removal.expiry.run import ExpiryRun
from delegation.removal.index import common_of_two
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.sources import (
    CANDIDATE,
    MISSING,
    NEEDED,
    OWN,
    SHARED,
    UNREAD,
    MarkedRows,
    NeighbourSources,
    Noted,
    ReadSources,
    Sources,
    noting,
)
from delegation.removal.spark import SparkDeletes, SparkJobs, in_session
from delegation.removal.spark_executors import (
    ExecutorResources,
    ReceivedRuns,
    Result,
    WriteParts,
    WrittenParts,
    part_writer,
    plans_of,
    written,
)
from delegation.removal.unread_neighbours import UnreadNeighbours

GOING: Final = -1
"""The table number of manifests that only expired snapshots name. Remaining ones have OWN."""


@dataclass(frozen=True, slots=True)
class ReadExpiry(ReadSources):
    """Reads what stays and what is removed. Of needed files, objects that some reader opens instead are needed too.
    Files that the table has `given_up` are not needed by it. With `needs_former` it needs the former metadata files in
    the plan's chunks."""

    given_up: frozenset[str] = frozenset()
    needs_former: bool = False

    def planned(self, mark: int, plan_id: str, chunk: Chunk) -> Iterator[MarkedRows]:
        rows = read_chunk(plans_of(self.resources), plan_id, chunk)
        yield rows, mark
        if self.needs_former:
            yield [row for row in rows if row.rank == FORMER], NEEDED

    def own(self, number: int, noted: Noted) -> tuple[int, Tolerance, bool]:
        if number == OWN:
            return NEEDED, noting(noted), True
        missing = unless_missing(lambda path: noted.update({(path, 0): MISSING}))
        return CANDIDATE, Tolerance(missing, ANY_SPELLING), False

    def marked(self, rows: Sequence[Row], mark: int) -> Iterator[MarkedRows]:
        if mark == CANDIDATE:
            yield rows, mark
            return
        stays = list(with_others_read(rows))
        yield ([row for row in stays if row[0] not in self.given_up] if mark == NEEDED else stays), mark


@dataclass(frozen=True, slots=True)
class CountNeeded:
    """Counts the files of a plan's part that are needed now. Returns the number, and what could not be read."""

    places: OtherPlaces

    def __call__(self, runs: ReceivedRuns, part: int) -> Result:
        needed = sum(len(reasons) for _, reasons in _with_reasons(runs, part, self.places))
        return {"needed": needed, "unread": list(runs.paths(part, UNREAD))}


@dataclass(frozen=True, slots=True)
class WriteRest:
    """Writes the rest of a plan's part, and what is kept of it with the reason. Returns its result."""

    resources: ExecutorResources
    plan_id: str
    chunk_paths: int
    places: OtherPlaces

    def __call__(self, runs: ReceivedRuns, part: int) -> Result:
        writer = part_writer(self.resources, self.plan_id, part, chunk_paths=self.chunk_paths)
        kept = write_rest(writer, _with_reasons(runs, part, self.places))
        return written(writer, kept)


def _with_reasons(runs: ReceivedRuns, part: int, places: OtherPlaces) -> Iterator[tuple[list[Row], dict[str, int]]]:
    """Yield the rows of a plan's part with the kept paths. The first reason counts."""
    for rows, own, shared in common_of_two(
        runs.rows(part, CANDIDATE), runs.paths(part, NEEDED), runs.paths(part, SHARED)
    ):
        reasons = places.among(rows)
        reasons.update(dict.fromkeys(shared, SHARED_NOW))
        reasons.update(dict.fromkeys(own, REACHABLE_NOW))
        yield rows, reasons


def expire_with_spark(spark: SparkContext, ctx: ExpiryContext, resources: ExecutorResources) -> ExpiryResult:
    """Expire snapshots with executors; as `run.expire_snapshots`, and raises EngineFailed too. `ctx` is the driver's;
    with `resources` each executor process opens its stores and checks the lease. As in one process, needed files are
    subtracted before each step."""
    return ExpiryRun(ctx, SparkExpiry(SparkJobs(spark, resources))).run()


expire_in_session = in_session(expire_with_spark)


class SparkExpiry(SparkDeletes):
    """ExpiryEngine with the executors of one context."""

    def write(
        self, ctx: ExpiryContext, surveyed: ExpirySurvey, plan_id: str
    ) -> tuple[Sequence[Chunk], dict[str, Total]]:
        if not surveyed.small:
            return (), {}
        sources = Sources(ctx, self._jobs, NeighbourSources(ctx, surveyed.unread))
        sources.add_rows(CANDIDATE, surveyed.small)
        sources.add_rows(NEEDED, surveyed.kept.small)
        sources.add_manifests(GOING, surveyed.going.manifests_to_read())
        sources.add_manifests(OWN, surveyed.kept.manifests)
        runs = sources.spread(partial(ReadExpiry, given_up=surveyed.outdated))
        written = sources.write_plan(runs, plan_id, surveyed.guard, surveyed.foreign, surveyed.unread.note_missing)
        return written.chunks, written.totals

    def needed(self, ctx: ExpiryContext) -> NeededRows:
        return SpreadRows(self._jobs, ctx)


class SpreadRows:
    """NeededRows that executors read when everything to read is known."""

    def __init__(self, jobs: SparkJobs, ctx: ExpiryContext) -> None:
        self._jobs = jobs
        self._ctx = ctx
        self._neighbours = NeighbourSources(ctx, UnreadNeighbours(ctx))
        self._own: Sequence[Row] = ()
        self._manifests: Mapping[str, ManifestFile] = {}
        self._needs_former = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release nothing: Spark drops the spread rows."""

    def add_own(self, files: Retained, known: Collection[str]) -> None:
        """See NeededRows.add_own. Manifests added by an earlier call may be deleted by now, and are not read again."""
        self._own, self._manifests = files.small, files.manifests_without(known)

    def add_former_metadata(self, index: ExpiryIndex) -> None:
        """See NeededRows.add_former_metadata. `subtracted` gets chunks of the same plan."""
        del index
        self._needs_former = True

    def add_neighbours(self, neighbours: Iterable[Neighbour], unread: UnreadNeighbours) -> None:
        self._neighbours = NeighbourSources(self._ctx, unread)
        for neighbour in neighbours:
            self._neighbours.add(neighbour, slim=neighbour.unlisted)

    def subtracted(self, left: ExpiryIndex, places: Callable[[], OtherPlaces]) -> RemainingPlan | None:
        """See NeededRows.subtracted. Usually nothing is needed, which one job finds out."""
        ctx, jobs = self._ctx, self._jobs
        sources = Sources(ctx, jobs, self._neighbours)
        sources.add_rows(NEEDED, self._own)
        sources.add_manifests(OWN, self._manifests)
        sources.add_chunks(CANDIDATE, left.plan_id, left.chunks)
        runs = sources.spread(partial(ReadExpiry, needs_former=self._needs_former))
        while True:
            now = places()
            counted = jobs.run(ctx.attempt, runs.mapPartitions(WriteParts(CountNeeded(now))))
            for result in counted:
                self._neighbours.take(result["unread"])
            # If no file of a table can be read, every file in its last known areas stays.
            if places().last_known.uris == now.last_known.uris:
                break
        if not any(result["needed"] for result in counted):
            return None
        plan_id = ctx.new_plan_id()
        writing = WriteRest(jobs.resources, plan_id, ctx.settings.chunk_paths, now)
        parts = WrittenParts.of(jobs.run(ctx.attempt, runs.mapPartitions(WriteParts(writing))))
        return RemainingPlan(plan_id, parts.chunks, parts.totals, parts.kept)
