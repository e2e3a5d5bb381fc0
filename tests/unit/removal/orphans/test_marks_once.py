"""A removal lists the marks of its plan once for each attempt, however many chunks there are."""

from collections.abc import Iterator
from typing import Any

import pytest

from delegation.removal.orphans import run
from delegation.removal.orphans.deletes import delete_unchanged
from delegation.removal.orphans.run import OrphanRun
from delegation.storage.base import ObjectStoreUnavailable
from delegation.storage.memory import MemoryPlanStore
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.orphans.engines.sparkless import SparklessOrphans

CHUNKS = 60


class Counted(MemoryPlanStore):
    """Counts the keys that it lists."""

    listed = 0

    def keys(self, prefix: str) -> Iterator[str]:
        for key in super().keys(prefix):
            self.listed += 1
            yield key


def littered() -> tuple[SweptTables, StoryTable, Counted]:
    """Return a table with three orphan files for each chunk."""
    world = SweptTables()
    world.plans = plans = Counted()
    table = world.table()
    for number in range(3 * CHUNKS):
        world.orphan(f"s3://lake/wh/t/data/{number:04}.parquet")
    world.lake.pass_days(4)
    return world, table, plans


@pytest.mark.parametrize("engine", ["inline", "executors"])
def test_marks_are_listed_once_for_each_attempt(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "executors":
        monkeypatch.setattr(OrphanRun.__init__, "__defaults__", (SparklessOrphans(),))
    world, table, plans = littered()
    result = world.sweep(table)
    assert result.files_deleted == 3 * CHUNKS
    assert plans.listed < 12 * CHUNKS


def test_an_attempt_that_resumes_lists_what_the_one_before_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    world, table, plans = littered()
    turns: list[int] = []

    def stops(plans: Any, works: Any, *rest: Any) -> Iterator[Any]:
        for one in delete_unchanged(plans, works, *rest):
            turns.append(1)
            if len(turns) == CHUNKS // 2:
                raise ObjectStoreUnavailable("stopped")
            yield one

    monkeypatch.setattr("delegation.removal.orphans.planning.delete_unchanged", stops)
    with pytest.raises(ObjectStoreUnavailable):
        run.remove_orphan_files(world.context(table))
    plans.listed = 0
    result = run.remove_orphan_files(world.context(table))
    assert result.files_deleted == 3 * CHUNKS
    assert len(turns) == CHUNKS
    assert plans.listed < 12 * CHUNKS
