"""Executors of an attempt that lost its lease stop before their next batch, on a real session."""

from collections.abc import Iterator
from typing import Any

import pytest

from delegation.removal import spark as spark_engine
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.spark import purge_with_spark
from delegation.storage.base import BatchResult
from delegation.tasks.errors import LeaseLost
from tests.faults.crashes.switch import EXECUTOR, StoreServer, Switch
from tests.kit.lakes.lake import PurgedTables, busy_table
from tests.spark_sessions import spark_session

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
EXECUTORS = 2


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session(f"local[{EXECUTORS}]") as session:
        yield session.sparkContext


class LeaseEnds:
    """Ends an attempt after this number of deletes by executors."""

    def __init__(self, ctx: PurgeContext, after: int) -> None:
        self.deletes = 0
        self._after = after
        self._delete = ctx.store.delete
        ctx.store.delete = self.delete  # type: ignore[method-assign]
        ctx.attempt.on_checkpoint = self.checkpoint  # type: ignore[attr-defined]

    def delete(self, bucket: str, keys: Any) -> BatchResult:
        self.deletes += 1
        return self._delete(bucket, keys)

    def checkpoint(self) -> None:
        if self.deletes >= self._after:
            raise LeaseLost("t", attempt=1, current=2, status="RUNNING")


@pytest.mark.long
def test_executors_that_lost_their_lease_stop_before_the_next_batch(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The driver must not stop them here, because it may be dead or hang.
    monkeypatch.setattr(spark_engine, "POLL_SECONDS", 3_600.0)
    bench, switch = PurgedTables(), Switch()
    busy_table(bench.lake, "doomed")
    ctx = bench.context("doomed", faults=switch)
    whole = len(bench.lake.objects)
    lost = LeaseEnds(ctx, after=1)
    with StoreServer() as server:
        with pytest.raises(LeaseLost):
            purge_with_spark(spark, ctx, server.resources(ctx))
        # One batch was being sent, and one more by each other executor that had just passed its checkpoint.
        assert 1 <= lost.deletes <= EXECUTORS
        assert sum(call.name == "delete" and call.side == EXECUTOR for call in switch.made) == lost.deletes
        assert len(bench.lake.objects) >= whole - 3 * EXECUTORS
        ctx = bench.context("doomed")
        purge_with_spark(spark, ctx, server.resources(ctx))
    assert bench.lake.objects == {}
