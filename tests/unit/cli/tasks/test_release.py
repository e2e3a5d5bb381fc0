"""`delegation tasks release`: only a dead holder loses its lease, and a living one is fenced off."""

import pytest

from delegation.cli.errors import CommandError
from delegation.cli.tasks.direct import LeaseRelease
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Lease, Policies
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wiring.types import default_properties
from tests.kit.errors import coded
from tests.kit.tasks.builders import HOUR, Clock, submitted
from tests.kit.tasks.services import task_service

POLICIES = Policies.from_properties(default_properties())


class HeldTask:
    def __init__(self, owner="worker:here:77:1", **fields):
        self.clock, self.store = Clock(), MemoryTaskStore()
        self.tasks = task_service(self.store, POLICIES, clock=self.clock)
        self.task_id = self.store.apply(Create(submitted())).task_id
        self.held = self.tasks.leases.acquire(self.task_id, owner, lambda now: Lease.lasting(HOUR, now))
        if fields:
            self.held = self.tasks.leases.heartbeat(self.task_id, 1, lambda now: Lease.lasting(HOUR, now), **fields)
        self.running = set()
        self.releases = LeaseRelease(self.store, POLICIES, self.clock, "here", lambda pid: pid in self.running)

    def release(self, *, force=False):
        return self.releases.release(self.task_id, by="arn:alice", force=force)


def test_the_lease_of_a_worker_whose_process_is_gone_is_released():
    site = HeldTask(engine="inline")
    after = site.release()
    assert (after.status, after.error_code) == ("RETRY_SCHEDULED", "LOST")
    assert after.result_summary == "the lease of worker:here:77:1 was released by arn:alice"
    assert site.tasks.reads.get(site.task_id).next_scheduled_run_ts == site.clock()


@pytest.mark.parametrize(
    ("owner", "fields"),
    [
        ("worker:there:77:1", {}),
        ("worker:here:78:1", {}),
        ("api:1", {}),
        ("worker:here:77:1", {"engine": "spark", "job_run_id": "job-1"}),
        ("worker:here:77:1", {"engine": "spark"}),
    ],
)
def test_a_holder_that_may_live_keeps_its_lease_without_force(owner, fields):
    site = HeldTask(owner, **fields)
    site.running = {78}
    with pytest.raises(
        CommandError, match=f"{owner}.* holds task .* until 2026-11-21 13:00:00 UTC", check=coded("HOLDER_MAY_LIVE")
    ):
        site.release()
    assert site.tasks.reads.get(site.task_id) == site.held
    assert "(--force)" in site.release(force=True).result_summary
    with pytest.raises(LeaseLost):
        site.tasks.holding(site.held).leases.start(site.task_id, 1)


def test_a_task_without_holder_has_no_lease():
    site = HeldTask()
    site.release(force=True)
    with pytest.raises(CommandError, match="has no holder", check=coded("TASK_STAYS")):
        site.release(force=True)
    with pytest.raises(CommandError, check=coded("TASK_NOT_FOUND")):
        site.releases.release("00000000-0000-4000-8000-000000000000", by="a", force=False)
    assert site.tasks.reads.get(site.task_id).status is Status.RETRY_SCHEDULED


def test_the_command_names_the_operator(run, store, stack):
    task_id = store.apply(Create(submitted())).task_id
    done = run("tasks", "release", task_id, "--stack", str(stack))
    assert done.exit_code == 1
    assert "has no holder" in done.stderr
