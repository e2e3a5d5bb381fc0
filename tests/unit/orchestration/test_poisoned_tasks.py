"""A stored task whose next run this process cannot compute stops neither the workers nor the sweeper."""

from typing import Any

import pytest

from delegation.orchestration.sweep import sweep
from delegation.tasks.authoring import behavior
from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores.base import Revise
from delegation.tasks.testing import TaskHarness
from tests.kit.tasks.builders import HOUR, MINUTE
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service

POISON: dict[str, dict[str, Any]] = {
    "an interval beyond all years": {"recurrence_seconds": 3_000_000 * 86_400},
    "an interval beyond all clocks": {"recurrence_seconds": 10**15},
    "a zone that is not here": {"recurrence_seconds": None, "recurrence_cron": "CRON_TZ=Atlantis/City 0 3 * * *"},
}


@behavior("acme.often", every=HOUR)
def often(name: str) -> None: ...


@behavior("acme.once")
def once(name: str) -> None: ...


@pytest.fixture(params=POISON)
def poisoned(request: Any) -> tuple[TaskHarness, list[str]]:
    """Recurring tasks that a former release or a newer tz database accepted."""
    harness = TaskHarness(often, once)
    bad = [harness.submit(often.of(f"bad {number}")).task_id for number in range(3)]
    for task_id in bad:
        head = harness.store.get(task_id)
        harness.store.apply(Revise(head, head.evolve(revision=head.revision + 1, nonce="n", **POISON[request.param])))
    return harness, bad


def test_a_worker_runs_the_others_and_the_poisoned_end_with_the_reason(poisoned) -> None:
    harness, bad = poisoned
    good = [harness.submit(once.of(f"good {number}")) for number in range(3)]
    for _ in range(30):
        harness.run_until_idle()
        harness.advance(HOUR)
    assert [one.get().status for one in good] == [Status.SUCCESS] * 3
    ended = [harness.store.get(task_id) for task_id in bad]
    assert [(one.status, one.error_code) for one in ended] == [(Status.FAILURE, "BAD_SCHEDULE")] * 3


def test_a_sweep_reaches_the_others_and_ends_the_poisoned_whose_last_attempts_are_lost(poisoned) -> None:
    harness, bad = poisoned
    policies = Policies(RetryPolicy(max_attempts=1), {})
    tasks = task_service(harness.store, policies, Queue(), clock=lambda: harness.now)
    good = [harness.submit(once.of(f"good {number}")).task_id for number in range(3)]
    for task_id in bad:
        tasks.leases.acquire(task_id, "gone", lambda now: Lease.lasting(MINUTE, now))
    harness.advance(HOUR)
    known = {"acme.often", "acme.once"}
    swept = list(sweep(tasks, known, deadline=harness.now + HOUR, clock=lambda: harness.now))
    assert {one.after.task_id for one in swept if one.after is not None} == {*good, *bad}
    assert {harness.store.get(task_id).error_code for task_id in bad} == {"BAD_SCHEDULE"}


def test_a_poisoned_task_that_waits_gets_a_schedule_that_can_be_by_submitting_it_again(poisoned) -> None:
    harness, bad = poisoned
    harness.submit(often.of("bad 0"), every=2 * HOUR)
    assert harness.store.get(bad[0]).recurrence_seconds == 7200
