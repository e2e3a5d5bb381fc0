"""Expiring snapshots with Spark: the driver makes the plan, commits and subtracts, executors delete the chunks."""

from pyspark import SparkContext

from delegation.operations.expiry.context import ExpiryContext, ExpiryResult
from delegation.operations.expiry.phases import ExpiryRun
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.spark import SparkJobs, own_context


def expire_with_spark(spark: SparkContext, ctx: ExpiryContext, resources: ExecutorResources) -> ExpiryResult:
    """Expire snapshots with executors; like `phases.expire_snapshots`, and raises EngineFailed as well.

    `ctx` is the driver's; with `resources` each executor process opens its stores and checks the lease. Between two
    steps the driver alone works, so that what is needed by then is subtracted before the next one.
    """
    return ExpiryRun(ctx, SparkJobs(spark, resources)).run()


def expire_in_session(ctx: ExpiryContext, resources: ExecutorResources) -> ExpiryResult:
    """Expire snapshots with a Spark context that ends with the work."""
    with own_context() as spark:
        return expire_with_spark(spark, ctx, resources)
