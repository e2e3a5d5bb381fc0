"""`store-maintenance` over the in-memory store, run by a worker."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import AdoptedChildren, Status, Task
from delegation.tasks.life.policy import MaintenancePolicy, Policies
from delegation.tasks.stores.base import Advance, Create, Revise, TaskHeads
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior
from delegation.tasks.work.maintenance import (
    TASK_TYPE,
    MaintenanceReport,
    TaskMaintenance,
    ensure_submitted,
    store_maintenance,
)
from delegation.tasks.work.worker import Worker, WorkerSettings
from tests.kit.tasks.builders import (
    HOUR,
    MINUTE,
    NOW,
    Clock,
    acquired,
    failed,
    resubmitted,
    started,
    submitted,
    succeeded,
    touched,
)
from tests.kit.tasks.services import task_service

RETENTION = timedelta(days=7)
SECOND = timedelta(seconds=1)


@dataclass
class Keys:
    """Records that remember the times that they were called with."""

    expired: int = 0
    starts: tuple[bool | None, ...] = (True, False)
    asked: list[datetime] = field(default_factory=list)

    def start_expiry(self, now: datetime) -> Iterator[bool | None]:
        self.asked.append(now)
        yield from self.starts

    def remove_expired(self, now: datetime, limit: int) -> int:
        self.asked.append(now)
        removed = min(limit, self.expired)
        self.expired -= removed
        return removed


class MaintainedTasks:
    def __init__(self) -> None:
        self.store = MemoryTaskStore()
        self.clock = Clock()
        self.keys = Keys()
        policies = replace(Policies.from_properties({}), maintenance=MaintenancePolicy(retention=RETENTION))
        self.tasks = task_service(self.store, policies, clock=self.clock)
        self.behavior = store_maintenance(self.tasks, lambda: self.keys, lambda: {TASK_TYPE, submitted().task_type})

    def stored(self, *life: Task) -> Task:
        self.store.apply(Create(life[0]))
        for before, after in pairwise(life):
            self.store.apply(Advance(before, after))
        return life[-1]

    def finished(self, **fields: object) -> Task:
        first = submitted(**fields)
        return self.stored(first, failed(first))

    def seconds(self) -> float:
        return self.clock.now.timestamp()

    def worker(self) -> Worker:
        runnable = FunctionBehavior(self.tasks, self.behavior, monotonic=self.seconds)
        return Worker(self.tasks, Behaviors([runnable]), WorkerSettings(owner="w"))

    def run(self) -> MaintenanceReport:
        """One run; what it reported is on the row of its SUCCESS, as the head is SUBMITTED again."""
        ensure_submitted(self.tasks, self.behavior)
        assert self.worker().run_once() is not None
        rows = self.store.history(self.behavior.task_id(TaskMaintenance()), limit=1000)
        report = self.behavior.read_result([row for row in rows if row.status is Status.SUCCESS][-1])
        assert report is not None
        return report


@pytest.fixture
def site() -> MaintainedTasks:
    return MaintainedTasks()


def test_only_terminal_tasks_past_retention_are_removed(site: MaintainedTasks) -> None:
    old = site.finished()
    first = submitted()
    held = acquired(first)
    running = started(held)
    won = site.stored(first, held, running, succeeded(running))
    site.clock.now = NOW + RETENTION - SECOND
    waiting, fresh = site.stored(submitted()), submitted()
    site.stored(fresh, failed(fresh, site.clock.now))
    assert site.run().tasks_removed == 0
    site.clock.advance(2 * HOUR)
    assert site.run().tasks_removed == 2
    for task in (old, won):
        assert site.store.get(task.task_id) is None
        assert site.store.history(task.task_id) == ()
    assert site.store.get(waiting.task_id) == waiting
    assert site.store.get(fresh.task_id) is not None


def test_a_child_is_kept_until_its_parent_has_an_outcome(site: MaintainedTasks) -> None:
    parent_id = str(uuid.uuid4())
    child = site.finished(parent_id=parent_id)
    parent = site.stored(submitted(parent_id, family=AdoptedChildren(children=(child.task_id,))))
    site.clock.now = NOW + RETENTION
    assert site.run().tasks_removed == 0
    site.store.apply(Advance(parent, failed(parent, site.clock.now)))
    site.clock.advance(2 * HOUR)
    assert site.run().tasks_removed == 1
    assert site.store.get(child.task_id) is None


def test_a_task_submitted_again_meanwhile_stays(site: MaintainedTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    old = site.finished()
    site.clock.now = NOW + RETENTION
    remove = site.store.remove

    def too_late(task: Task) -> bool:
        moved = task.evolve(version=task.version + 1, revision=task.revision + 1, nonce="n")
        site.store.apply(Advance(task, moved))
        return remove(task)

    monkeypatch.setattr(site.store, "remove", too_late)
    assert site.run().tasks_removed == 0
    assert len(site.store.history(old.task_id)) == 3


def test_live_tasks_without_an_index_entry_get_one(site: MaintainedTasks) -> None:
    waiting, first = submitted(), submitted()
    held = acquired(first)
    for head in (site.stored(waiting), site.stored(first, held)):
        site.store.apply(Revise(head, touched(head, due_at=None)))
    assert site.run().heads_repaired == 2
    grace = site.tasks.policies.dispatch.grace
    assert site.tasks.reads.get(waiting.task_id).due_at == NOW + grace
    assert site.tasks.reads.get(held.task_id).due_at == held.lease.lost_not_before


def test_unreadable_tasks_are_reported_and_hinder_nothing(site, caplog):
    """A record of a newer release, or a corrupt one, and a child of such a parent."""
    old = [site.finished() for _ in range(30)]
    parent = site.finished()
    child = site.finished(parent_id=parent.task_id)
    unreadable = [parent, *(site.finished() for _ in range(24))]
    lost = site.stored(submitted(due_at=None))
    for task in unreadable:
        site.store.make_unreadable(task.task_id)
    site.clock.now = NOW + RETENTION
    site.keys.expired = 30
    report = site.run()
    assert (report.tasks_removed, report.heads_repaired, report.records_removed) == (30, 1, 30)
    assert all(site.store.get(task.task_id) is None for task in old)
    assert site.store.get(child.task_id) == child
    assert site.tasks.reads.get(lost.task_id).due_at is not None
    ids = {task.task_id for task in unreadable}
    assert {one.task_id for one in site.store.heads(limit=1000).unreadable} == ids
    assert report.unreadable == 25
    assert len(report.unreadable_ids) == 20
    assert set(report.unreadable_ids) < ids
    (warning,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert "25" in warning.message
    assert all(task_id in warning.message for task_id in report.unreadable_ids)


def test_tasks_that_become_unreadable_meanwhile_hinder_nothing(site, monkeypatch):
    """A newer release rewrites tasks right after they were read."""
    lost = [site.stored(submitted(due_at=None)) for _ in range(2)]
    recurring = site.finished(recurrence_seconds=3600)
    read = site.store.heads

    def heads(**asked: Any) -> TaskHeads:
        page = read(**asked)
        for task in (lost[0], recurring):
            site.store.make_unreadable(task.task_id)
        return page

    monkeypatch.setattr(site.store, "heads", heads)
    site.clock.now = NOW + RETENTION
    report = site.run()
    assert (report.heads_repaired, report.unreadable) == (1, 2)
    assert set(report.unreadable_ids) == {lost[0].task_id, recurring.task_id}


def test_records_expire_by_the_slowest_clock_and_those_that_cannot_be_read_are_counted(site: MaintainedTasks) -> None:
    site.keys.expired = 60
    site.keys.starts = (True, None, False, None)
    report = site.run()
    assert (report.records_removed, report.expiries_started, report.records_unreadable) == (60, 1, 2)
    assert set(site.keys.asked[1:]) == {NOW - site.tasks.policies.lease.clock_drift}


def test_the_maintenance_task_recurs_and_is_submitted_once(site: MaintainedTasks) -> None:
    assert [ensure_submitted(site.tasks, site.behavior) for _ in range(2)] == [True, False]
    site.run()
    head = site.tasks.reads.get(site.behavior.task_id(TaskMaintenance()))
    assert (head.status, head.next_scheduled_run_ts) == (Status.SUBMITTED, NOW + HOUR)
    assert site.worker().run_once() is None


@pytest.mark.parametrize(("minutes", "first"), [(10, 10), (180, 60)], ids=["oftener", "more rarely"])
def test_the_maintenance_task_follows_another_interval(site: MaintainedTasks, minutes: int, first: int) -> None:
    ensure_submitted(site.tasks, site.behavior)
    site.run()
    task_id = site.behavior.task_id(TaskMaintenance())
    site.behavior = replace(site.behavior, every=minutes * MINUTE)
    assert ensure_submitted(site.tasks, site.behavior) is False
    assert site.tasks.reads.get(task_id).next_scheduled_run_ts == NOW + first * MINUTE
    site.clock.now = NOW + (first + 1) * MINUTE
    site.run()
    assert site.tasks.reads.get(task_id).next_scheduled_run_ts == site.clock() + minutes * MINUTE


def test_children_of_former_runs_are_removed_and_those_of_this_one_kept(site: MaintainedTasks) -> None:
    """A parent that recurs never ends: children that wait for its end would stay for ever."""
    parent_id = str(uuid.uuid4())
    former, present = (site.finished(parent_id=parent_id) for _ in range(2))
    site.stored(submitted(parent_id, recurrence_seconds=3600, family=AdoptedChildren(children=(present.task_id,))))
    site.clock.now = NOW + 2 * RETENTION
    assert site.run().tasks_removed == 1
    assert site.store.get(former.task_id) is None
    assert site.store.get(present.task_id) == present


def test_tasks_of_unknown_types_are_kept_whatever_their_age(site: MaintainedTasks) -> None:
    theirs = site.finished(task_type="NEWER")
    recurring = site.finished(task_type="NEWER", recurrence_seconds=3600)
    ours = site.finished()
    site.clock.now = NOW + 2 * RETENTION
    assert site.run().tasks_removed == 1
    assert site.store.get(ours.task_id) is None
    for task in (theirs, recurring):
        assert site.store.get(task.task_id) == task
        assert len(site.store.history(task.task_id)) == 2


def test_the_history_of_the_maintenance_task_is_capped_by_retention(site: MaintainedTasks) -> None:
    for _ in range(30):
        site.run()
        site.clock.advance(timedelta(days=1))
    assert site.run().versions_removed > 0
    task_id = site.behavior.task_id(TaskMaintenance())
    rows = site.store.history(task_id, limit=1000)
    assert min(row.last_status_change_ts for row in rows) > site.clock() - RETENTION
    assert rows[0].version > 50
    assert [row.version for row in rows] == list(range(rows[0].version, site.tasks.reads.get(task_id).version + 1))


def test_a_row_of_a_fast_clock_is_kept_until_it_is_past_retention(site: MaintainedTasks) -> None:
    """It is younger than the row after it, which a slower clock wrote."""
    first = submitted(recurrence_seconds=3_600)
    fast = acquired(first, now=NOW + 10 * SECOND)
    slow = failed(fast, now=NOW)
    site.stored(first, fast, slow, resubmitted(slow, now=NOW + HOUR))
    site.clock.now = NOW + RETENTION + 5 * SECOND
    assert site.run().versions_removed == 1
    assert [row.version for row in site.store.history(first.task_id)] == [2, 3, 4]
    site.clock.now = NOW + RETENTION + timedelta(days=1)
    assert site.run().versions_removed == 2


def test_a_cancelled_maintenance_task_comes_back_by_itself_an_interval_later(site: MaintainedTasks) -> None:
    ensure_submitted(site.tasks, site.behavior)
    task_id = site.behavior.task_id(TaskMaintenance())
    site.tasks.operators.cancel(task_id)
    assert ensure_submitted(site.tasks, replace(site.behavior, every=MINUTE)) is False
    site.clock.advance(HOUR - MINUTE)
    assert ensure_submitted(site.tasks, site.behavior) is False
    assert site.tasks.reads.get(task_id).error_code == "CANCELLED"
    site.clock.advance(MINUTE)
    assert ensure_submitted(site.tasks, site.behavior) is True
    site.run()
    head = site.tasks.reads.get(task_id)
    assert (head.status, head.next_scheduled_run_ts) == (Status.SUBMITTED, site.clock() + HOUR)


def test_a_task_that_cannot_be_removed_stops_no_other_and_is_removed_later(site, monkeypatch):
    old = [site.finished() for _ in range(3)]
    site.clock.now = NOW + RETENTION
    remove, calls = site.store.remove, iter(range(100))

    def breaks_at_the_second(task: Task) -> bool:
        if next(calls) == 1:
            raise StoreUnavailable("no answer")
        return remove(task)

    monkeypatch.setattr(site.store, "remove", breaks_at_the_second)
    ensure_submitted(site.tasks, site.behavior)
    report = site.run()
    assert (report.tasks_removed, report.failed) == (2, 1)
    assert sum(site.store.get(task.task_id) is None for task in old) == 2
    site.clock.advance(2 * HOUR)
    assert site.run().tasks_removed == 1


def test_tasks_that_waste_a_run_are_not_the_first_ones_of_each_run(site, monkeypatch):
    """A page ends early when failing tasks have taken two minutes: the rest would never be maintained."""
    for _ in range(10):
        site.finished()
    site.clock.now = NOW + RETENTION
    tried: list[str] = []

    def breaks(task: Task) -> bool:
        tried.append(task.task_id)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(site.store, "remove", breaks)
    assert site.run().failed == 10
    site.clock.advance(2 * HOUR)
    site.run()
    first, second = tried[:10], tried[10:]
    assert sorted(first) == sorted(second)
    assert first != second
