"""Work stops at its first checkpoint after the task's deadline, unless it has begun to change what it works on."""

from contextlib import nullcontext
from datetime import timedelta

import pytest

from delegation.tasks.errors import DeadlineExceeded
from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from tests.kit.tasks.builders import HOUR, MINUTE, submitted
from tests.kit.tasks.sites import ONE, Site, Sum, Total, identity


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
    site.clock.advance(HOUR)
    site.client().submit(behavior, ONE)
    assert site.head(task_id).deadline_ts == site.clock() + 10 * MINUTE


@pytest.mark.parametrize("effects", [False, True])
def test_only_work_that_has_begun_to_delete_continues_after_the_deadline(site: Site, effects: bool) -> None:
    task_id = site.store.apply(Create(submitted(deadline_ts=site.clock() + MINUTE))).task_id
    service = site.service()
    service.leases.acquire(task_id, "w", lambda now: Lease.lasting(HOUR, now))
    held = service.leases.start(task_id, 1, effects=effects)
    run = AttemptContext(service, held, hand_over_at=None, monotonic=site.seconds)
    site.clock.advance(2 * MINUTE)
    with nullcontext() if effects else pytest.raises(DeadlineExceeded, match="deadline"):
        run.checkpoint()
