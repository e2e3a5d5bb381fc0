"""The sweep reaches every due task of its kinds, however many others are due."""

import threading
from datetime import timedelta
from uuid import uuid4

import pytest

from delegation.orchestration.sweep import sweep
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from tests.kit.tasks.builders import submitted
from tests.kit.worlds.service import World

HOUR = timedelta(hours=1)


def accepted(world: World, kind: str) -> Task:
    now = world.clock()
    world.clock.advance(timedelta(seconds=1))
    times = dict.fromkeys(("received_timestamp", "created_ts", "last_status_change_ts"), now)
    task = submitted(
        str(uuid4()), task_type=kind, next_scheduled_run_ts=now, due_at=now + timedelta(minutes=1), **times
    )
    return world.store.apply(Create(task))


def test_tasks_of_a_newer_release_do_not_hide_others() -> None:
    world = World()
    for _ in range(12):
        accepted(world, "NEWER")
    ours = [accepted(world, "TABLE_PURGE").task_id for _ in range(7)]
    world.clock.advance(HOUR)
    swept = list(sweep(world.tasks, {"TABLE_PURGE"}, deadline=world.deadline(), clock=world.clock, limit=5))
    assert [one.after.task_id for one in swept if one.after] == ours
    assert [task_id for task_id, _ in world.queue.sent] == ours


def test_unreadable_records_do_not_hide_others(monkeypatch) -> None:
    world = World()
    unreadable = {accepted(world, "TABLE_PURGE").task_id for _ in range(12)}
    ours = [accepted(world, "TABLE_PURGE").task_id for _ in range(7)]
    world.clock.advance(HOUR)
    read = world.store.get

    def get(task_id: str) -> Task | None:
        if task_id in unreadable:
            raise MalformedRecord(f"task {task_id}: format: 9")
        return read(task_id)

    monkeypatch.setattr(world.store, "get", get)
    swept = list(sweep(world.tasks, {"TABLE_PURGE"}, deadline=world.deadline(), clock=world.clock, limit=5))
    assert [one.after.task_id for one in swept if one.after] == ours
    assert len([one for one in swept if one.error]) == len(unreadable)


def test_lost_tasks_come_first_however_many_wait() -> None:
    world = World()
    for _ in range(12):
        accepted(world, "TABLE_PURGE")
    lost = accepted(world, "TABLE_PURGE").task_id
    world.tasks.leases.acquire(lost, "run-1", lambda now: Lease.lasting(HOUR, now))
    world.clock.advance(2 * HOUR)
    first = next(sweep(world.tasks, {"TABLE_PURGE"}, deadline=world.deadline(), clock=world.clock, limit=5))
    assert first.after.task_id == lost


def test_tasks_are_reconciled_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for _ in range(4):
        accepted(world, "TABLE_PURGE")
    world.clock.advance(HOUR)
    together = threading.Barrier(4, timeout=5)
    monkeypatch.setattr(world.queue, "send", lambda _task_id, _n: together.wait())
    swept = sweep(world.tasks, {"TABLE_PURGE"}, deadline=world.deadline(), clock=world.clock, threads=4)
    assert [one.error for one in swept] == [None] * 4
