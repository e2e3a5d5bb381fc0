"""What a run shows of itself: who works, or waits for work that moves, is alive; who waits for a hung one is not."""

from datetime import timedelta

import pytest

from delegation.tasks.errors import LeaseLost
from delegation.tasks.memory import MemoryTaskStore
from delegation.tasks.policy import Policies
from delegation.tasks.runs import ALIVE_EVERY, HeldRun
from delegation.tasks.service import Lease, NoDispatchQueue, TaskService
from delegation.tasks.store import Create
from tests.unit.tasks.builders import HOUR, NOW, SECOND, Clock, submitted


class Held:
    """A run of one attempt, its clocks moved together by hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        self.service = TaskService(self.store, Policies.from_properties({}), NoDispatchQueue(), clock=self.clock)
        task_id = self.store.apply(Create(submitted())).task_id
        task = self.service.acquire(task_id, "driver", lambda now: Lease.lasting(HOUR, now))
        self.run = HeldRun(self.service, task, hand_over_at=None, monotonic=self._seconds)

    def _seconds(self) -> float:
        return self.clock.now.timestamp()

    @property
    def sign_of_life(self) -> timedelta | None:
        seen = self.service.get(self.run.task_id).progress_ts
        return None if seen is None else seen - NOW

    def poll(self, seconds: int, *, moved: bool) -> None:
        for _ in range(seconds):
            self.clock.advance(SECOND)
            self.run.checkpoint(moved=moved)


def test_a_driver_polling_work_that_hangs_shows_no_life() -> None:
    held = Held()
    held.poll(600, moved=False)
    assert held.sign_of_life is None
    held.poll(1, moved=True)
    assert held.sign_of_life == timedelta(seconds=601)
    held.poll(600, moved=False)
    assert held.sign_of_life == timedelta(seconds=601)


def test_work_that_moves_shows_life_now_and_then() -> None:
    held = Held()
    held.poll(100, moved=True)
    assert held.sign_of_life == 3 * ALIVE_EVERY


def test_a_driver_of_hanging_work_still_learns_that_it_lost_the_task() -> None:
    held = Held()
    held.poll(5, moved=False)
    with pytest.raises(LeaseLost):
        held.poll(3600, moved=False)
