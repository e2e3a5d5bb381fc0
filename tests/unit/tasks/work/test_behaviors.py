"""Submitting, running and waiting; several tests have the names of upstream's tests for reliable tasks."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from delegation.tasks.errors import AwaitedTaskFailed, LeaseLost
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.submit import Submitted
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.worker import lease_next_available_task
from tests.kit.tasks.builders import HOUR, MINUTE
from tests.kit.tasks.sites import ADD, ONE, Site, Sum, Total, Transient, add, identity


def result(submitted: Submitted[Total]) -> int:
    assert submitted.handle.outcome() is not None, "no outcome yet"
    total = submitted.handle.wait()
    return total.total


def test_single_service_single_consumer(site: Site) -> None:
    submitted = site.client().submit(ADD, ONE)
    assert submitted.is_new
    assert submitted.handle.outcome() is None
    assert site.worker("w", ADD).run_once() is not None
    assert result(submitted) == 3
    assert site.worker("w", ADD).run_once() is None
    assert site.statuses(submitted.task_id) == ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]


def test_the_same_deterministic_task_attaches_and_a_random_one_does_not(site: Site) -> None:
    first, second = site.client().submit(ADD, ONE), site.client().submit(ADD, ONE)
    assert (first.task_id, second.is_new) == (second.task_id, False)
    site.worker("w", ADD).run_once()
    assert result(second) == 3
    late = site.client().submit(ADD, ONE)
    assert not late.is_new
    assert result(late) == 3
    loose = Behavior("ADD", Sum, add, result=Total)
    assert site.client().submit(loose, ONE).task_id != site.client().submit(loose, ONE).task_id


def test_running_success_failure_update_race(site: Site) -> None:
    """Of a success and a failure of one attempt written at the same time, one is recorded."""
    service = site.service()
    task_id = site.client().submit(ADD, ONE).task_id
    assert lease_next_available_task(service, "w", {"ADD"}, lambda now: Lease.lasting(HOUR, now))
    service.leases.start(task_id, 1, effects=False)
    barrier = threading.Barrier(2)

    def success() -> bool:
        barrier.wait()
        try:
            return service.leases.succeed(task_id, 1, "done").status is Status.SUCCESS
        except LeaseLost:
            return False

    def failed(task: Task, now: datetime) -> Task:
        return task if task.is_terminal else t.fail(task, now, code="GUARD", summary="refused")

    def failure() -> bool:
        barrier.wait()
        return service.writes.change(task_id, failed).status is Status.FAILURE

    with ThreadPoolExecutor(2) as pool:
        won = [future.result() for future in (pool.submit(success), pool.submit(failure))]
    assert sorted(won) == [False, True]
    assert site.head(task_id).version == 4


def test_two_services_distributed_lost_task(site: Site) -> None:
    submitted = site.client().submit(ADD, ONE)
    assert lease_next_available_task(site.service(), "dead", {"ADD"}, lambda now: Lease.lasting(HOUR, now)) is not None
    other = site.worker("other", ADD)
    assert other.run_once() is None
    site.clock.advance(HOUR)
    assert other.run_once() is not None
    assert result(submitted) == 3
    assert site.statuses(submitted.task_id)[1:4] == ["ACQUIRING_RESOURCES", "RETRY_SCHEDULED", "ACQUIRING_RESOURCES"]
    with pytest.raises(LeaseLost):
        site.service().leases.succeed(submitted.task_id, 1, "too late")


def test_attempts_exhausted_end_in_failure_with_their_history(site: Site) -> None:
    def raising(_parameters: Sum, _run: AttemptContext) -> Total:
        raise Transient("never")

    behavior = Behavior("ADD", Sum, raising, result=Total, identify=identity)
    submitted = site.client().submit(behavior, ONE)
    worker = site.worker("w", behavior)
    assert worker.run_once() is not None
    assert worker.run_once() is None, "it waits"
    while not site.head(submitted.task_id).is_terminal:
        worker.run_once()
        site.clock.advance(10 * MINUTE)
    assert site.head(submitted.task_id).attempt_count == 3
    assert (site.head(submitted.task_id).result_extended or "").count("TRANSIENT: never") == 3
    with pytest.raises(AwaitedTaskFailed, match="TRANSIENT"):
        result(submitted)
    again = site.client().submit(behavior, ONE)
    assert again.is_new
    assert site.head(again.task_id).status is Status.SUBMITTED


def test_illegal_null_result(site: Site) -> None:
    behavior = Behavior("ADD", Sum, lambda _parameters, _run: None, result=Total)
    submitted = site.client().submit(behavior, ONE)
    site.worker("w", behavior).run_once()
    head = site.head(submitted.task_id)
    assert (head.status, head.error_code) == (Status.FAILURE, "ILLEGAL_RESULT")


def test_recovery_after_restart(site: Site) -> None:
    """Everything but the store is new: what was submitted, running or waiting continues."""
    waiting = site.client().submit(ADD, Sum(left=1, right=1))
    running = site.client().submit(ADD, Sum(left=2, right=2))
    held = lease_next_available_task(site.service(), "before", {"ADD"}, lambda now: Lease.lasting(HOUR, now))
    assert held is not None
    restarted = Site(site.store, site.clock)
    restarted.clock.advance(HOUR)
    worker = restarted.worker("after", ADD)
    while worker.run_once() is not None:
        pass
    assert {result(waiting), result(running)} == {2, 4}


def test_work_that_outlives_its_lease_stops_at_the_next_checkpoint(site: Site) -> None:
    reached = []

    def slow(_parameters: Sum, run: AttemptContext) -> Total:
        run.checkpoint()
        site.clock.advance(timedelta(minutes=59, seconds=56))
        run.checkpoint()
        reached.append(True)
        return Total(total=0)

    behavior = Behavior("ADD", Sum, slow, result=Total)
    submitted = site.client().submit(behavior, ONE)
    site.worker("w", behavior).run_once()
    assert reached == []
    assert site.head(submitted.task_id).status is Status.RUNNING


def test_a_completion_can_be_awaited_or_forgotten(site: Site) -> None:
    submitted = site.client().submit(ADD, ONE)

    async def both() -> Total | None:
        _done, total = await asyncio.gather(asyncio.to_thread(site.worker("w", ADD).run_once), submitted.handle)
        return total

    assert asyncio.run(both()) == Total(total=3)


def test_a_stopped_worker_hands_its_task_over(site: Site) -> None:
    def stopped_meanwhile(parameters: Sum, run: AttemptContext) -> Total:
        worker.stop()
        run.checkpoint()
        return Total(total=parameters.left)

    submitted = site.client().submit(ADD, ONE)
    worker = site.worker("w", Behavior("ADD", Sum, stopped_meanwhile, result=Total, identify=identity))
    worker.run_once()
    head = site.head(submitted.task_id)
    assert (head.status, head.error_code, head.unexcused_attempts) == (Status.RETRY_SCHEDULED, "HANDED_OVER", 0)
