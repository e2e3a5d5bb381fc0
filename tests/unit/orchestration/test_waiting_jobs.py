"""A job that waits for capacity: its task's deadline ends it, and a job that runs ends its task itself."""

from dataclasses import replace

import pytest

from delegation.orchestration.failures import execution_name
from tests.kit.tasks.builders import HOUR, MINUTE, NOW
from tests.kit.tasks.driven import Driven


@pytest.mark.parametrize("state", ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED"])
def test_a_task_past_its_deadline_does_not_wait_for_its_job_to_start(state: str) -> None:
    driven = Driven(deadline_ts=NOW + HOUR)
    driven.acquire()
    driven.start()
    job = f"{driven.task_id}-1"
    driven.jobs.become(job, state)
    driven.clock.advance(HOUR - MINUTE)
    driven.beat()
    assert driven.jobs.cancelled == []
    driven.clock.advance(MINUTE)
    driven.beat()
    assert driven.jobs.cancelled == [job]
    driven.jobs.become(job, "CANCELLED")
    assert driven.beat()["next"] == "complete"
    assert driven.steps.complete(driven.step)["next"] == "failed"
    assert driven.task.error_code == "DEADLINE_EXCEEDED"


def test_a_job_that_runs_is_not_ended_by_the_deadline() -> None:
    driven = Driven(deadline_ts=NOW + HOUR)
    driven.acquire()
    driven.start()
    driven.jobs.become(f"{driven.task_id}-1", "RUNNING")
    driven.clock.advance(HOUR + MINUTE)
    driven.progress()
    driven.beat()
    assert driven.jobs.cancelled == []


def test_a_former_execution_whose_state_failed_leaves_the_job_of_the_next_one() -> None:
    """The next execution continues the attempt, and its job run."""
    driven = Driven()
    driven.acquire()
    driven.start()
    job = f"{driven.task_id}-1"
    driven.jobs.become(job, "RUNNING")
    former = driven.step
    driven.tasks.leases.hand_to_next_execution(
        driven.task_id, 1, former.execution, lambda n: execution_name(driven.task_id, n)
    )
    driven.steps.make_due(replace(former, error="States.Timeout"))
    assert driven.jobs.cancelled == []
    assert driven.task.is_held
