"""The two engines for tests without a Spark session: inline, and the functions of executors run in this process."""

from collections.abc import Callable, Sequence

import pytest

from delegation.identifiers import TableIdentifier
from delegation.removal.deletes import Tally, Work, delete_in_this_process
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.run import Execution, purge_table
from delegation.storage.base import ObjectStore
from tests.unit.removal.purge.spark.test_tasks import SparklessEngine, ThisProcess

PurgeFunction = Callable[[PurgeContext], PurgeResult]


class StoresOf(ThisProcess):
    """Executors open a neighbour's files with its own store."""

    def __init__(self, ctx: PurgeContext) -> None:
        super().__init__(ctx.store, ctx.plans)
        self._ctx = ctx

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        near = () if identifier == self._ctx.identifier else self._ctx.neighbours(None)
        stores = {one.table.identifier: one.store for one in near if isinstance(one, Neighbour)}
        return stores.get(identifier, self._ctx.store)


class ExecutorsHere(SparklessEngine):
    """Plans with the executors' functions in three parts, and deletes in this process."""

    def __init__(self, ctx: PurgeContext) -> None:
        super().__init__(StoresOf(ctx), 7)

    def delete(self, ctx: PurgeContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        delete_in_this_process(ctx, work, report)


def by_executors(ctx: PurgeContext) -> PurgeResult:
    """Purge a table like the Spark engine."""
    return Execution(ctx, ExecutorsHere(ctx)).run()


ENGINES: dict[str, PurgeFunction] = {"inline": purge_table, "spark": by_executors}
engines = pytest.mark.parametrize("engine", ENGINES)
