"""What a run shows of itself: who works, or waits for work that moves, is alive; who waits for a hung one is not."""

from datetime import datetime, timedelta

import pytest

from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.policy import LeasePolicy, Policies, RetryPolicy
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.attempt_context import ALIVE_EVERY, AttemptContext, fence_of
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from tests.unit.tasks.builders import HOUR, MINUTE, NOW, SECOND, Clock, submitted


class Held:
    """A run of one attempt, its clocks moved together by hand."""

    def __init__(self, lost_timeout: timedelta = HOUR) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        policies = Policies(RetryPolicy(), {}, lease=LeasePolicy(lost_timeout))
        self.service = TaskService(self.store, policies, NoDispatchQueue(), clock=self.clock)
        task_id = self.store.apply(Create(submitted())).task_id
        task = self.service.acquire(task_id, "driver", lambda now: Lease.lasting(lost_timeout, now))
        self.run = AttemptContext(self.service, task, hand_over_at=None, monotonic=self._seconds)

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


def test_a_pause_between_reading_two_clocks_makes_a_fence_early_never_late() -> None:
    """Stopped right after one clock was read, the process comes back when a minute has gone by on both."""
    held = Held()

    def clock() -> datetime:
        held.clock.advance(MINUTE)
        return held.clock.now

    def monotonic() -> float:
        held.clock.advance(MINUTE)
        return held.clock.now.timestamp()

    held.service.clock = clock
    task = held.service.get(held.run.task_id)
    fence = fence_of(held.service, task, timedelta(0), monotonic)
    assert fence is not None
    assert fence <= task.lost_not_before.timestamp()


def test_a_task_that_nobody_holds_has_no_fence() -> None:
    held = Held()
    assert fence_of(held.service, submitted(), timedelta(0), held._seconds) is None


def test_a_lease_shorter_than_the_usual_sign_of_life_gets_more_of_them() -> None:
    held = Held(timedelta(seconds=20))
    held.poll(12, moved=True)
    assert held.sign_of_life == timedelta(seconds=10)


def test_a_lease_renewed_since_the_last_look_is_not_over() -> None:
    held = Held(timedelta(milliseconds=500))
    held.service._policies = Policies(RetryPolicy(), {}, lease=LeasePolicy(HOUR, timedelta(milliseconds=1)))
    held.run.checkpoint()
    held.service.heartbeat(held.run.task_id, 1, lambda now: Lease.lasting(HOUR, now))
    held.clock.advance(timedelta(milliseconds=600))
    held.run.checkpoint()
    assert held.run.task.lost_not_before == NOW + HOUR


def test_a_sign_of_life_that_takes_longer_than_the_lease_is_no_leave_to_go_on() -> None:
    """The process is paused between the write and its answer; somebody else has the task when it wakes up."""
    held = Held()
    held.poll(1, moved=True)
    held.clock.advance(ALIVE_EVERY)

    def pause(point: str) -> None:
        if point == "after apply":
            held.store.fault = lambda _point: None
            held.clock.advance(2 * HOUR)
            held.service.acquire(held.run.task_id, "another", lambda now: Lease.lasting(HOUR, now))

    held.store.fault = pause
    with pytest.raises(LeaseLost):
        held.run.checkpoint()
    assert held.service.get(held.run.task_id).attempt_count == 2
