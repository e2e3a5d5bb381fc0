"""The Spark engine: executors make the plan and delete its files.

Planning: manifests → tasks (read entries, spread them over parts, sort) → packed runs → one task per part (merge, drop
duplicates, apply guards, write chunks). The driver gets chunk names and counts, no paths.
Deleting: chunks → tasks (verify, delete, mark). Executors open their stores by `resources`, so no credential is sent to
them.
"""

from collections.abc import Callable, Sequence
from typing import cast

from pyspark import RDD, SparkContext

from delegation.iceberg.errors import ManifestMissing
from delegation.keeping.executors import NearTables
from delegation.keeping.paths import GuardVerdict
from delegation.operations.purge.context import PurgeContext, PurgeResult
from delegation.operations.purge.phases import Execution
from delegation.operations.purge.planning.plan import Survey, TableDamage, finish_plan, new_plan_id, survey
from delegation.operations.purge.planning.spark_tasks import OWN, SHARED, TABLE, ReadSources, Source, WriteChunks
from delegation.polaris.model import LoadedTable
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import DeleteStep, Phase
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.engines.inline import Tally, Work
from delegation.worksets.engines.parts import ManifestToRead, SpreadSources, WriteParts, WrittenParts, expected_rows
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.shuffle import Run
from delegation.worksets.engines.spark import SparkJobs, own_context
from delegation.worksets.index import PlanIndex


def purge_with_spark(spark: SparkContext, ctx: PurgeContext, resources: ExecutorResources) -> PurgeResult:
    """Purge a table with executors; like `inline.purge_table`, and raises EngineFailed as well.

    `ctx` is the driver's; with `resources` each executor process opens its stores and checks the lease.
    """
    return Execution(ctx, SparkEngine(spark, resources)).run()


def purge_in_session(ctx: PurgeContext, resources: ExecutorResources) -> PurgeResult:
    """Purge a table with a Spark context that ends with the purge."""
    with own_context() as spark:
        return purge_with_spark(spark, ctx, resources)


class SparkEngine:
    """Makes plans and deletes chunks with the executors of one context."""

    name: EngineChoice = "spark"

    def __init__(self, spark: SparkContext, resources: ExecutorResources) -> None:
        self._jobs = SparkJobs(spark, resources)

    def plan(
        self, ctx: PurgeContext, table: LoadedTable, earlier: Sequence[PlanIndex]
    ) -> tuple[PlanIndex, PlanSegment]:
        found = survey(ctx, table, earlier)
        plan_id = new_plan_id(ctx)
        parts = self._parts(found)
        near = NearTables(ctx, found.unread, found.once)
        for neighbour in found.check_neighbours(ctx, earlier):
            near.add(neighbour, slim=neighbour.unlisted)
        runs = self._runs(ctx, found, earlier, near, parts)
        writing = WriteChunks(
            resources=self._jobs.resources,
            plan_id=plan_id,
            chunk_paths=ctx.settings.chunk_paths,
            guard=found.guard,
            foreign=found.foreign,
        )
        results = self._jobs.run(ctx.attempt, runs.mapPartitions(WriteParts(writing)))
        for result in results:
            for path in result["missing"]:
                found.tolerance.unreadable(path, ManifestMissing(path))
            near.take(result["unread"])
        written = WrittenParts.of(results)
        found.guard.add((cast("GuardVerdict", verdict), finding) for verdict, finding in written.kept.items())
        return finish_plan(
            ctx, found, earlier, plan_id=plan_id, engine="spark", chunks=written.chunks, totals=written.totals
        )

    def delete(self, ctx: PurgeContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        self._jobs.delete(ctx, work, report)

    def _runs(
        self, ctx: PurgeContext, found: Survey, earlier: Sequence[PlanIndex], near: NearTables, parts: int
    ) -> RDD[Run]:
        """Return sorted runs of all rows that the table and its neighbours reach, with duplicates."""
        limit = ctx.settings.max_file_bytes
        own = (ManifestToRead(path, limit, found.manifests[path]) for path, _ in found.readable_manifests(limit))
        reading = [*((OWN, *one) for one in own), *((number, *one) for number, one in near.listed)]
        rows = [*((TABLE, *record) for record in found.small), *((SHARED, *record) for record in near.rows)]
        chunks = [(one.plan_id, chunk.model_dump_json()) for one in earlier for chunk in one.chunks]
        bare = [(one, one.model_copy(update={"chunks": ()}).model_dump_json()) for one in found.taken]
        kept = [
            (text, chunk.model_dump_json()) for one, text in bare for chunk in one.chunks if chunk.kind is Phase.KEPT
        ]
        sources = [
            *(Source(manifests=share) for share in self._jobs.shares_of_rows(reading, _expected_rows(found))),
            *(Source(chunks=share) for share in self._jobs.shares(chunks)),
            *(Source(kept=share) for share in self._jobs.shares(kept)),
            Source(rows=rows),
        ]
        task = ReadSources(
            self._jobs.resources,
            ctx.identifier,
            near.reading(self._jobs.resources),
            ctx.settings.read_threads,
            ctx.options,
            TableDamage(ctx, {}).explained if ctx.options.damaged == "keep" else frozenset(),
            excused=ctx.lost_plan is not None and DeleteStep.DATA in ctx.lost_plan.steps_of(found.metadata),
        )
        return self._jobs.spread(SpreadSources.of(task, parts, sources))

    def _parts(self, found: Survey) -> int:
        """Return the number of parts, each of which one task merges."""
        return self._jobs.parts_for(_expected_rows(found))


def _expected_rows(found: Survey) -> int:
    return len(found.small) + expected_rows(found.manifests.values())
