"""The Spark engine of expiries for tests without a Spark session: the functions of executors run in this process."""

from collections.abc import Callable, Sequence
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.removal.context import RemovalContext
from delegation.removal.deletes import Tally, Work, delete_in_this_process
from delegation.removal.expiry.context import ExpiryContext, ExpiryResult
from delegation.removal.expiry.run import ExpiryRun
from delegation.removal.expiry.spark import SparkExpiry
from delegation.removal.neighbourhood import Neighbour
from delegation.storage.base import ObjectStore
from tests.unit.removal.purge.spark.test_tasks import SparklessJobs, ThisProcess


class StoresOfNeighbours(ThisProcess):
    """Executors open a neighbour's files with its own store."""

    def __init__(self, ctx: ExpiryContext) -> None:
        super().__init__(ctx.store, ctx.plans)  # type: ignore[arg-type]
        self._ctx = ctx

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        near = () if identifier == self._ctx.identifier else self._ctx.neighbours(None)
        stores = {one.table.identifier: one.store for one in near if isinstance(one, Neighbour)}
        return stores.get(identifier, self._ctx.store)


class ManyTasks(SparklessJobs):
    """A task for each manifest and chunk up to a dozen, and three parts, however few rows there are."""

    def __init__(self, ctx: ExpiryContext, seed: int) -> None:
        super().__init__(StoresOfNeighbours(ctx), seed)

    def shares_of_rows(self, items: Any, rows: int) -> Any:
        return self.shares(items)

    def parts_for(self, rows: int) -> int:
        return 3


class ExecutorsHere(SparkExpiry):
    """Plans and subtracts with the executors' functions, and deletes in this process."""

    def __init__(self, ctx: ExpiryContext, seed: int = 7) -> None:
        super().__init__(ManyTasks(ctx, seed))

    def delete(self, ctx: RemovalContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        delete_in_this_process(ctx, work, report)


def expire_with_executors_here(ctx: ExpiryContext) -> ExpiryResult:
    """Expire like the Spark engine."""
    return ExpiryRun(ctx, ExecutorsHere(ctx)).run()
