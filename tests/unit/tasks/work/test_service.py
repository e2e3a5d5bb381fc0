"""Tasks in use by several at once: every lost race ends in reading and deciding again, never in a hope."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from delegation.tasks.errors import IllegalTransition, LeaseLost, StoreUnavailable, TaskNotFound
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from tests.unit.tasks.builders import HOUR, MINUTE, NOW, SECOND
from tests.unit.tasks.work.service_house import PERMANENT, TRANSIENT, House, an_hour


@pytest.fixture
def house() -> House:
    return House()


# ---- reading, and a whole life


def test_an_unknown_task_is_not_found_by_anything(house: House) -> None:
    service = house.service
    acts = (
        lambda: service.get("x"),
        lambda: service.acquire("x", "run-1", an_hour),
        lambda: service.cancel("x"),
        lambda: service.dispatch("x"),
        lambda: service.reconcile("x"),
        lambda: service.succeed("x", 1, "done"),
    )
    for act in acts:
        with pytest.raises(TaskNotFound, match="x"):
            act()


def test_an_uncontended_life(house: House) -> None:
    task_id = house.submit()
    house.service.dispatch(task_id)
    held = house.acquire(task_id)
    house.service.start(task_id, held.attempt_count, effects=True)
    house.service.note(task_id, 1, details={"files_deleted": 3}, progress_ts=NOW)
    done = house.service.succeed(task_id, 1, "deleted 3 files", details={"bytes_deleted": 9})
    assert house.versions(task_id) == ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]
    assert (done.details, done.result_summary) == ({"files_deleted": 3, "bytes_deleted": 9}, "deleted 3 files")
    assert len(house.store.applied) <= 6
    nonces = [change.after.nonce for change in house.store.applied]
    assert len(set(nonces)) == len(nonces)


def test_a_task_that_vanishes_under_a_decision_is_not_found(house: House) -> None:
    task_id = house.submit()
    house.race(lambda: house.store.calm._heads.pop(task_id))
    with pytest.raises(TaskNotFound):
        house.service.cancel(task_id)


def test_a_head_that_never_stands_still_is_given_up(house: House) -> None:
    task_id = house.running()
    house.race(*[lambda: house.rival.note(task_id, 1, details={"files_deleted": 1})] * 1000)
    with pytest.raises(StoreUnavailable):
        house.service.cancel(task_id)
    assert 5 <= 1000 - len(house.store.rivals) <= 100


# ---- acquiring


def test_acquiring_twice_as_the_same_owner_is_one_attempt(house: House) -> None:
    task_id = house.submit()
    first = house.acquire(task_id)
    house.clock.advance(MINUTE)
    again = house.acquire(task_id)
    assert (again.attempt_count, again.version, again.lease_owner) == (1, first.version, "run-1")
    assert again.lost_not_before == first.lost_not_before + MINUTE
    house.service.start(task_id, 1, effects=False)
    assert house.acquire(task_id).attempt_count == 1


def test_a_foreign_owner_gets_the_task_as_it_is(house: House) -> None:
    task_id = house.submit()
    held = house.acquire(task_id)
    assert house.acquire(task_id, "run-2") == held
    assert house.service.get(task_id).lease_owner == "run-1"


def test_the_loser_of_a_race_sees_the_winner(house: House) -> None:
    task_id = house.submit()
    house.race(lambda: house.rival.acquire(task_id, "run-2", an_hour))
    seen = house.acquire(task_id)
    assert (seen.lease_owner, seen.attempt_count) == ("run-2", 1)
    assert house.versions(task_id) == ["SUBMITTED", "ACQUIRING_RESOURCES"]


def test_a_touched_head_is_acquired_on_the_second_try(house: House) -> None:
    task_id = house.submit()
    house.race(lambda: house.rival.dispatch(task_id))
    held = house.acquire(task_id)
    assert (held.lease_owner, held.dispatch_count, held.dispatch_base) == ("run-1", 1, 1)


def test_a_retry_is_acquired_when_it_is_due_and_not_before(house: House) -> None:
    task_id = house.running()
    waiting = house.service.give_back(task_id, 1, TRANSIENT)
    house.clock.now = waiting.next_scheduled_run_ts - SECOND
    assert house.acquire(task_id, "run-2") == waiting
    house.clock.advance(SECOND)
    held = house.acquire(task_id, "run-2")
    assert (held.lease_owner, held.attempt_count) == ("run-2", 2)


def test_a_lost_holder_is_replaced_on_the_spot(house: House) -> None:
    task_id = house.running()
    house.clock.advance(HOUR)
    held = house.acquire(task_id, "run-2")
    assert (held.lease_owner, held.attempt_count) == ("run-2", 2)
    assert house.versions(task_id)[-3:] == ["RUNNING", "RETRY_SCHEDULED", "ACQUIRING_RESOURCES"]
    assert house.store.calm.get_version(task_id, 4).error_code == "LOST"


def test_an_owner_that_comes_back_too_late_is_a_new_attempt(house: House) -> None:
    task_id = house.running()
    house.clock.advance(HOUR)
    assert house.acquire(task_id, "run-1").attempt_count == 2
    with pytest.raises(LeaseLost):
        house.service.heartbeat(task_id, 1, an_hour)


def test_the_last_attempt_lost_is_the_end(house: House) -> None:
    task_id = house.submit(attempt_count=2)
    house.acquire(task_id)
    house.clock.advance(HOUR)
    ended = house.acquire(task_id, "run-2")
    assert (ended.status, ended.error_code) == (Status.FAILURE, "LOST")


@pytest.mark.parametrize("end", [lambda s, i: s.succeed(i, 1, "done"), lambda s, i: s.give_back(i, 1, PERMANENT)])
def test_a_terminal_task_is_not_acquired(house: House, end: Callable[[TaskService, str], Task]) -> None:
    task_id = house.running()
    ended = end(house.service, task_id)
    assert house.acquire(task_id, "run-2") == ended


def test_a_held_head_known_from_before_saves_the_first_read(house: House) -> None:
    task_id = house.submit()
    known = house.service.get(task_id)
    house.rival.dispatch(task_id)
    held = house.service.acquire(task_id, "run-1", an_hour, task=known)
    assert (held.lease_owner, held.dispatch_count) == ("run-1", 1)


# ---- holding


def test_a_heartbeat_renews_and_notes_in_one_write(house: House) -> None:
    task_id = house.running()
    house.clock.advance(MINUTE)
    before = len(house.store.applied)
    beat = house.service.heartbeat(task_id, 1, an_hour, job_run_id="job-1")
    assert (beat.lost_not_before, beat.job_run_id, beat.version) == (NOW + MINUTE + HOUR, "job-1", 3)
    assert len(house.store.applied) == before + 1


def test_a_heartbeat_that_moves_nothing_writes_nothing(house: House) -> None:
    task_id = house.running()
    before = house.store.calm.get(task_id)
    assert house.service.heartbeat(task_id, 1, lambda now: Lease.lasting(HOUR - SECOND, now)) == before
    assert house.store.calm.get(task_id) == before


def test_a_heartbeat_and_a_cancellation_do_not_overwrite_each_other(house: House) -> None:
    task_id = house.running()
    house.race(lambda: house.rival.cancel(task_id))
    house.clock.advance(MINUTE)
    assert house.service.heartbeat(task_id, 1, an_hour).cancel_requested


LATE: list[Callable[[TaskService, str], object]] = [
    lambda service, task_id: service.heartbeat(task_id, 1, an_hour),
    lambda service, task_id: service.note(task_id, 1, details={"files_deleted": 99}),
    lambda service, task_id: service.start(task_id, 1, effects=True),
    lambda service, task_id: service.succeed(task_id, 1, "done"),
    lambda service, task_id: service.give_back(task_id, 1, PERMANENT),
    lambda service, task_id: service.hand_to_next_execution(task_id, 1, "run-1", str),
]


@pytest.mark.parametrize("act", LATE)
def test_a_late_worker_can_change_nothing_about_a_reassigned_task(
    house: House, act: Callable[[TaskService, str], object]
) -> None:
    task_id = house.running()
    house.clock.advance(HOUR)
    standing = house.acquire(task_id, "run-2")
    with pytest.raises(LeaseLost):
        act(house.service, task_id)
    assert house.service.get(task_id) == standing
    assert house.queue.sent == []


@pytest.mark.parametrize("act", LATE)
def test_a_worker_reassigned_while_it_writes_changes_nothing(
    house: House, act: Callable[[TaskService, str], object]
) -> None:
    task_id = house.submit()
    house.acquire(task_id)

    def reassign() -> None:
        house.clock.advance(HOUR)
        house.rival.acquire(task_id, "run-2", an_hour)

    house.clock.advance(MINUTE)
    house.race(reassign)
    with pytest.raises(LeaseLost):
        act(house.service, task_id)
    now = house.service.get(task_id)
    assert (now.lease_owner, now.attempt_count, now.details) == ("run-2", 2, {})


# ---- finishing


def test_success_from_acquiring_passes_through_running(house: House) -> None:
    task_id = house.submit()
    house.acquire(task_id)
    done = house.service.succeed(task_id, 1, "nothing to do")
    assert done.status is Status.SUCCESS
    assert house.versions(task_id) == ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]


def test_success_repeated_answers_what_was_recorded(house: House) -> None:
    """A repeated Lambda call: the first one's answer was lost."""
    task_id = house.running()
    done = house.service.succeed(task_id, 1, "deleted 3 files", details={"files_deleted": 3})
    assert house.service.succeed(task_id, 1, "deleted 0 files", details={"files_deleted": 9}) == done
    with pytest.raises(LeaseLost):
        house.service.succeed(task_id, 0, "another attempt's")


def test_success_and_failure_race_for_one_outcome(house: House) -> None:
    task_id = house.running()
    house.race(lambda: house.rival.give_back(task_id, 1, PERMANENT))
    with pytest.raises(LeaseLost):
        house.service.succeed(task_id, 1, "done")
    assert house.versions(task_id)[-2:] == ["RUNNING", "FAILURE"]


def test_giving_back_schedules_a_retry_until_none_is_left(house: House) -> None:
    task_id = house.submit()
    for attempt in (1, 2, 3):
        held = house.acquire(task_id, f"run-{attempt}")
        assert held.attempt_count == attempt
        ended = house.service.give_back(task_id, attempt, TRANSIENT)
        house.clock.advance(HOUR)
    assert (ended.status, ended.error_code) == (Status.FAILURE, "TIMEOUT")
    assert (ended.result_extended or "").count("TIMEOUT: timed out") == 3


# ---- cancelling


def test_a_waiting_task_is_cancelled_at_once(house: House) -> None:
    task_id = house.submit()
    ended = house.service.cancel(task_id)
    assert (ended.status, ended.error_code, ended.due_at) == (Status.FAILURE, "CANCELLED", None)
    assert house.service.cancel(task_id) == ended


def test_a_held_task_is_asked_to_stop_once(house: House) -> None:
    task_id = house.running()
    asked = house.service.cancel(task_id)
    assert (asked.status, asked.cancel_requested, asked.version) == (Status.RUNNING, True, 3)
    assert house.service.cancel(task_id) == asked
    assert house.service.give_back(task_id, 1, TRANSIENT).error_code == "CANCELLED"


def test_anyone_may_end_a_cancelled_task_whose_holder_is_lost(house: House) -> None:
    task_id = house.running()
    house.service.cancel(task_id)
    assert house.service.reconcile(task_id).status is Status.RUNNING
    house.clock.advance(HOUR)
    ended = house.service.reconcile(task_id)
    assert (ended.status, ended.error_code) == (Status.FAILURE, "CANCELLED")
    assert house.queue.sent == []


def test_cancelling_a_task_that_was_just_acquired_asks_its_holder(house: House) -> None:
    task_id = house.submit()
    house.race(lambda: house.rival.acquire(task_id, "run-2", an_hour))
    asked = house.service.cancel(task_id)
    assert (asked.status, asked.cancel_requested) == (Status.ACQUIRING_RESOURCES, True)


def test_a_terminal_task_stays(house: House) -> None:
    task_id = house.running()
    done = house.service.succeed(task_id, 1, "done")
    assert house.service.cancel(task_id) == done


# ---- odds and ends


def test_an_arrow_that_does_not_exist_is_not_retried(house: House) -> None:
    task_id = house.submit()
    with pytest.raises(IllegalTransition):
        house.service.change(task_id, lambda task, now: t.transition(task, Status.SUCCESS, now))
    assert house.versions(task_id) == ["SUBMITTED"]


def test_a_lease_is_looked_at_again_half_way() -> None:
    assert Lease.lasting(HOUR, NOW) == Lease(NOW + HOUR, NOW + HOUR / 2)
    assert Lease.until(NOW + timedelta(seconds=910), NOW).recheck_not_before == NOW + timedelta(seconds=455)


def test_a_process_without_a_queue_leaves_dispatching_to_the_sweeper(house: House) -> None:
    task_id = house.submit()
    house.service._queue = NoDispatchQueue()
    with pytest.raises(StoreUnavailable, match=task_id):
        house.service.dispatch(task_id)
    assert house.service.get(task_id).due_at is not None
