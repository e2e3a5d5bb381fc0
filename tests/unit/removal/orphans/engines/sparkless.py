"""Removals of orphan files whose executors' functions run in this process, in random order and twice, without Spark."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from delegation.removal import spark as spark_jobs
from delegation.removal.orphans import spark as orphans_spark
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.listing import ListedProgress, PartsListing
from delegation.removal.orphans.needed_rows import NeededSet
from delegation.removal.orphans.planning import InlineOrphans
from delegation.removal.orphans.spark import SparkOrphans, SpreadNeeded
from delegation.removal.spark_executors import ExecutorResources
from tests.unit.removal.purge.spark.test_tasks import SparklessJobs, ThisProcess


class Executors(ThisProcess):
    """ExecutorResources with the stores of a context, and the checkpoint of its attempt."""

    def __init__(self, ctx: OrphanContext) -> None:
        super().__init__(ctx.store, ctx.plans)  # type: ignore[arg-type]
        self._ctx = ctx

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        assert (task_id, attempt) == (self._ctx.attempt.task_id, self._ctx.attempt.attempt)
        return self._ctx.attempt.checkpoint


class FewRows(SparklessJobs):
    """Jobs in which few rows are worth a task."""

    def parts_for(self, rows: int) -> int:
        with mock.patch.object(spark_jobs, "_ROWS_PER_TASK", 2):
            return super().parts_for(rows)

    def shares_of_rows(self, items: Sequence[Any], rows: int) -> list[Sequence[Any]]:
        with mock.patch.object(spark_jobs, "_ROWS_PER_TASK", 2):
            return super().shares_of_rows(items, rows)


class SparklessOrphans(InlineOrphans):
    """An OrphanEngine that lists and compares as SparkOrphans does, and deletes inline."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def list_parts(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress], listed: Callable[[int], None]
    ) -> Iterator[ListedProgress]:
        engine = SparkOrphans.__new__(SparkOrphans)
        engine._jobs = jobs(Executors(ctx), self._seed)
        with mock.patch.object(orphans_spark, "utc_now", ctx.clock):
            yield from engine.list_parts(ctx, how, begun, listed)

    def needed(self, ctx: OrphanContext) -> NeededSet:
        return SpreadNeeded(ctx, jobs(Executors(ctx), self._seed))


def jobs(resources: ExecutorResources, seed: int) -> FewRows:
    """Return jobs on executors with these resources; `seed` decides the order of their tasks."""
    return FewRows(resources, seed)
