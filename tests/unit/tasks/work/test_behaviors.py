"""Submitting, running and waiting; several tests have the names of upstream's tests for reliable tasks."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from delegation.tasks.errors import AwaitedTaskFailed, LeaseLost
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Lease, Policies
from delegation.tasks.submit import Submitted
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.worker import Worker, lease_next_available_task
from tests.kit.tasks.builders import HOUR, MINUTE
from tests.kit.tasks.sites import ADD, ONE, Permanent, Site, Sum, Total, Transient, add, identity
from tests.services import change_service


@pytest.fixture
def site() -> Site:
    return Site()


def result(submitted: Submitted[Total]) -> int:
    outcome = submitted.handle.outcome()
    assert outcome is not None, "no outcome yet"
    total = submitted.handle.wait()
    assert total is not None
    return total.total


def test_single_service_single_consumer(site: Site) -> None:
    submitted = site.client().submit(ADD, ONE)
    assert submitted.is_new
    assert submitted.handle.outcome() is None
    assert site.worker("w", ADD).run_once() is not None
    assert result(submitted) == 3
    assert site.worker("w", ADD).run_once() is None
    assert site.statuses(submitted.task_id) == ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]


def test_a_completion_can_be_awaited_or_forgotten(site: Site) -> None:
    submitted = site.client().submit(ADD, ONE)

    async def both() -> Total | None:
        _done, total = await asyncio.gather(asyncio.to_thread(site.worker("w", ADD).run_once), submitted.handle)
        return total

    assert asyncio.run(both()) == Total(total=3)


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
    """Of a success, a failure and a loss of one attempt written at the same time, one is recorded."""
    service = site.service()
    task_id = site.client().submit(ADD, ONE).task_id
    task = lease_next_available_task(service, "w", {"ADD"}, lambda now: Lease.lasting(HOUR, now))
    assert task is not None
    service.leases.start(task_id, 1, effects=False)
    barrier = threading.Barrier(2)

    def success() -> bool:
        barrier.wait()
        try:
            return service.leases.succeed(task_id, 1, "done").status is Status.SUCCESS
        except LeaseLost:
            return False

    def cancel() -> bool:
        barrier.wait()
        return service.writes.change(
            task_id, lambda found, now: found if found.is_terminal else _failed(found, now)
        ).status is (Status.FAILURE)

    with ThreadPoolExecutor(2) as pool:
        won = [future.result() for future in (pool.submit(success), pool.submit(cancel))]
    assert sorted(won) == [False, True]
    assert site.head(task_id).version == 4


def _failed(task: Task, now: object) -> Task:
    from delegation.tasks.life import transitions as t

    return t.fail(task, now, code="GUARD", summary="refused")  # type: ignore[arg-type]


def test_two_services_distributed(site: Site) -> None:
    ids = {site.client().submit(ADD, Sum(left=n, right=n)).task_id for n in range(20)}
    workers = [site.worker(f"w{n}", ADD) for n in range(2)]

    def drain(worker: Worker) -> list[str]:
        done = []
        while (task := worker.run_once()) is not None:
            done.append(task.task_id)
        return done

    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(drain, workers))
    assert sorted([*shares[0], *shares[1]]) == sorted(ids)
    assert all(site.head(task_id).attempt_count == 1 for task_id in ids)


def test_two_services_distributed_lost_task(site: Site) -> None:
    submitted = site.client().submit(ADD, ONE)
    dead = lease_next_available_task(site.service(), "dead", {"ADD"}, lambda now: Lease.lasting(HOUR, now))
    assert dead is not None
    other = site.worker("other", ADD)
    assert other.run_once() is None
    site.clock.advance(HOUR)
    assert other.run_once() is not None
    assert result(submitted) == 3
    assert site.statuses(submitted.task_id) == [
        "SUBMITTED",
        "ACQUIRING_RESOURCES",
        "RETRY_SCHEDULED",
        "ACQUIRING_RESOURCES",
        "RUNNING",
        "SUCCESS",
    ]
    with pytest.raises(LeaseLost):
        site.service().leases.succeed(submitted.task_id, 1, "too late")


def test_a_lost_attempt_is_a_failure_if_the_behavior_declares_so(site: Site) -> None:
    task_id = site.client().submit(ADD, ONE).task_id
    service = site.service()
    change_service(service, policies=Policies(service.policies.default, {}, fail_when_lost=frozenset({"ADD"})))
    assert lease_next_available_task(service, "dead", {"ADD"}, lambda now: Lease.lasting(HOUR, now))
    site.clock.advance(HOUR)
    assert service.dispatching.reconcile(task_id).error_code == "LOST"
    assert site.head(task_id).status is Status.FAILURE


def test_retryable_error(site: Site) -> None:
    tries = []

    def flaky(parameters: Sum, run: AttemptContext) -> Total:
        tries.append(run.task.attempt_count)
        if len(tries) < 3:
            raise Transient("not yet")
        return add(parameters, run)

    behavior = Behavior("ADD", Sum, flaky, result=Total, identify=identity)
    submitted = site.client().submit(behavior, ONE)
    worker = site.worker("w", behavior)
    for _ in range(3):
        assert worker.run_once() is not None
        assert worker.run_once() is None
        site.clock.advance(10 * MINUTE)
    assert tries == [1, 2, 3]
    assert result(submitted) == 3


def test_attempts_exhausted_end_in_failure_with_their_history(site: Site) -> None:
    def raising(_parameters: Sum, _run: AttemptContext) -> Total:
        raise Transient("never")

    behavior = Behavior("ADD", Sum, raising, result=Total, identify=identity)
    submitted = site.client().submit(behavior, ONE)
    worker = site.worker("w", behavior)
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


def test_a_permanent_error_is_not_retried(site: Site) -> None:
    def raising(_parameters: Sum, _run: AttemptContext) -> Total:
        raise Permanent("no use")

    behavior = Behavior("ADD", Sum, raising, result=Total)
    submitted = site.client().submit(behavior, ONE)
    site.worker("w", behavior).run_once()
    assert site.head(submitted.task_id).error_code == "PERMANENT"


def test_an_unexpected_exception_is_retried_and_its_text_recorded_without_secrets(site: Site) -> None:
    def raising(_parameters: Sum, _run: AttemptContext) -> Total:
        raise ZeroDivisionError("no divisor, token=hunter2")

    behavior = Behavior("ADD", Sum, raising, result=Total)
    submitted = site.client().submit(behavior, ONE)
    site.worker("w", behavior).run_once()
    head = site.head(submitted.task_id)
    assert (head.status, head.error_code) == (Status.RETRY_SCHEDULED, "UNEXPECTED_ERROR")
    assert head.result_summary == "ZeroDivisionError: no divisor, token=***"
    assert "hunter2" not in head.model_dump_json()


def test_illegal_null_result(site: Site) -> None:
    behavior = Behavior("ADD", Sum, lambda _parameters, _run: None, result=Total)
    submitted = site.client().submit(behavior, ONE)
    site.worker("w", behavior).run_once()
    assert (site.head(submitted.task_id).status, site.head(submitted.task_id).error_code) == (
        Status.FAILURE,
        "ILLEGAL_RESULT",
    )


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


def test_unknown_behavior_kept(site: Site) -> None:
    submitted = site.client().submit(ADD, ONE)
    other = Behavior("OTHER", Sum, add, result=Total)
    site.clock.advance(10 * HOUR)
    assert site.worker("old", other).run_once() is None
    assert site.head(submitted.task_id).version == 1
    assert site.worker("new", ADD).run_once() is not None


def test_recurring_task(site: Site) -> None:
    runs = []
    behavior = Behavior(
        "ADD", Sum, lambda p, r: runs.append(1) or add(p, r), result=Total, every=HOUR, identify=identity
    )
    submitted = site.client().submit(behavior, ONE)
    worker = site.worker("w", behavior)
    worker.run_once()
    assert result(submitted) == 3
    assert site.statuses(submitted.task_id)[-2:] == ["SUCCESS", "SUBMITTED"]
    assert worker.run_once() is None
    site.clock.advance(HOUR + 2 * MINUTE)
    worker.run_once()
    assert len(runs) == 2
    site.service().operators.cancel(submitted.task_id)
    site.clock.advance(10 * HOUR)
    assert worker.run_once() is None
    assert site.head(submitted.task_id).error_code == "CANCELLED"


def test_a_recurring_task_recurs_after_a_failure_too(site: Site) -> None:
    def raising(_parameters: Sum, _run: AttemptContext) -> Total:
        raise Permanent("this time")

    behavior = Behavior("ADD", Sum, raising, result=Total, every=HOUR)
    submitted = site.client().submit(behavior, ONE)
    site.worker("w", behavior).run_once()
    assert site.statuses(submitted.task_id)[-2:] == ["FAILURE", "SUBMITTED"]
    with pytest.raises(AwaitedTaskFailed):
        result(submitted)


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
