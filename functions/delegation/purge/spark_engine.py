"""The Spark engine: the same plan, made and executed by executors. Nothing else imports pyspark.

Planning: manifests → `mapInArrow` (read entries, spread them over parts, sort) → packed runs → repartition by part →
`mapInArrow` (merge, drop duplicates, judge, write chunks). Only chunk names and counts come back, never a path.
Deleting: chunks → `mapInArrow` (verify, delete, mark done). Executors open their own stores (`workplace`): no
credential is ever an argument. Every task may run twice: a part is the same bytes under the same names, and an absent
object is a deleted one. The driver watches meanwhile: it asks the attempt whether to go on and reports progress from
the done-marks. Executors ask for themselves before each batch, for they may outlive their driver.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from delegation.polaris.model import LoadedTable
from delegation.purge.attempt import PlanSegment
from delegation.purge.context import Engine, PurgeContext, PurgeResult
from delegation.purge.errors import EngineFailed
from delegation.purge.estimate import UNCOUNTED_ENTRIES
from delegation.purge.execute import Execution, Tally, Work
from delegation.purge.guards import Verdict
from delegation.purge.neighbours import neighbours_of, survey_neighbour
from delegation.purge.plan import Chunk, Finding, Phase, PlanIndex, Total, add_totals
from delegation.purge.planning import (
    Accounted,
    Survey,
    finish_plan,
    new_plan_id,
    survey,
)
from delegation.purge.progress import Marks
from delegation.purge.reach import read_limit
from delegation.purge.shuffle import RUNS, pack, part_keys
from delegation.purge.spark_tasks import (
    OURS,
    RESULTS,
    SHARED,
    DeleteChunks,
    ReadSources,
    Source,
    WriteChunks,
    decode_error,
)
from delegation.purge.workplace import Workplace

T = TypeVar("T")

POLL_SECONDS = 1.0
# A part is merged by one executor process; below the second number starting a task costs more than it saves.
_ROWS_PER_PART = 250_000
_WORTH_A_TASK = 5_000
# A thousand million rows' worth. Counts are the manifest lists' word, which may be anything; larger parts are slower.
_MOST_PARTS = 4_096


def purge_with_spark(spark: SparkSession, ctx: PurgeContext, workplace: Workplace) -> PurgeResult:
    """Purge a table with executors: the contract of `engine.purge_table`, whose errors it raises, and EngineFailed.

    `ctx` is the driver's; `workplace` gives each executor process its own stores and its own look at the lease.
    """
    return Execution(ctx, SparkEngine(spark, workplace)).run()


class SparkEngine:
    """Makes plans and deletes chunks with the executors of one session."""

    def __init__(self, spark: SparkSession, workplace: Workplace) -> None:
        self._spark = spark
        self._workplace = workplace
        self._parallelism = max(1, spark.sparkContext.defaultParallelism)

    @property
    def name(self) -> Engine:
        return "spark"

    def plan(
        self, ctx: PurgeContext, table: LoadedTable, earlier: Sequence[PlanIndex]
    ) -> tuple[PlanIndex, PlanSegment]:
        found = survey(ctx, table, earlier)
        plan_id = new_plan_id(ctx)
        keys = tuple(part_keys(self._parts(found)))
        runs = self._reached(ctx, found, earlier, keys)
        writing = WriteChunks(
            workplace=self._workplace,
            plan_id=plan_id,
            keys=keys,
            chunk_paths=ctx.settings.chunk_paths,
            roots=found.guard.roots.uris,
            covered=None if found.guard.covered is None else found.guard.covered.uris,
            foreign=found.foreign,
            options=ctx.options,
        )
        parted = runs.repartition(len(keys), "key")
        results = self._run(ctx, parted.mapInArrow(writing, RESULTS))
        chunks: list[Chunk] = []
        totals: dict[str, Total] = {}
        accounted = Accounted(ctx)
        for result in results:
            for path in result["missing"]:
                accounted.check(path)
            chunks.extend(Chunk.model_validate(chunk) for chunk in result["chunks"])
            add_totals(totals, {name: Total.model_validate(total) for name, total in result["totals"].items()})
            kept = ((cast("Verdict", verdict), Finding.model_validate(one)) for verdict, one in result["kept"])
            found.guard.add(kept)
        order = list(Phase)
        chunks.sort(key=lambda chunk: (order.index(chunk.kind), chunk.name))
        return finish_plan(ctx, found, earlier, plan_id=plan_id, engine="spark", chunks=chunks, totals=totals)

    def delete(self, ctx: PurgeContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        # Each executor process begins with its share of the rate and then finds its own.
        policy = ctx.settings.delete
        start = max(policy.rate.start / self._parallelism, policy.rate.floor)
        share = replace(policy, rate=replace(policy.rate, start=start))
        plans = {one.index.plan_id: one.index.model_copy(update={"chunks": ()}) for one in work}
        chunks = [(one.index.plan_id, one.chunk.model_dump_json()) for one in work]
        shares = self._shares(chunks)
        deleting = DeleteChunks(
            workplace=self._workplace,
            identifier=ctx.identifier,
            settings=replace(ctx.settings, delete=share),
            plans={plan_id: index.model_dump_json() for plan_id, index in plans.items()},
            shares=tuple(pack(share) for share in shares),
            task_id=ctx.attempt.task_id,
            attempt=ctx.attempt.attempt,
        )
        reported: set[tuple[str, str]] = set()

        def poll() -> int:
            for plan_id in plans:
                done = Marks(ctx.plans, plan_id).done()
                for one in work:
                    name = (one.index.plan_id, one.chunk.name)
                    if name[0] == plan_id and name[1] in done and name not in reported:
                        reported.add(name)
                        report(Tally(files=one.chunk.count, bytes=one.chunk.bytes))
            return len(reported)

        for result in self._run(ctx, self._numbered(len(shares)).mapInArrow(deleting, RESULTS), poll):
            if (result["plan_id"], result["chunk"]) not in reported:
                tally = result["tally"]
                report(replace(Tally(**tally), sample=tuple((path, code) for path, code in tally["sample"])))

    def _reached(
        self, ctx: PurgeContext, found: Survey, earlier: Sequence[PlanIndex], keys: tuple[int, ...]
    ) -> DataFrame:
        """Runs of everything reached, duplicates and all."""
        limit = ctx.settings.max_file_bytes
        reading = [(0, found.manifests[path], path, most) for path, most in found.readable_manifests(limit)]
        rows = [(OURS, *record) for record in found.small]
        identifiers = [ctx.identifier]
        near, found.asked = neighbours_of(ctx, found.guard.roots, earlier)
        for neighbour in near:
            identifiers.append(neighbour.table.identifier)
            small, manifests = survey_neighbour(ctx, neighbour)
            rows.extend((SHARED, *record) for record in small)
            number = len(identifiers) - 1
            reading.extend((number, one, path, read_limit(one, limit)) for path, one in manifests.items())
        manifests_to_read = [(of, path, most, one.manifest_length, one.entries) for of, one, path, most in reading]
        chunks = [(one.plan_id, chunk.model_dump_json()) for one in earlier for chunk in one.chunks]
        most = max(1, _expected_rows(found) // _WORTH_A_TASK)
        sources = [
            *(Source(manifests=share) for share in self._shares(manifests_to_read, most)),
            *(Source(chunks=share) for share in self._shares(chunks)),
            Source(rows=rows),
        ]
        packed = tuple(source.packed() for source in sources)
        task = ReadSources(self._workplace, tuple(identifiers), ctx.settings.read_threads, keys, packed)
        return self._numbered(len(sources)).mapInArrow(task, RUNS)

    def _numbered(self, count: int) -> DataFrame:
        """The numbers from 0 on, one to a task: what to do travels with the function, so no data has to."""
        return self._spark.range(0, count, 1, count)

    def _shares(self, items: Sequence[T], most: int | None = None) -> list[Sequence[T]]:
        """Split into shares for tasks, several to a core, so that slow ones even out."""
        count = min(len(items), self._parallelism * 8, len(items) if most is None else most)
        return [items[first::count] for first in range(count)]

    def _parts(self, found: Survey) -> int:
        """How many parts a plan has, given explicitly: left alone, adaptive execution makes two of them."""
        rows = _expected_rows(found)
        worth_it = min(self._parallelism, math.ceil(rows / _WORTH_A_TASK))
        return max(1, worth_it, min(_MOST_PARTS, math.ceil(rows / _ROWS_PER_PART)))

    def _run(self, ctx: PurgeContext, frame: DataFrame, poll: Callable[[], int] = lambda: 0) -> list[dict[str, Any]]:
        """Collect the results of a job while asking the attempt whether to go on; a job that must not is cancelled.

        The job shows life only when one of its tasks ended or `poll` (a count of what is done) rose: executors that
        hang must not look alive because this process is.
        Raises what ended the attempt, the first typed error of an executor, or EngineFailed.
        """
        context = self._spark.sparkContext
        group = f"purge-{ctx.attempt.task_id}-{ctx.attempt.attempt}"
        collected = _Collected()

        def collect() -> None:
            context.setJobGroup(group, group, interruptOnCancel=True)
            try:
                collected.rows = [row.result for row in frame.collect()]
                collected.whole = True
            except (PySparkException, Py4JError, OSError) as error:
                collected.error = error

        thread = InheritableThread(target=collect, name=group)
        thread.start()
        seen = (0, 0)
        try:
            while thread.is_alive():
                thread.join(POLL_SECONDS)
                now = (_tasks_ended(context, group), poll())
                ctx.attempt.checkpoint(moved=now != seen)
                seen = now
        finally:
            # Only after an error is there something to end; a job that is just being submitted takes several calls.
            while thread.is_alive():
                context.cancelJobGroup(group)
                thread.join(POLL_SECONDS)
        if not collected.whole:
            raise EngineFailed("Spark gave the job up, or lost its JVM") from collected.error
        results = [json.loads(row) for row in collected.rows]
        for result in results:
            if "error" in result:
                raise decode_error(result["error"])
        return results


def _tasks_ended(context: SparkContext, group: str) -> int:
    """How many tasks of a job group came to a good end so far."""
    tracker = context.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    found = (tracker.getStageInfo(stage) for stage in stages)
    return sum(stage.numCompletedTasks for stage in found if stage is not None)


def _expected_rows(found: Survey) -> int:
    return len(found.small) + sum(manifest.entries or UNCOUNTED_ENTRIES for manifest in found.manifests.values())


@dataclass(slots=True)
class _Collected:
    rows: Sequence[str] = ()
    whole: bool = False
    error: Exception | None = None
