"""Dispatching and looking again, by several at once: a task is sent as often as it takes, and never for nothing."""

import pytest

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Status
from tests.unit.tasks.builders import HOUR, MINUTE, NOW
from tests.unit.tasks.work.service_house import TRANSIENT, House, an_hour


@pytest.fixture
def house() -> House:
    return House()


# ---- dispatching


def test_a_dispatch_is_counted_before_it_is_sent(house: House) -> None:
    task_id = house.submit()
    assert house.service.dispatch(task_id).dispatch_count == 1
    assert house.service.dispatch(task_id).dispatch_count == 2
    assert house.queue.sent == [(task_id, 1), (task_id, 2)]


def test_a_dispatch_that_the_queue_refuses_is_made_up_for_by_the_sweeper(house: House) -> None:
    task_id = house.submit()
    house.queue.down = True
    with pytest.raises(StoreUnavailable):
        house.service.dispatch(task_id)
    counted = house.service.get(task_id)
    assert (counted.dispatch_count, counted.due_at) == (1, NOW + MINUTE)
    house.queue.down = False
    assert house.service.reconcile(task_id) == counted
    house.clock.advance(MINUTE)
    assert [entry.task_id for entry in house.store.due(house.clock())] == [task_id]
    again = house.service.reconcile(task_id)
    assert (again.dispatch_count, again.due_at) == (2, house.clock() + 2 * MINUTE)
    assert house.queue.sent == [(task_id, 2)]


def test_a_held_or_terminal_task_is_not_dispatched(house: House) -> None:
    task_id = house.running()
    assert house.service.dispatch(task_id).dispatch_count == 0
    house.service.succeed(task_id, 1, "done")
    assert house.service.dispatch(task_id).dispatch_count == 0
    assert house.queue.sent == []


def test_a_task_acquired_while_it_is_dispatched_is_left_alone(house: House) -> None:
    task_id = house.submit()
    house.race(lambda: house.rival.acquire(task_id, "run-2", an_hour))
    assert house.service.dispatch(task_id).dispatch_count == 0
    assert house.queue.sent == []


def test_two_sweepers_send_one_message(house: House) -> None:
    task_id = house.submit()
    house.clock.advance(MINUTE)
    house.race(lambda: house.rival.reconcile(task_id))
    house.service.reconcile(task_id)
    assert house.service.get(task_id).dispatch_count == 1
    assert house.queue.sent == []


def test_loss_and_dispatch_are_one_write(house: House) -> None:
    task_id = house.running()
    house.clock.advance(HOUR)
    found = house.service.reconcile(task_id)
    assert (found.status, found.error_code, found.dispatch_count) == (Status.RETRY_SCHEDULED, "LOST", 1)
    assert found.due_at == house.clock() + MINUTE
    assert house.queue.sent == [(task_id, 1)]


def test_a_retry_that_is_due_is_dispatched_by_the_sweeper(house: House) -> None:
    task_id = house.running()
    waiting = house.service.give_back(task_id, 1, TRANSIENT)
    house.clock.now = waiting.next_scheduled_run_ts
    assert house.service.reconcile(task_id) == waiting
    house.clock.now = waiting.due_at
    assert house.service.reconcile(task_id).dispatch_count == 1
    assert house.queue.sent == [(task_id, 1)]


def test_a_task_that_can_never_be_dispatched_fails(house: House) -> None:
    task_id = house.submit()
    looks = []
    while not (task := house.service.get(task_id)).is_terminal:
        looks.append(task.due_at - house.clock())
        house.clock.now = task.due_at
        house.service.reconcile(task_id)
    assert (task.status, task.error_code, task.dispatch_count) == (Status.FAILURE, "DISPATCH_FAILED", 20)
    assert [n for _, n in house.queue.sent] == list(range(1, 21))
    assert [look / MINUTE for look in looks] == [1, 1, 2, 4, 8, 16, 32, *[60] * 14]


def test_a_person_may_retry_what_could_not_be_dispatched(house: House) -> None:
    task_id = house.submit(dispatch_count=20)
    house.clock.advance(MINUTE)
    assert house.service.reconcile(task_id).error_code == "DISPATCH_FAILED"
    again = house.service.change(
        task_id,
        lambda task, now: t.resubmit(task, now, payload="{}", synchronous=False, grace=MINUTE, anew=None),
    )
    assert again.status is Status.SUBMITTED
    assert house.service.dispatch(task_id).dispatch_count == 21
    assert house.queue.sent == [(task_id, 21)]


# ---- long runs go on in a new execution


def test_a_long_run_is_handed_to_the_next_execution(house: House) -> None:
    task_id = house.running(dispatch_count=1)
    handed = house.service.hand_to_next_execution(task_id, 1, "run-1", lambda n: f"{task_id}-{n}")
    assert (handed.lease_owner, handed.dispatch_count, handed.status) == (f"{task_id}-2", 2, Status.RUNNING)
    assert house.queue.sent == [(task_id, 2)]
    same = house.acquire(task_id, f"{task_id}-2")
    assert (same.attempt_count, same.version) == (1, handed.version)
    again = house.service.hand_to_next_execution(task_id, 1, "run-1", lambda n: f"{task_id}-{n}")
    assert (again.lease_owner, again.dispatch_count) == (f"{task_id}-2", 2)
    assert house.queue.sent == [(task_id, 2)] * 2


def test_a_run_of_many_executions_that_is_lost_is_dispatched_again(house: House) -> None:
    """Continuations are no failed dispatches: they do not use up the 20 that a waiting task has."""
    task_id = house.running(dispatch_count=1)
    owner = "run-1"
    for _ in range(25):
        handed = house.service.hand_to_next_execution(task_id, 1, owner, lambda n: f"{task_id}-{n}")
        owner = handed.lease_owner or ""
    house.clock.advance(2 * HOUR)
    lost = house.service.reconcile(task_id)
    assert (lost.status, lost.error_code, lost.dispatch_count) == (Status.RETRY_SCHEDULED, "LOST", 27)
    assert house.queue.sent[-1] == (task_id, 27)
