"""The Spark engine: executors make the plan and delete its files.

Functions that executors run to plan a purge; no path is sent to the driver.
`removal.executors` describes what all such functions have in common.

Planning: manifests → tasks (read entries, spread them over parts, sort) → packed runs → one task per part (merge, drop
duplicates, apply guards, write chunks). The driver gets chunk names and counts, no paths.
Deleting: chunks → tasks (verify, delete, mark). Executors open their stores by `resources`, so no credential is sent to
them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast, get_args

from pyspark import RDD, SparkContext

from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.paths import Row, Spelling
from delegation.iceberg.reach import Tolerance
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Chunk, DeleteStep, Phase, read_chunk
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
    plans_of,
    store_of,
    written,
)
from delegation.removal.index import PlanIndex, common_of_two, without
from delegation.removal.paths import GuardVerdict, kept_spellings
from delegation.removal.purge.context import PurgeContext, PurgeResult, kept_for
from delegation.removal.purge.kept import kept_rows
from delegation.removal.purge.planning import Survey, TableDamage, finish_plan, survey
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import Execution
from delegation.removal.spark import UNREAD, NearTables, ReadNear, SparkDeletes, SparkJobs, WritesPlan, in_session
from polaris_common.errors import DelegationError

# The origin of a row: the table, a neighbour, or an earlier segment. All rows of a path come to one part.
TABLE, SHARED, EARLIER = 0, 1, 2
# A manifest that is kept because it cannot be read; the rank is the verdict's number in VERDICTS.
DAMAGED = 3
# A file that a table which was purged before kept for this one; it has a row of TABLE too.
TAKEN = 4
VERDICTS = get_args(GuardVerdict)
# A row for the driver, as those of UNREAD are: the path of a missing manifest.
MISSING = 7
OWN = 0
"""The number of the purged table among those whose manifests are read; its neighbours have the numbers after it."""


class Source(NamedTuple):
    """What one Spark task reads.

    `manifests` are (table's number, then as in `ManifestToRead`), `chunks` of earlier segments
    (plan id, chunk as JSON), `rows` that the driver has read (origin, path, rank, size), `kept` chunks that are taken
    over (index without chunks and chunk, as JSON).
    """

    manifests: Sequence[tuple[int, str, int, Sequence[Any]]] = ()
    chunks: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[int, str, int, int]] = ()
    kept: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Yields the rows of a source with their origin; `near` reads the neighbours' manifests.

    `explained` are manifests that an earlier purge of the task deleted, if the options keep missing ones; with
    `excused` this purge had deleted all that are missing, before its plan was lost.
    """

    resources: ExecutorResources
    identifier: TableIdentifier
    near: ReadNear
    threads: int
    options: PurgeOptions = field(default_factory=PurgeOptions)
    explained: frozenset[str] = frozenset()
    excused: bool = False

    def __call__(self, stored: Sequence[Any]) -> Iterator[tuple[Sequence[Row], int]]:
        source = Source(*stored)
        for origin, path, rank, size in source.rows:
            yield [(path, rank, size)], origin
        for index, chunk in source.kept:
            taken = PlanIndex.model_validate_json(index).model_copy(
                update={"chunks": (Chunk.model_validate_json(chunk),)}
            )
            named = list(kept_rows(plans_of(self.resources), taken))
            yield named, TABLE
            yield named, TAKEN
        for plan_id, chunk in source.chunks:
            yield read_chunk(plans_of(self.resources), plan_id, Chunk.model_validate_json(chunk)), EARLIER
        listed = [(one[0], ManifestToRead(*one[1:])) for one in source.manifests]
        yield from self._own([one for number, one in listed if number == OWN])
        yield from self.near([one for one in listed if one[0] != OWN], SHARED)

    def _own(self, listed: Sequence[ManifestToRead]) -> Iterator[tuple[Sequence[Row], int]]:
        noted: dict[tuple[str, int], int] = {}

        def unreadable(path: str, error: DelegationError) -> None:
            """Note what could not be read of the table, with the origin of its row."""
            if isinstance(error, ManifestMissing) and self.excused:
                return
            if not isinstance(error, ManifestMissing):
                noted[path, VERDICTS.index(kept_for(error, self.options))] = DAMAGED
            elif self.options.damaged == "refuse":
                noted[path, 0] = MISSING
            elif path not in self.explained:
                noted[path, VERDICTS.index(kept_for(error, self.options))] = DAMAGED

        tolerance = Tolerance(unreadable, Spelling(kept_spellings(self.options)), whole=self.options.damaged == "keep")
        if listed:
            store = store_of(self.resources, self.identifier)
            for rows in entries_of(store, listed, tolerance, threads=self.threads):
                yield rows, TABLE
        for (text, rank), origin in noted.items():
            yield [(text, rank, 0)], origin


@dataclass(frozen=True, slots=True)
class WriteChunks(WritesPlan):
    """Writes the chunks of a part from its sorted runs; returns its result."""

    def __call__(self, runs: Gathered, part: int) -> Result:
        guard = self.guard.fresh()
        guard.damaged.update(_damaged(runs, part))
        writer = self.writer(part)
        fresh = without(runs.rows(part, TABLE), runs.paths(part, EARLIER))
        for rows, shared, taken in common_of_two(fresh, runs.paths(part, SHARED), runs.paths(part, TAKEN)):
            for verdict, group in guard.verdicts(rows, shared=shared, foreign=self.foreign, taken=taken):
                writer.write(group, verdict)
        return {
            **written(writer, guard.counted()),
            "missing": list(runs.paths(part, MISSING)),
            "unread": list(runs.paths(part, UNREAD)),
        }


def _damaged(runs: Gathered, part: int) -> dict[str, GuardVerdict]:
    return {path: VERDICTS[rank] for rows in runs.rows(part, DAMAGED) for path, rank, _ in rows}


def purge_with_spark(spark: SparkContext, ctx: PurgeContext, resources: ExecutorResources) -> PurgeResult:
    """Purge a table with executors; like `run.purge_table`, and raises EngineFailed as well.

    `ctx` is the driver's; with `resources` each executor process opens its stores and checks the lease.
    """
    return Execution(ctx, SparkEngine(SparkJobs(spark, resources))).run()


purge_in_session = in_session(purge_with_spark)


class SparkEngine(SparkDeletes):
    """Makes plans and deletes chunks with the executors of one context."""

    def plan(
        self, ctx: PurgeContext, table: LoadedTable, earlier: Sequence[PlanIndex]
    ) -> tuple[PlanIndex, PlanSegment]:
        found = survey(ctx, table, earlier)
        plan_id = ctx.new_plan_id()
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
