"""Purges with Spark: executors make the plan and delete its files. No path is sent to the driver.
`removal.spark_executors` describes what all such functions share, `removal.sources` what they read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark import SparkContext

from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.paths import Spelling
from delegation.iceberg.reach import Tolerance
from delegation.removal.chunks import Chunk, DeleteStep, Phase, Total, read_chunk
from delegation.removal.index import PlanIndex
from delegation.removal.path_guard import kept_spellings
from delegation.removal.purge.context import PurgeContext, PurgeResult, kept_for
from delegation.removal.purge.kept_files import kept_rows
from delegation.removal.purge.planning import Survey, TableDamage
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import Execution
from delegation.removal.sources import (
    CANDIDATE,
    DAMAGED,
    MISSING,
    NEEDED,
    OWN,
    TAKEN,
    VERDICTS,
    MarkedRows,
    NeighbourSources,
    Noted,
    ReadSources,
    Sources,
)
from delegation.removal.spark import SparkDeletes, SparkJobs, in_session
from delegation.removal.spark_executors import ExecutorResources, plans_of
from polaris_common.errors import DelegationError


@dataclass(frozen=True, slots=True)
class ReadPurge(ReadSources):
    """Reads the table, earlier segments of its plan, and chunks that are taken over, with the index as their plan.
    `explained` are manifests that an earlier purge of the task deleted, if the options keep missing ones. With
    `excused` this purge had deleted all missing ones before its plan was lost."""

    options: PurgeOptions
    explained: frozenset[str]
    excused: bool

    def planned(self, mark: int, plan_id: str, chunk: Chunk) -> Iterator[MarkedRows]:
        plans = plans_of(self.resources)
        if mark != TAKEN:
            yield read_chunk(plans, plan_id, chunk), mark
            return
        taken = PlanIndex.model_validate_json(plan_id).model_copy(update={"chunks": (chunk,)})
        named = list(kept_rows(plans, taken))
        yield named, CANDIDATE
        yield named, TAKEN

    def own(self, number: int, noted: Noted) -> tuple[int, Tolerance, bool]:
        del number

        def unreadable(path: str, error: DelegationError) -> None:
            """Record what could not be read of the table."""
            if isinstance(error, ManifestMissing) and self.excused:
                return
            if not isinstance(error, ManifestMissing):
                noted[path, VERDICTS.index(kept_for(error, self.options))] = DAMAGED
            elif self.options.damaged == "refuse":
                noted[path, 0] = MISSING
            elif path not in self.explained:
                noted[path, VERDICTS.index(kept_for(error, self.options))] = DAMAGED

        spelling = Spelling(kept_spellings(self.options))
        return CANDIDATE, Tolerance(unreadable, spelling, whole=self.options.damaged == "keep"), False


def purge_with_spark(spark: SparkContext, ctx: PurgeContext, resources: ExecutorResources) -> PurgeResult:
    """Purge a table with executors; as `run.purge_table`, and raises EngineFailed too. `ctx` is the driver's; with
    `resources` each executor process opens its stores and checks the lease."""
    return Execution(ctx, SparkEngine(SparkJobs(spark, resources))).run()


purge_in_session = in_session(purge_with_spark)


class SparkEngine(SparkDeletes):
    """Makes plans and deletes chunks with the executors of one context."""

    def write(self, ctx: PurgeContext, surveyed: Survey, plan_id: str) -> tuple[Sequence[Chunk], dict[str, Total]]:
        neighbours = NeighbourSources(ctx, surveyed.unread, surveyed.once)
        for neighbour in surveyed.check_neighbours(ctx):
            neighbours.add(neighbour, slim=neighbour.unlisted)
        sources = Sources(ctx, self._jobs, neighbours)
        sources.add_rows(CANDIDATE, surveyed.small)
        readable = surveyed.readable_manifests(ctx.settings.max_file_bytes)
        sources.add_manifests(OWN, {path: surveyed.manifests[path] for path, _ in readable})
        for index in surveyed.earlier:
            sources.add_chunks(NEEDED, index.plan_id, index.chunks)
        for index in surveyed.taken:
            bare = index.model_copy(update={"chunks": ()}).model_dump_json()
            sources.add_chunks(TAKEN, bare, [chunk for chunk in index.chunks if chunk.kind is Phase.KEPT])
        read = partial(
            ReadPurge,
            options=ctx.options,
            explained=TableDamage(ctx, {}).explained if ctx.options.damaged == "keep" else frozenset(),
            excused=ctx.lost_plan is not None and DeleteStep.DATA in ctx.lost_plan.steps_of(surveyed.metadata),
        )

        def missing(path: str) -> None:
            surveyed.tolerance.unreadable(path, ManifestMissing(path))

        written = sources.write_plan(sources.spread(read), plan_id, surveyed.guard, surveyed.foreign, missing)
        return written.chunks, written.totals
