"""Runs functions on Spark executors, deletes chunks with them, and monitors the job from the driver.

A task may run twice: it writes the same bytes under the same names, and an absent object counts as deleted. The driver
checks the attempt and reports progress from the marks. Executors check the lease before each batch too, because they
may outlive their driver. Only this module and its callers import pyspark.

The jobs are of RDDs, not of DataFrames: Python does all the work on rows, and the SQL engine's start, planning and code
generation were half of the JVM's CPU time of a purge. The Python workers do not need Arrow either.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD, InheritableThread, SparkConf, SparkContext
from pyspark.errors import PySparkException

from delegation.removal.attempt import Attempt
from delegation.removal.choice import EngineChoice
from delegation.removal.context import Ctx, RemovalContext
from delegation.removal.deletes import Tally, Work
from delegation.removal.errors import EngineFailed
from delegation.removal.index import PlanIndex
from delegation.removal.marks import Absent, Marks
from delegation.removal.spark_executors import (
    ENDED,
    DeleteChunks,
    ExecutorResources,
    Result,
    Run,
    SpreadSources,
    decode_error,
    ended_with_number,
    pack,
)

T = TypeVar("T")

POLL_SECONDS = 1.0
# Each task costs Spark and its Python worker 20 ms of CPU time, and twice as long waiting for each other.
_TASKS_PER_CORE = 4
# One executor process merges a part. Below the second number of rows, starting a task costs more than it saves.
_ROWS_PER_PART = 250_000
_ROWS_PER_TASK = 5_000
# For up to 10^9 rows. Counts come from manifest lists and may be wrong. With more rows, parts are larger and slower.
_MOST_PARTS = 4_096
_READ = set(PlanIndex.model_fields)


def in_session(
    work: Callable[[SparkContext, Ctx, ExecutorResources], T],
) -> Callable[[Ctx, ExecutorResources], T]:
    """Return a function that does the work with a Spark context and ends the context."""

    def done(ctx: Ctx, resources: ExecutorResources) -> T:
        # Speculation is safe, but deleting a chunk twice at once doubles the load on the store.
        spark = SparkContext.getOrCreate(SparkConf().set("spark.speculation", "false"))
        try:
            return work(spark, ctx, resources)
        finally:
            spark.stop()

    return done


class SparkJobs:
    """Runs functions on the executors of a context; `resources` creates their stores and lease checks."""

    def __init__(self, spark: SparkContext, resources: ExecutorResources) -> None:
        self.resources = resources
        self.parallelism = max(1, spark.defaultParallelism)
        self._spark = spark

    def numbered(self, count: int) -> RDD[int]:
        """Return the numbers from 0, one per task. The function has the data for each number."""
        return self._spark.parallelize(range(count), count)

    def shares(self, items: Sequence[T], most: int | None = None) -> list[Sequence[T]]:
        """Split items into shares, at most `most` and several per core, so that slow tasks even out."""
        count = min(len(items), self.parallelism * _TASKS_PER_CORE, len(items) if most is None else most)
        return [items[first::count] for first in range(count)]

    def shares_of_rows(self, items: Sequence[T], rows: int) -> list[Sequence[T]]:
        """Split items with this many rows into shares that are each worth a task."""
        return self.shares(items, max(1, rows // _ROWS_PER_TASK))

    def parts_for(self, rows: int) -> int:
        """Return the number of parts for this many rows. One task merges each part."""
        useful = min(self.parallelism, math.ceil(rows / _ROWS_PER_TASK))
        return max(1, useful, min(_MOST_PARTS, math.ceil(rows / _ROWS_PER_PART)))

    def spread(self, reading: SpreadSources) -> RDD[Run]:
        """Return the sorted runs of all sources, each at its part's task. Spark keeps them, to read sources once."""
        return self.numbered(len(reading.sources)).mapPartitions(reading).partitionBy(reading.parts, int)

    def run(self, attempt: Attempt, work: RDD[Result], poll: Callable[[], int] = lambda: 0) -> list[Result]:
        """Collect the results of a job. Cancels it when a checkpoint of the attempt raises.

        The checkpoint reports progress only if a task completed or `poll`, a count of completed work, changed:
        executors that hang must lose the lease although the driver runs. Raises the checkpoint's error, the first
        DelegationError of an executor, or EngineFailed, also if results of some tasks are missing. pyspark takes a
        connection that the JVM closed too early for the end of the results, and a plan of some results would leave the
        files of the others.
        """
        context = self._spark
        group = f"files-{attempt.task_id}-{attempt.attempt}"
        collected = _Collected()

        def collect() -> None:
            context.setJobGroup(group, group, interruptOnCancel=True)
            try:
                collected.tasks = work.getNumPartitions()
                collected.results = work.mapPartitionsWithIndex(ended_with_number).collect()
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
                attempt.checkpoint(moved=now != seen)
                seen = now
        finally:
            # The job is live here only after an error. A job that is being submitted takes several calls to cancel.
            while thread.is_alive():
                context.cancelJobGroup(group)
                thread.join(POLL_SECONDS)
        if not collected.whole:
            raise EngineFailed("the Spark job failed or its JVM ended; see the driver's log") from collected.error
        results = [result for result in collected.results if ENDED not in result]
        for result in results:
            if "error" in result:
                raise decode_error(result["error"])
        ended = {result[ENDED] for result in collected.results if ENDED in result}
        if len(ended) < collected.tasks:
            missing = f"{collected.tasks - len(ended)} of {collected.tasks} tasks"
            raise EngineFailed(f"the results of {missing} did not arrive from Spark's JVM; see the driver's log")
        return results


class SparkDeletes:
    """DeleteEngine with the executors of one context. `task` deletes chunks there."""

    name: EngineChoice = "spark"
    task: type[DeleteChunks] = DeleteChunks

    def __init__(self, jobs: SparkJobs) -> None:
        self._jobs = jobs

    def delete(self, ctx: RemovalContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """Delete the chunks of `work` on the executors. Reports progress each time the marks are read."""
        if not work:  # all that was left may be needed by now, and Spark has no job without tasks
            return
        deleting = self._deleting(ctx, work)
        reported: set[tuple[str, str]] = set()

        def poll() -> int:
            by_plan = {plan_id: Marks(ctx.plans, plan_id).done_and_absent() for plan_id in deleting.plans}
            tally, before = Tally(), len(reported)
            for item in work:
                name = (item.index.plan_id, item.chunk.name)
                done, absent = by_plan[item.index.plan_id]
                if item.chunk.name in done and name not in reported:
                    reported.add(name)
                    less = absent.get(item.chunk.name, Absent())
                    tally.add(Tally(files=item.chunk.count, bytes=item.chunk.bytes - less.bytes, absent=less.files))
            if len(reported) > before:
                report(tally)
            return len(reported)

        rest = Tally()
        job = self._jobs.numbered(len(deleting.shares)).mapPartitions(deleting)
        for result in self._jobs.run(ctx.attempt, job, poll):
            if (result["plan_id"], result["chunk"]) not in reported:
                summed = result["tally"]
                rest.add(replace(Tally(**summed), sample=tuple((path, code) for path, code in summed["sample"])))
        report(rest)

    def _deleting(self, ctx: RemovalContext, work: Sequence[Work]) -> DeleteChunks:
        policy = ctx.settings.delete
        # Each executor process starts with an equal share of the rate and then adapts it.
        start = max(policy.rate.start / self._jobs.parallelism, policy.rate.minimum)
        indexes = {item.index.plan_id: item.index.model_copy(update={"chunks": ()}) for item in work}
        shares = self._jobs.shares([(item.index.plan_id, item.chunk.model_dump_json()) for item in work])
        return self.task(
            resources=self._jobs.resources,
            identifier=ctx.identifier,
            policy=replace(policy, rate=replace(policy.rate, start=start)),
            # An operation's own fields in an index may be large, and no executor reads them.
            plans={plan_id: index.model_dump_json(include=_READ) for plan_id, index in indexes.items()},
            voided={item.index.plan_id: item.voided for item in work},
            not_after=min(item.not_after for item in work),
            shares=tuple(pack(share) for share in shares),
            task_id=ctx.attempt.task_id,
            attempt=ctx.attempt.attempt,
        )


def _tasks_ended(context: SparkContext, group: str) -> int:
    """Return the number of completed tasks of a job group."""
    tracker = context.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    infos = (tracker.getStageInfo(stage) for stage in stages)
    return sum(stage.numCompletedTasks for stage in infos if stage is not None)


@dataclass(slots=True)
class _Collected:
    results: Sequence[Result] = ()
    tasks: int = 0
    whole: bool = False
    error: Exception | None = None
