"""Expiring snapshots with Spark: the driver commits and compares, executors plan, subtract and delete.

The driver reads metadata and manifest lists; executors read manifests and chunks, and each part of a plan is written by
one of them (`worksets.engines.parts`). The driver has names of manifests and chunks, and counts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self, cast

from pyspark import RDD, SparkContext

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.files import Row
from delegation.keeping.executors import OWN, NearTables
from delegation.keeping.model import Neighbour
from delegation.keeping.paths import GuardVerdict
from delegation.keeping.unread import UnreadNeighbours
from delegation.operations.expiry.context import ExpiryContext, ExpiryResult
from delegation.operations.expiry.engines.spark_tasks import (
    CANDIDATE,
    GOING,
    NEEDED,
    SHARED,
    CountNeeded,
    ExpirySource,
    ReadExpirySource,
    WriteCandidates,
    WriteRest,
)
from delegation.operations.expiry.index import ExpiryIndex
from delegation.operations.expiry.phases import ExpiryRun
from delegation.operations.expiry.planning.plan import finish_plan, survey
from delegation.operations.expiry.planning.reach import Retained
from delegation.operations.expiry.reduction import NeededRows, OtherPlaces, Rest
from delegation.operations.expiry.retention import Expired
from delegation.polaris.model import LoadedTable
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.engines.deleting import Deleting
from delegation.worksets.engines.inline import Tally, Work
from delegation.worksets.engines.parts import ManifestToRead, SpreadSources, WriteParts, WrittenParts, expected_rows
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.shuffle import Run
from delegation.worksets.engines.spark import SparkJobs, own_context


def expire_with_spark(spark: SparkContext, ctx: ExpiryContext, resources: ExecutorResources) -> ExpiryResult:
    """Expire snapshots with executors; like `phases.expire_snapshots`, and raises EngineFailed as well.

    `ctx` is the driver's; with `resources` each executor process opens its stores and checks the lease. What is needed
    is subtracted before each step, as in one process.
    """
    return ExpiryRun(ctx, SparkExpiry(SparkJobs(spark, resources))).run()


def expire_in_session(ctx: ExpiryContext, resources: ExecutorResources) -> ExpiryResult:
    """Expire snapshots with a Spark context that ends with the work."""
    with own_context() as spark:
        return expire_with_spark(spark, ctx, resources)


class SparkExpiry:
    """ExpiryEngine with the executors of one context."""

    name: EngineChoice = "spark"

    def __init__(self, jobs: SparkJobs) -> None:
        self._jobs = jobs

    def plan(self, ctx: ExpiryContext, table: LoadedTable, gone: Expired) -> tuple[ExpiryIndex, PlanSegment]:
        """See ExpiryEngine.plan."""
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
        """See ExpiryEngine.needed."""
        return SpreadRows(self._jobs, ctx)

    def delete(self, ctx: Deleting, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """See DeleteEngine.delete."""
        self._jobs.delete(ctx, work, report)


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
        """See NeededRows.add_others."""
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
