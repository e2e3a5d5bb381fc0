"""Removing orphan files with Spark: executors list, compare and delete; the driver decides, and does what is small."""

from collections.abc import Callable, Iterator, Sequence

from pyspark import SparkContext

from delegation.operations.orphans.context import OrphanContext, OrphanResult
from delegation.operations.orphans.engines.spark_tasks import DeleteOrphans, ListOnExecutors
from delegation.operations.orphans.engines.spreading import SpreadNeeded
from delegation.operations.orphans.phases import OrphanRun
from delegation.operations.orphans.planning.needed import NeededSet
from delegation.operations.orphans.planning.parts import ListedProgress, PartLister, PartsListing
from delegation.removal.choice import EngineChoice
from delegation.removal.deletes import Tally, Work
from delegation.removal.executors import ExecutorResources, pack
from delegation.removal.spark import SparkJobs, own_context


class SparkOrphans:
    """OrphanEngine with the executors of one context."""

    name: EngineChoice = "spark"

    def __init__(self, spark: SparkContext, resources: ExecutorResources) -> None:
        self._jobs = SparkJobs(spark, resources)

    def list_parts(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress], listed: Callable[[int], None]
    ) -> Iterator[ListedProgress]:
        """See OrphanEngine.list_parts: the driver lists the first pages, so that only large parts take a job.

        Executors list so many pages of each at a time, which is a sign of life for the lease, and where a part that is
        much larger than others is left to fewer tasks.
        """
        here, left = PartLister(how, ctx.store, ctx.plans, ctx.attempt.checkpoint, ctx.clock), list[ListedProgress]()
        for one in here.run(begun, ctx.settings.pages_here):
            if one.done:
                yield one
            else:
                left.append(one)
        while left:
            listed(sum(one.files for one in left))
            found = self._list_some(ctx, how, left)
            yield from (one for one in found if one.done)
            left = [one for one in found if not one.done]

    def _list_some(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress]
    ) -> list[ListedProgress]:
        """List some pages of each part on the executors, several parts in each task; return how far they are."""
        shares = self._jobs.shares([one.model_dump_json() for one in begun], self._jobs.parallelism)
        task = ListOnExecutors(
            resources=self._jobs.resources,
            identifier=ctx.identifier,
            how=how,
            most_pages=ctx.settings.pages_at_once,
            shares=tuple(pack(share) for share in shares),
            task_id=ctx.attempt.task_id,
            attempt=ctx.attempt.attempt,
        )
        results = self._jobs.run(ctx.attempt, self._jobs.numbered(len(shares)).mapPartitions(task))
        return [ListedProgress.model_validate_json(result["listed"]) for result in results]

    def needed(self, ctx: OrphanContext) -> NeededSet:
        """See OrphanEngine.needed."""
        return SpreadNeeded(ctx, self._jobs)

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
