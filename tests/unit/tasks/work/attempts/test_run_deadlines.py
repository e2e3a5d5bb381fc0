"""Work stops at its first checkpoint after the task's deadline, unless it has begun to change what it works on."""

from datetime import timedelta

import pytest

from delegation.tasks.errors import DeadlineExceeded
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from tests.kit.tasks.builders import HOUR, MINUTE, submitted
from tests.kit.tasks.sites import ONE, Site, Sum, Total, identity


@pytest.fixture
def site() -> Site:
    return Site()


def slow(site: Site) -> Behavior:
    def work(parameters: Sum, run: AttemptContext) -> Total:
        for _ in range(20):
            site.clock.advance(MINUTE)
            run.checkpoint()
        return Total(total=parameters.left)

    return Behavior("ADD", Sum, work, result=Total, identify=identity, deadline=timedelta(minutes=10))


def test_work_past_its_deadline_stops_at_its_next_checkpoint(site: Site) -> None:
    behavior = slow(site)
    task_id = site.client().submit(behavior, ONE).task_id
    started = site.clock()
    site.worker("w", behavior).run_once()
    head = site.head(task_id)
    assert (head.status, head.error_code) == (Status.FAILURE, "DEADLINE_EXCEEDED")
    assert site.clock() - started == 10 * MINUTE


def test_a_new_submission_has_a_new_deadline(site: Site) -> None:
    behavior = slow(site)
    task_id = site.client().submit(behavior, ONE).task_id
    site.worker("w", behavior).run_once()
    site.clock.advance(HOUR)
    site.client().submit(behavior, ONE)
    assert site.head(task_id).deadline_ts == site.clock() + 10 * MINUTE


def held(site: Site, *, effects: bool) -> Task:
    task_id = site.store.apply(Create(submitted(deadline_ts=site.clock() + MINUTE))).task_id
    service = site.service()
    service.leases.acquire(task_id, "w", lambda now: Lease.lasting(HOUR, now))
    return service.leases.start(task_id, 1, effects=effects)


def late(site: Site, *, effects: bool) -> AttemptContext:
    run = AttemptContext(site.service(), held(site, effects=effects), hand_over_at=None, monotonic=site.seconds)
    site.clock.advance(2 * MINUTE)
    return run


def test_work_without_effects_stops(site: Site) -> None:

    with pytest.raises(DeadlineExceeded, match="deadline"):
        late(site, effects=False).checkpoint()


def test_a_purge_after_its_first_delete_continues(site: Site) -> None:
    late(site, effects=True).checkpoint()
