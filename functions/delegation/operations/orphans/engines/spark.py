"""Removing orphan files with Spark: the driver lists, plans and subtracts, executors delete the chunks."""

from collections.abc import Callable, Sequence
from typing import Final

from pyspark import SparkContext

from delegation.operations.orphans.context import OrphanContext, OrphanResult, OrphanSettings
from delegation.operations.orphans.engines.spark_tasks import DeleteOrphans
from delegation.operations.orphans.phases import OrphanRun
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.engines.inline import Tally, Work
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.spark import SparkJobs, own_context

_MOST_CORES: Final = 5


class SparkOrphans:
    """OrphanEngine with the executors of one context."""

    name: EngineChoice = "spark"

    def __init__(self, spark: SparkContext, resources: ExecutorResources) -> None:
        self._jobs = SparkJobs(spark, resources)

    def chunks_at_once(self, settings: OrphanSettings) -> int:
        """See OrphanEngine.chunks_at_once: as many for each core, up to _MOST_CORES.

        What is committed between two looks is not seen, so the time between them has a bound: 3,500 keys a second, S3's
        rate for one prefix, are 20 chunks of 10,000 in a minute.
        """
        return settings.chunks_per_look * min(self._jobs.parallelism, _MOST_CORES)

    def delete(self, ctx: OrphanContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """See OrphanEngine.delete."""
        self._jobs.delete(ctx, work, report, DeleteOrphans)


def remove_with_spark(spark: SparkContext, ctx: OrphanContext, resources: ExecutorResources) -> OrphanResult:
    """Remove with executors; like `phases.remove_orphan_files`, and raises EngineFailed as well.

    `ctx` is the driver's; with `resources` each executor process opens its stores, which list, and checks the lease.
    Between two jobs the driver alone works, so that what is needed by then is subtracted before the next one.
    """
    return OrphanRun(ctx, SparkOrphans(spark, resources)).run()


def remove_in_session(ctx: OrphanContext, resources: ExecutorResources) -> OrphanResult:
    """Remove with a Spark context that ends with the work."""
    with own_context() as spark:
        return remove_with_spark(spark, ctx, resources)
