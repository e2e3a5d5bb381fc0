"""Marking and sweeping as a recurring task: garbage is deleted, reachable objects stay, there is one such task."""

from typing import Any

import pytest

from delegation.errors import RunHandedOver
from delegation.tasks.stores.base import Advance, Create, Revise
from delegation.tasks.stores.persistence import PersistenceTaskStore, task_process
from delegation.tasks.stores.persistence_records import EVERY, Sweep, SweepReport, persistence_maintenance
from delegation.tasks.work.behaviors import Behavior
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.maintenance.run import SweepPolicy
from tests.kit.tasks.builders import HOUR, NOW, acquired, submitted, touched
from tests.kit.tasks.sites import Site

POLICY = SweepPolicy(grace=3600.0)
DAY_NS = 86_400 * 10**9


class SweptStore:
    """Persistence with a task in it, and garbage: a former head is unreachable after 20 more rewrites."""

    def __init__(self) -> None:
        self.now_ns = int(NOW.timestamp() * 10**9)
        self.backend = MemoryBackend(now_us=lambda: self.now_ns // 1_000)
        self.process = task_process(self.backend, now_ns=lambda: self.now_ns)
        self.store = PersistenceTaskStore(self.process.store("realm", "tasks"))
        task = self.store.apply(Create(submitted()))
        self.task = self.store.apply(Advance(task, acquired(task)))
        for _ in range(40):
            after = touched(self.task, files_deleted=self.task.details.get("files_deleted", 0) + 1)
            self.task = self.store.apply(Revise(self.task, after))

    def behavior(self) -> Behavior[Sweep, SweepReport]:
        return persistence_maintenance(lambda: self.process.maintenance(POLICY))


@pytest.fixture
def swept() -> SweptStore:
    """A store that one run has found garbage in, a grace period ago."""
    swept = SweptStore()
    assert swept.process.maintenance(POLICY).run().young > 0
    swept.now_ns += 2 * DAY_NS
    return swept


def run_of(behavior: Behavior[Sweep, SweepReport]) -> Any:
    site = Site()
    submission = site.client().submit(behavior, Sweep())
    site.worker("w", behavior).run_once()
    return submission.handle.wait()


def test_garbage_is_deleted_and_tasks_stay(swept: SweptStore) -> None:
    assert run_of(swept.behavior()).deleted > 0
    assert swept.store.get(swept.task.task_id) == swept.task
    assert len(swept.store.history(swept.task.task_id)) == 2
    assert [entry.task_id for entry in swept.store.due(NOW + 100 * HOUR)] == [swept.task.task_id]


def test_maintenance_is_one_task_that_recurs(swept: SweptStore) -> None:
    site = Site()
    first = site.client().submit(swept.behavior(), Sweep())
    assert site.client().submit(swept.behavior(), Sweep()).task_id == first.task_id
    site.worker("w", swept.behavior()).run_once()
    assert site.head(first.task_id).next_scheduled_run_ts == site.clock() + EVERY


def test_a_run_that_has_to_end_is_continued_by_the_next_attempt(swept: SweptStore) -> None:
    class HandedOver:
        """A run that is handed over at once."""

        task = swept.task

        def checkpoint(self) -> None:
            raise RunHandedOver(self.task.task_id)

        def report(self, **_fields: object) -> None:
            raise AssertionError("nothing to report")

    behavior = swept.behavior()
    with pytest.raises(RunHandedOver):
        behavior.work(Sweep(), HandedOver())
    assert run_of(behavior).deleted > 0


def test_a_catalog_that_is_left_as_it_is_is_reported_and_logged(swept, caplog):
    store = swept.process.store("broken", "c")
    store.create_reference("main", head=77)
    report = run_of(swept.behavior())
    assert report.deleted > 0
    assert [place for place, _ in report.refused] == ["broken/c"]
    assert "77" in caplog.text


def test_a_report_of_this_release_is_one_of_the_last_release() -> None:
    """Its fields, as that release declares them, are all there and of the same kinds."""
    report = SweepReport(references=1, marked=2, scanned=3, deleted=4, young=5).model_dump()
    last: dict[str, type] = dict.fromkeys(("references", "marked", "scanned", "deleted", "young"), int)
    last["false_positive_rate"] = float
    assert {name: type(report[name]) for name in last} == last
