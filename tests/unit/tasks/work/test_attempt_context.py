"""When an attempt writes `progress_ts`: while it works or waits for work that progresses, not for work that hangs."""

from datetime import datetime, timedelta

import pytest

from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.policy import Lease, LeasePolicy, Policies, RetryPolicy
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.attempt_context import ALIVE_EVERY, AttemptContext, fence_of
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND, Clock, submitted
from tests.kit.tasks.services import task_service
from tests.services import change_service


class Held:
    """One held attempt, its clocks moved together by hand."""

    def __init__(self, lost_timeout: timedelta = HOUR) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        self.service = task_service(
            self.store, Policies(RetryPolicy(), {}, lease=LeasePolicy(lost_timeout)), clock=self.clock
        )
        task_id = self.store.apply(Create(submitted())).task_id
        task = self.service.leases.acquire(task_id, "driver", lambda now: Lease.lasting(lost_timeout, now))
        self.run = AttemptContext(self.service, task, hand_over_at=None, monotonic=self._seconds)

    def _seconds(self) -> float:
        return self.clock.now.timestamp()

    @property
    def progress(self) -> timedelta | None:
        seen = self.service.reads.get(self.run.task_id).progress_ts
        return None if seen is None else seen - NOW

    def poll(self, seconds: int, *, moved: bool) -> None:
        for _ in range(seconds):
            self.clock.advance(SECOND)
            self.run.checkpoint(moved=moved)


def test_a_driver_that_polls_hanging_work_writes_no_progress() -> None:
    held = Held()
    held.poll(600, moved=False)
    assert held.progress is None
    held.poll(1, moved=True)
    assert held.progress == timedelta(seconds=601)
    held.poll(600, moved=False)
    assert held.progress == timedelta(seconds=601)


def test_a_driver_of_hanging_work_still_notices_the_loss_of_its_lease() -> None:
    held = Held()
    held.poll(5, moved=False)
    with pytest.raises(LeaseLost):
        held.poll(3600, moved=False)


def test_a_pause_between_two_clock_readings_makes_the_fence_earlier() -> None:
    """The process is paused right after it read one clock, and continues when a minute has passed on both."""
    held = Held()

    def clock() -> datetime:
        held.clock.advance(MINUTE)
        return held.clock.now

    def monotonic() -> float:
        held.clock.advance(MINUTE)
        return held.clock.now.timestamp()

    change_service(held.service, clock=clock)
    task = held.service.reads.get(held.run.task_id)
    fence = fence_of(held.service.clock, task, timedelta(0), monotonic)
    assert fence is not None
    assert fence_of(held.service.clock, submitted(), timedelta(0), monotonic) is None, "nobody holds it"
    assert fence <= task.lease.lost_not_before.timestamp()


@pytest.mark.parametrize(
    ("lease", "seconds", "progress"), [(HOUR, 100, 3 * ALIVE_EVERY), (20 * SECOND, 12, 10 * SECOND)]
)
def test_work_that_progresses_writes_it_now_and_then_and_more_often_for_a_short_lease(lease, seconds, progress) -> None:
    held = Held(lease)
    held.poll(seconds, moved=True)
    assert held.progress == progress


def test_a_lease_that_was_renewed_since_the_last_read_has_not_ended() -> None:
    held = Held(timedelta(milliseconds=500))
    policies = Policies(RetryPolicy(), {}, lease=LeasePolicy(HOUR, timedelta(milliseconds=1)))
    change_service(held.service, policies=policies)
    change_service(held.run.tasks, policies=policies)
    held.run.checkpoint()
    held.service.leases.heartbeat(held.run.task_id, 1, lambda now: Lease.lasting(HOUR, now))
    held.clock.advance(timedelta(milliseconds=600))
    held.run.checkpoint()
    assert held.run.task.lease.lost_not_before == NOW + HOUR


def test_progress_that_takes_longer_than_the_lease_to_write_ends_the_attempt() -> None:
    """The process is paused between the write and its answer; another process holds the task when it continues."""
    held = Held()
    held.poll(1, moved=True)
    held.clock.advance(ALIVE_EVERY)

    def pause(point: str) -> None:
        if point == "after apply":
            held.store.fault = lambda _point: None
            held.clock.advance(2 * HOUR)
            held.service.leases.acquire(held.run.task_id, "another", lambda now: Lease.lasting(HOUR, now))

    held.store.fault = pause
    with pytest.raises(LeaseLost):
        held.run.checkpoint()
    assert held.service.reads.get(held.run.task_id).attempt_count == 2
