"""A purge killed after its mark "ROOT next": every answer of the catalog leads to a correct end."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from delegation.polaris.answers import NoSuchNamespace, NoSuchTable
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanHead
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.errors import PurgeError
from delegation.removal.purge.run import purge_table
from delegation.storage.base import BatchResult
from delegation.storage.memory import Faults, Killed, MemoryObjectStore, MemoryPlanStore
from tests.kit.errors import coded
from tests.kit.lakes.lake import PurgedTables, filled


@pytest.fixture
def bench(bench: PurgedTables) -> PurgedTables:
    return filled(bench, "sibling")


def killed_at_root(bench: PurgedTables, *, root_deleted: bool) -> str:
    """Kill a purge just before or just after it deletes metadata.json, and return that file's URI."""
    root = bench.lake.pointers["t"]
    whole = dict(bench.lake.objects)
    undisturbed = Faults()
    purge_table(bench.context("t", faults=undisturbed))
    last_delete = len(undisturbed.names) - undisturbed.names[::-1].index("delete")
    bench.lake.objects.update(whole)
    bench.plans, bench.head = MemoryPlanStore(), PlanHead()
    with pytest.raises(Killed):
        purge_table(bench.context("t", faults=Faults(kill_at=last_delete, after=root_deleted)))
    assert bench.left() == (set() if root_deleted else {root})
    return root


def without_credentials(ctx: PurgeContext) -> PurgeContext:
    """Return the context of a new process, which has no credential and would have to load the table for one."""

    def no_credential(_bucket: str, _keys: Sequence[str]) -> BatchResult:
        raise NoSuchTable("no table t", status=404)

    assert isinstance(ctx.store, MemoryObjectStore)
    ctx.store.delete = no_credential  # type: ignore[method-assign]
    return ctx


def test_a_table_dropped_before_its_metadata_file_is_deleted_is_finished_by_its_plan(bench: PurgedTables) -> None:
    killed_at_root(bench, root_deleted=False)
    del bench.lake.pointers["t"]
    sibling = bench.left("sibling")
    result = purge_table(bench.context("t"))
    assert (result.status, result.files_deleted) == ("PURGED", result.files_planned)
    assert bench.left() == set()
    assert bench.left("sibling") == sibling


def test_a_table_dropped_before_its_metadata_file_is_deleted_is_no_success_without_credentials(
    bench: PurgedTables,
) -> None:
    root = killed_at_root(bench, root_deleted=False)
    del bench.lake.pointers["t"]
    with pytest.raises(PurgeError, check=coded("TABLE_GONE"), match=root):
        purge_table(without_credentials(bench.context("t")))
    assert bench.left() == {root}
    assert purge_table(bench.context("t")).status == "PURGED"
    assert bench.left() == set()


@pytest.mark.parametrize("reach", [lambda ctx: ctx, without_credentials])
def test_a_missing_metadata_file_counts_as_deleted(
    bench: PurgedTables, reach: Callable[[PurgeContext], PurgeContext]
) -> None:
    killed_at_root(bench, root_deleted=True)
    result = purge_table(reach(bench.context("t")))
    assert (result.status, result.files_deleted) == ("PURGED", result.files_planned)


def test_a_dropped_table_is_a_success_once_its_metadata_file_is_marked(bench: PurgedTables) -> None:
    purge_table(bench.context("t"))
    del bench.lake.pointers["t"]
    assert purge_table(without_credentials(bench.context("t"))).status == "PURGED"

    class Nowhere:
        def load(self) -> LoadedTable:
            raise NoSuchNamespace("no namespace ns", status=404)

    assert purge_table(replace(bench.context("t"), tables=Nowhere())).status == "PURGED"
    bench.head = PlanHead()
    with pytest.raises(NoSuchNamespace):
        purge_table(replace(bench.context("t"), tables=Nowhere()))
