"""A job run whose state cannot be read, or which the job service does not know, is not taken for one that ended."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.orchestration.job_runs import EmrServerless, JobRefused, JobRun, JobServiceUnavailable
from delegation.tasks.life.model import Status
from tests.kit.tasks.builders import MINUTE
from tests.kit.tasks.driven import Driven

DENIED = JobRefused("EMR Serverless answered AccessDeniedException to get_job_run")
THROTTLED = JobServiceUnavailable("EMR Serverless answered ThrottlingException to get_job_run")


@pytest.fixture
def driven() -> Driven:
    driven = Driven()
    driven.acquire()
    driven.start()
    driven.jobs.become(driven.step.job, "RUNNING")
    return driven


def raising(error: Exception) -> Callable[[str], JobRun | None]:
    def get(_run_id: str) -> JobRun | None:
        raise error

    return get


def answering(code: str) -> EmrServerless:
    class Client:
        def get_job_run(self, **_arguments: Any) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetJobRun")

    return EmrServerless(Client(), "app")


@pytest.mark.parametrize("code", ["AccessDeniedException", "ValidationException", "ConflictException"])
def test_a_refused_read_does_not_mean_that_there_is_no_run(code: str) -> None:
    with pytest.raises(JobRefused, match=code):
        answering(code).get("run")


def test_only_an_unknown_run_does_not_exist() -> None:
    assert answering("ResourceNotFoundException").get("run") is None


@pytest.mark.parametrize("error", [DENIED, THROTTLED], ids=["denied", "throttled"])
def test_a_job_run_that_cannot_be_read_is_kept_while_its_driver_makes_progress(driven, error):
    driven.jobs.get = raising(error)  # type: ignore[method-assign]
    for _ in range(8):
        driven.clock.advance(30 * MINUTE)
        driven.progress()
        assert driven.beat()["next"] == "heartbeat"
    assert (driven.task.is_held, driven.task.attempt_count) == (True, 1)
    assert driven.jobs.cancelled == []


def test_a_job_run_that_cannot_be_read_and_shows_no_progress_is_lost_with_its_lease(driven: Driven) -> None:
    driven.jobs.get = raising(DENIED)  # type: ignore[method-assign]
    driven.clock.advance(59 * MINUTE)
    assert driven.beat()["next"] == "heartbeat"
    driven.clock.advance(2 * MINUTE)
    assert driven.beat()["next"] == "complete"
    assert driven.task.error_code == "LOST"
    assert driven.jobs.cancelled == [f"{driven.task_id}-1"]


def test_an_unknown_job_run_is_gone_only_after_a_grace(driven: Driven) -> None:
    """EMR may not know a run yet that it has just started."""
    driven.jobs.runs.clear()
    driven.clock.advance(4 * MINUTE)
    assert driven.beat()["next"] == "heartbeat"
    driven.progress()
    driven.clock.advance(4 * MINUTE)
    assert driven.beat()["next"] == "heartbeat"
    driven.clock.advance(2 * MINUTE)
    assert driven.beat()["next"] == "complete"
    driven.steps.complete(driven.step)
    assert (driven.task.status, driven.task.error_code) == (Status.RETRY_SCHEDULED, "ATTEMPT_ENDED")


def test_a_job_run_that_cannot_be_read_is_cancelled_all_the_same() -> None:
    cancelled: list[str] = []

    class Client:
        def get_job_run(self, **_arguments: Any) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetJobRun")

        def cancel_job_run(self, **arguments: Any) -> dict[str, Any]:
            cancelled.append(arguments["jobRunId"])
            return {}

    EmrServerless(Client(), "app").cancel("run")
    assert cancelled == ["run"]


def test_an_attempt_ends_only_after_its_job_run_was_cancelled(driven: Driven) -> None:
    """The run was taken for gone, and is known again when the attempt is about to end."""
    driven.steps.complete(driven.step)
    assert driven.task.status is Status.RETRY_SCHEDULED
    assert driven.jobs.cancelled == [f"{driven.task_id}-1"]
