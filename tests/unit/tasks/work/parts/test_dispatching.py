"""Dispatching and reconciling by several processes at once: a task is sent as often as necessary, and no more."""

import pytest

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Dispatches, Status
from tests.kit.tasks.builders import HOUR, MINUTE, NOW
from tests.kit.tasks.harness import RacedService, an_hour
from tests.kit.tasks.queues import REFUSED

# ---- dispatching


def test_a_dispatch_is_counted_before_it_is_sent(harness: RacedService, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = harness.submit()
    stored: list[int] = []
    send = harness.queue.send

    def send_and_read(sent: str, n: int) -> None:
        stored.append(harness.rival.reads.get(sent).dispatches.count)
        send(sent, n)

    monkeypatch.setattr(harness.queue, "send", send_and_read)
    assert harness.service.dispatching.dispatch(task_id).dispatches.count == 1
    assert harness.service.dispatching.dispatch(task_id).dispatches.count == 2
    harness.clock.advance(HOUR)
    assert harness.service.dispatching.reconcile(task_id).dispatches.count == 3
    assert harness.queue.sent == [(task_id, 1), (task_id, 2), (task_id, 3)]
    assert stored == [1, 2, 3]


def test_the_first_dispatch_is_counted_in_the_write_that_creates_the_task(harness, monkeypatch):
    stored: list[int] = []
    monkeypatch.setattr(
        harness.queue, "send", lambda sent, _n: stored.append(harness.rival.reads.get(sent).dispatches.count)
    )
    first = harness.service.submission.first(task_id="task-1", task_type="TABLE_PURGE", payload="{}")
    assert harness.service.submission.create(first) == (first, True)
    assert stored == [1]


def test_the_sweeper_repeats_a_dispatch_that_the_queue_refused(harness: RacedService) -> None:
    task_id = harness.submit()
    harness.queue.trouble = REFUSED
    with pytest.raises(StoreUnavailable):
        harness.service.dispatching.dispatch(task_id)
    counted = harness.service.reads.get(task_id)
    assert (counted.dispatches.count, counted.due_at) == (1, NOW + MINUTE)
    harness.queue.trouble = None
    assert harness.service.dispatching.reconcile(task_id) == counted
    harness.clock.advance(MINUTE)
    assert [entry.task_id for entry in harness.store.due(harness.clock())] == [task_id]
    again = harness.service.dispatching.reconcile(task_id)
    assert (again.dispatches.count, again.due_at) == (2, harness.clock() + 2 * MINUTE)
    assert harness.queue.sent == [(task_id, 2)]


def test_a_task_acquired_while_it_is_dispatched_is_not_sent(harness: RacedService) -> None:
    task_id = harness.submit()
    harness.race(lambda: harness.rival.leases.acquire(task_id, "run-2", an_hour))
    assert harness.service.dispatching.dispatch(task_id).dispatches.count == 0
    assert harness.queue.sent == []


def test_two_sweepers_send_one_message(harness: RacedService) -> None:
    task_id = harness.submit()
    harness.clock.advance(MINUTE)
    harness.race(lambda: harness.rival.dispatching.reconcile(task_id))
    harness.service.dispatching.reconcile(task_id)
    assert harness.service.reads.get(task_id).dispatches.count == 1
    assert harness.queue.sent == []


def test_loss_and_dispatch_are_one_write(harness: RacedService) -> None:
    task_id = harness.running()
    harness.clock.advance(HOUR)
    found = harness.service.dispatching.reconcile(task_id)
    assert (found.status, found.error_code, found.dispatches.count) == (Status.RETRY_SCHEDULED, "LOST", 1)
    assert found.due_at == harness.clock() + MINUTE
    assert harness.queue.sent == [(task_id, 1)]


def test_a_task_whose_dispatches_start_no_attempt_fails(harness: RacedService) -> None:
    task_id = harness.submit()
    looks = []
    while not (task := harness.service.reads.get(task_id)).is_terminal:
        looks.append(task.due_at - harness.clock())
        harness.clock.now = task.due_at
        harness.service.dispatching.reconcile(task_id)
    assert (task.status, task.error_code, task.dispatches.count) == (Status.FAILURE, "DISPATCH_FAILED", 20)
    assert [n for _, n in harness.queue.sent] == list(range(1, 21))
    assert harness.service.dispatching.dispatch(task_id) == task, "it has ended"
    harness.service.operators.retry(task_id)
    assert harness.service.dispatching.dispatch(task_id).dispatches.count == 21
    assert harness.queue.sent[-1] == (task_id, 21)
    assert [look / MINUTE for look in looks] == [1, 1, 2, 4, 8, 16, 32, *[60] * 14]


# ---- long runs continue in a new execution


def test_a_long_run_is_handed_to_the_next_execution(harness: RacedService) -> None:
    task_id = harness.running(dispatches=Dispatches(count=1))
    handed = harness.service.leases.hand_to_next_execution(task_id, 1, "run-1", lambda n: f"{task_id}-{n}")
    assert (handed.lease.owner, handed.dispatches.count, handed.status) == (f"{task_id}-2", 2, Status.RUNNING)
    assert harness.queue.sent == [(task_id, 2)]
    same = harness.acquire(task_id, f"{task_id}-2")
    assert (same.attempt_count, same.version) == (1, handed.version)
    again = harness.service.leases.hand_to_next_execution(task_id, 1, "run-1", lambda n: f"{task_id}-{n}")
    assert (again.lease.owner, again.dispatches.count) == (f"{task_id}-2", 2)
    assert harness.queue.sent == [(task_id, 2)] * 2


def test_a_run_of_many_executions_that_is_lost_is_dispatched_again(harness: RacedService) -> None:
    """Hand-overs to executions are no failed dispatches: they do not count towards the 20 of a waiting task."""
    task_id = harness.running(dispatches=Dispatches(count=1))
    owner = "run-1"
    for _ in range(25):
        handed = harness.service.leases.hand_to_next_execution(task_id, 1, owner, lambda n: f"{task_id}-{n}")
        owner = handed.lease.owner or ""
    harness.clock.advance(2 * HOUR)
    lost = harness.service.dispatching.reconcile(task_id)
    assert (lost.status, lost.error_code, lost.dispatches.count) == (Status.RETRY_SCHEDULED, "LOST", 27)
    assert harness.queue.sent[-1] == (task_id, 27)
