"""Maintenance of large stores: it stops and continues anywhere, in chunks and segments."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from polaris_persistence.maintenance.run import RealmSweepReport
from tests.persistence.builders import Entity, Head
from tests.persistence.maintenance.test_maintenance import GRACE, Folder, MaintainedCatalog, stop_after


class CatalogOfManyTables(MaintainedCatalog):
    policy: ClassVar[dict[str, Any]] = {"grace": GRACE, "page": 20, "lost_after": 100.0}

    def fill(self, folders: int) -> None:
        """Commit folders with one entity each, and write as many entities that nothing names."""

        def change(attempt: Any) -> Any:
            named = {}
            for number in range(folders):
                leaf = attempt.write(Entity(name=f"leaf {number}"))
                named[str(number)] = attempt.write(Folder(members=(leaf,)))
            return Head(entities=named), None

        self.committer.commit(change)
        self.store.write([Entity(name="garbage") for _ in range(folders)])

    def run_twice(self, steps: int, **policy: Any) -> Iterator[RealmSweepReport]:
        """Run twice, a grace period apart; each run is stopped after so many steps, until it is complete."""
        for _ in range(2):
            self.clock.advance(GRACE + 60)
            for _ in range(200):
                report = self.run(stop_after(steps), **policy)
                yield report
                if report.complete:
                    break


@pytest.fixture
def world() -> CatalogOfManyTables:
    return CatalogOfManyTables()


def test_a_run_stopped_inside_a_reference_continues_there(world: CatalogOfManyTables) -> None:
    world.fill(1_000)
    world.backend.calls.clear()
    *stopped, report = world.run_twice(2, page=200)
    assert len(stopped) > 10, "a run was not stopped inside the only reference"
    assert report.deleted == 1_000
    assert len(world.backend.stored_ids("entity")) == 1_000
    # Folders are read once per run, 200 at a time; the rest are the task and its chunks.
    assert world.backend.calls.count("fetch_many") < 100


@pytest.mark.parametrize("steps", [3, 10**6], ids=["stopped", "at once"])
def test_a_table_is_scanned_in_segments(world: CatalogOfManyTables, steps: int) -> None:
    world.fill(200)
    *_, report = world.run_twice(steps, segments=4)
    assert report.deleted == 200
    assert len(world.backend.stored_ids("entity")) == 200


def test_what_a_run_remembers_is_stored_in_chunks(world: CatalogOfManyTables) -> None:
    world.fill(300)
    largest = 0
    for report in world.run_twice(4, chunk=50):
        stored = [one for key, one in world.backend._objects.items() if key.type == "maintenance-keys"]
        largest, deleted = max([largest, *(len(one.value) for one in stored)]), report.deleted
    assert deleted == 300
    assert 0 < largest < 50 * 8 + 200
