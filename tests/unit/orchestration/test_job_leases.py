"""How long a job keeps its lease, and when it counts as hung."""

from dataclasses import replace

import pytest

from delegation.orchestration.job_runs import JobRefused, JobRun
from delegation.tasks.life.model import Status
from tests.kit.tasks.builders import HOUR, MINUTE, SECOND
from tests.kit.tasks.driven import Driven
from tests.services import change_service


@pytest.mark.parametrize("state", ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED"])
def test_a_job_that_waits_keeps_its_lease(driven: Driven, state: str) -> None:
    driven.acquire()
    driven.start()
    driven.jobs.become(f"{driven.task_id}-1", state)
    for _ in range(3):
        driven.clock.advance(50 * MINUTE)
        assert driven.beat()["next"] == "heartbeat"
    assert driven.task.lease.lost_not_before == driven.clock() + HOUR


def test_a_lease_that_lasts_beyond_the_next_heartbeat_is_not_written(driven: Driven) -> None:
    """It is renewed after a quarter of the lease, as a worker does, so that later renewals may fail."""
    driven.acquire()
    driven.start()
    job = f"{driven.task_id}-1"
    for state in ("PENDING", "RUNNING"):
        driven.jobs.become(job, state)
        renewed, revision = driven.clock(), driven.task.revision
        while driven.task.revision == revision:
            assert driven.task.lease.lost_not_before == renewed + HOUR
            driven.clock.advance(MINUTE)
            if state == "RUNNING":
                driven.jobs.runs[job] = replace(driven.jobs.runs[job], started_at=driven.clock())
            assert driven.beat()["next"] == "heartbeat"
        assert 13 * MINUTE <= driven.clock() - renewed <= 15 * MINUTE
        assert driven.task.lease.lost_not_before == driven.clock() + HOUR


@pytest.mark.parametrize("seconds", [15, 30, 60, 150])
def test_a_short_lease_is_renewed_before_a_sweeper_can_end_it(driven: Driven, seconds: int) -> None:
    lease = replace(driven.tasks.policies.lease, lost_timeout=seconds * SECOND)
    change_service(driven.tasks, policies=replace(driven.tasks.policies, lease=lease))
    driven.acquire()
    driven.start()
    driven.jobs.become(f"{driven.task_id}-1", "RUNNING")
    while driven.clock() < driven.task.created_ts + 15 * MINUTE:
        driven.progress()
        answer = driven.beat()
        for _ in range(answer["wait_seconds"]):
            driven.clock.advance(SECOND)
            driven.tasks.dispatching.reconcile(driven.task_id)
        assert driven.task.is_held


def test_a_job_has_a_whole_lease_from_its_start_to_show_progress(driven: Driven) -> None:
    """Whatever the time that it waited, and whenever the lease was last renewed meanwhile."""
    driven.acquire()
    driven.start()
    driven.jobs.become(f"{driven.task_id}-1", "PENDING")
    driven.clock.advance(10 * MINUTE)
    driven.beat()
    started = driven.clock()
    driven.jobs.become(f"{driven.task_id}-1", "RUNNING")
    driven.jobs.runs[f"{driven.task_id}-1"] = replace(driven.jobs.runs[f"{driven.task_id}-1"], started_at=started)
    for _ in range(59):
        driven.clock.advance(MINUTE)
        assert driven.beat()["next"] == "heartbeat"
    assert driven.task.lease.lost_not_before == started + HOUR
    driven.clock.advance(MINUTE)
    assert driven.beat()["next"] == "complete"
    assert driven.task.error_code == "LOST"


def test_a_hung_job_that_cannot_be_cancelled_is_still_lost(driven: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_run_id: str) -> None:
        raise JobRefused("EMR Serverless answered AccessDeniedException to cancel_job_run")

    monkeypatch.setattr(driven.jobs, "cancel", refuse)
    driven.acquire()
    driven.start()
    driven.jobs.become(f"{driven.task_id}-1", "RUNNING")
    driven.clock.advance(2 * HOUR)
    assert driven.beat()["next"] == "complete"
    assert (driven.task.status, driven.task.error_code) == (Status.RETRY_SCHEDULED, "LOST")


@pytest.mark.parametrize("state", ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING"])
def test_a_cancelled_task_does_not_wait_for_its_job_to_start_and_a_running_job_ends_it(driven, state) -> None:
    """Without capacity it may wait for hours, with its lease renewed; a running job reports what it deleted."""
    driven.acquire()
    driven.start()
    job = f"{driven.task_id}-1"
    driven.jobs.become(job, state)
    driven.tasks.operators.cancel(driven.task_id)
    assert driven.beat()["next"] == "heartbeat"
    assert driven.jobs.cancelled == ([] if state == "RUNNING" else [job])
    assert driven.task.is_held
    driven.jobs.become(job, "CANCELLED")
    assert driven.beat()["next"] == "complete"
    assert driven.steps.complete(driven.step)["next"] == "failed"
    assert driven.task.error_code == "CANCELLED"


def test_a_start_time_in_the_future_counts_as_now(driven: Driven) -> None:
    driven.acquire()
    driven.start()
    ahead = driven.clock() + HOUR
    driven.jobs.runs[f"{driven.task_id}-1"] = JobRun("job", f"{driven.task_id}-1", "RUNNING", started_at=ahead)
    driven.clock.advance(30 * MINUTE)
    driven.beat()
    assert driven.task.lease.lost_not_before == driven.clock() + HOUR
