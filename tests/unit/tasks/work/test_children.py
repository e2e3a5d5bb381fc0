"""Subtasks by `parent_id`: a parent ends after its children, and fails if one of them fails."""

from dataclasses import replace

import pytest
from pydantic import BaseModel

from delegation.errors import RunCancelled
from delegation.tasks.life.model import Status
from delegation.tasks.life.outcomes import after_loss
from delegation.tasks.life.policy import Lease
from delegation.tasks.submit import Parent
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, FunctionBehavior
from delegation.tasks.work.worker import Worker
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.tasks.builders import MINUTE, SECOND
from tests.kit.tasks.sites import ONE, Permanent, Site, Sum, Total, Transient, add, identity
from tests.services import change_service


class Family(BaseModel): ...


def family(site: Site) -> Behavior[Family, Total]:
    def parent(_parameters: Family, run: AttemptContext) -> Total:
        for n in range(2):
            site.client().submit(CHILD, Sum(left=n, right=n), parent=Parent(run.task.task_id, run.task.attempt_count))
        return Total(total=7)

    return Behavior("FAMILY", Family, parent, result=Total)


CHILD = Behavior("CHILD", Sum, add, result=Total, identify=identity)


def settle(site: Site, worker: Worker) -> None:
    for _ in range(20):
        while worker.run_once() is not None:
            pass
        site.clock.advance(2 * MINUTE)


def test_a_parent_ends_after_its_children(site: Site) -> None:
    behavior = family(site)
    submitted = site.client().submit(behavior, Family())
    worker = site.worker("w", behavior, CHILD)
    assert worker.run_once() is not None
    parent, children = site.head(submitted.task_id), site.service().reads.children(submitted.task_id)
    assert (parent.status, parent.error_code) == (Status.RETRY_SCHEDULED, "CHILDREN_PENDING")
    assert [site.head(child).parent_id for child in children] == [submitted.task_id] * 2
    settle(site, worker)
    assert submitted.handle.wait() == Total(total=7)
    assert site.head(submitted.task_id).unexcused_attempts == 1


def test_a_parent_cancelled_while_it_works_cancels_its_children_first(site: Site) -> None:
    def interrupted(_parameters: Family, run: AttemptContext) -> Total:
        site.client().submit(CHILD, ONE, parent=Parent(run.task.task_id, run.task.attempt_count))
        site.service().operators.cancel(run.task.task_id)
        site.clock.advance(2 * SECOND)
        run.checkpoint()
        return Total(total=7)

    behavior = Behavior("FAMILY", Family, interrupted, result=Total)
    submitted = site.client().submit(behavior, Family())
    worker = site.worker("w", behavior)
    worker.run_once()
    parent = site.head(submitted.task_id)
    assert parent.status is Status.RETRY_SCHEDULED
    assert [site.head(child).error_code for child in site.service().reads.children(parent.task_id)] == ["CANCELLED"]
    settle(site, worker)
    assert site.head(submitted.task_id).error_code == "CANCELLED"


@pytest.mark.parametrize("permanent", [True, False])
def test_a_cancelled_parent_whose_holder_is_lost_ends_after_its_children(site: Site, permanent: bool) -> None:
    behavior = family(site)
    parent = site.client().submit(behavior, Family()).task_id
    worker = site.worker("w", behavior, CHILD)
    worker.run_once()
    service = site.service()
    children = service.reads.children(parent)
    if permanent:
        change_service(service, policies=replace(service.policies, fail_when_lost=frozenset({"FAMILY"})))
    service.operators.cancel(parent)
    site.clock.advance(2 * MINUTE)
    service.leases.acquire(parent, "dies", lambda now: Lease.lasting(MINUTE, now))
    site.clock.advance(2 * MINUTE)
    service.writes.change(parent, lambda task, now: after_loss(task, now, service.policies))
    assert not site.head(parent).is_terminal
    settle(site, worker)
    assert [site.head(child).is_terminal for child in children] == [True, True]
    assert site.head(parent).error_code == "CANCELLED"
    assert site.head(parent).last_status_change_ts >= max(site.head(child).last_status_change_ts for child in children)


def test_a_holder_that_lost_its_task_does_not_end_the_next_attempt() -> None:
    """After the read that showed the cancellation the lease ends, and another attempt holds the task."""
    site = Site()
    service = site.service()

    def work(_parameters: Family, run: AttemptContext) -> Total:
        site.client().submit(CHILD, ONE, parent=Parent(run.task.task_id, run.task.attempt_count))
        service.operators.cancel(run.task.task_id)
        site.clock.advance(10 * MINUTE)
        service.leases.acquire(run.task.task_id, "other", lambda now: Lease.lasting(MINUTE, now))
        raise RunCancelled(run.task.task_id)

    behavior = Behavior("FAMILY", Family, work, result=Total)
    submitted = site.client().submit(behavior, Family())
    held = service.leases.acquire(submitted.task_id, "w", lambda now: Lease.lasting(MINUTE, now))
    after = FunctionBehavior(service, behavior).run(held, hand_over_at=None)
    assert (after.is_held, after.lease.owner, after.attempt_count) == (True, "other", 2)
    assert site.head(submitted.task_id) == after


def failing_parent(site: Site, runs: list[str]) -> Behavior[Family, Total]:
    def work(_parameters: Family, run: AttemptContext) -> Total:
        runs.append(run.task.task_id)
        site.client().submit(CHILD, ONE, parent=Parent(run.task.task_id, run.task.attempt_count))
        raise Permanent("the work cannot be done")

    return Behavior("FAMILY", Family, work, result=Total)


@pytest.mark.parametrize("lost", [False, True])
def test_a_parent_that_fails_permanently_fails_after_its_children(site: Site, lost: bool) -> None:
    runs: list[str] = []
    behavior = failing_parent(site, runs)
    parent = site.client().submit(behavior, Family()).task_id
    worker = site.worker("w", behavior, CHILD)
    if lost:
        service = site.service()
        change_service(service, policies=replace(service.policies, fail_when_lost=frozenset({"FAMILY"})))
        held = service.leases.acquire(parent, "dies", lambda now: Lease.lasting(MINUTE, now))
        site.client().submit(CHILD, ONE, parent=Parent(parent, held.attempt_count))
        site.clock.advance(2 * MINUTE)
        service.writes.change(parent, lambda task, now: after_loss(task, now, service.policies))
    else:
        worker.run_once()
    [child] = site.service().reads.children(parent)
    assert (site.head(parent).status, site.head(child).is_terminal) == (Status.RETRY_SCHEDULED, False)
    settle(site, worker)
    done = site.head(parent)
    assert (done.status, done.error_code) == (Status.FAILURE, "LOST" if lost else Permanent.code)
    assert site.head(child).status is Status.SUCCESS
    assert site.head(child).last_status_change_ts <= done.last_status_change_ts
    assert runs == ([] if lost else [parent])


def test_checks_of_children_become_rarer_and_leave_the_error_history_alone(site: Site) -> None:
    """Every check is an attempt with four rows: five seconds apart they would fill the history."""
    tries: list[int] = []

    def parent(_parameters: Family, run: AttemptContext) -> Total:
        tries.append(1)
        if len(tries) == 1:
            raise Transient("try again")
        site.client().submit(CHILD, ONE, parent=Parent(run.task.task_id, run.task.attempt_count))
        return Total(total=7)

    behavior = Behavior("FAMILY", Family, parent, result=Total)
    task_id = site.client().submit(behavior, Family()).task_id
    worker = site.worker("w", behavior)
    worker.run_once()
    errors = site.head(task_id).result_extended
    assert errors is not None
    assert "TRANSIENT" in errors
    waits = []
    for _ in range(60):
        site.clock.now = site.head(task_id).due_at or site.clock.now
        worker.run_once()
        head = site.head(task_id)
        assert head.next_scheduled_run_ts is not None
        waits.append(head.next_scheduled_run_ts - site.clock.now)
    assert (waits[0], waits[-1]) == (5 * SECOND, 5 * MINUTE)
    assert waits == sorted(waits)
    assert head.result_extended == errors
    assert head.error_code == "CHILDREN_PENDING"


def test_a_recurring_task_cannot_be_a_child(site: Site) -> None:
    """Its parent would wait for ever."""
    parent = site.client().submit(family(site), Family()).task_id
    with pytest.raises(DelegationError, check=coded("BAD_SCHEDULE"), match="never ends"):
        site.client().submit(replace(CHILD, every=MINUTE), ONE, parent=Parent(parent, 1))
    assert site.service().reads.children(parent) == ()
