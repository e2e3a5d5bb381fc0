"""EMR Serverless behind the seam, over a client that answers from a script."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.driving.jobs import EmrServerless, JobConfiguration, JobRefused, JobServiceUnavailable


class Client:
    """A boto3 client for one run that goes through `states`, one for each look; cancelling is refused if so told."""

    def __init__(self, *states: str, refuses: bool = False) -> None:
        self._states = list(states)
        self._refuses = refuses
        self.cancelled = 0

    def get_job_run(self, **arguments: Any) -> dict[str, Any]:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return {"jobRun": {"jobRunId": arguments["jobRunId"], "name": "task-1", "state": state}}

    def cancel_job_run(self, **_arguments: Any) -> dict[str, Any]:
        self.cancelled += 1
        if self._refuses:
            raise ClientError({"Error": {"Code": "ValidationException", "Message": "no"}}, "CancelJobRun")
        return {}


def cancel(client: Client) -> None:
    EmrServerless(client, "app").cancel("run")


@pytest.mark.parametrize("state", ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING"])
def test_a_live_run_is_cancelled(state: str) -> None:
    client = Client(state)
    cancel(client)
    assert client.cancelled == 1


@pytest.mark.parametrize("state", ["CANCELLING", "SUCCESS", "FAILED", "CANCELLED"])
def test_a_run_that_is_ending_or_has_ended_is_left(state: str) -> None:
    """Start looks every five seconds until a former attempt's run has ended: only its first look has to cancel it."""
    client = Client(state, refuses=True)
    cancel(client)
    assert client.cancelled == 0


@pytest.mark.parametrize("then", ["CANCELLING", "CANCELLED", "SUCCESS"])
def test_a_refusal_because_somebody_else_was_faster_is_none(then: str) -> None:
    client = Client("RUNNING", then, refuses=True)
    cancel(client)
    assert client.cancelled == 1


def test_a_refusal_of_a_run_that_goes_on_is_told() -> None:
    with pytest.raises(JobRefused):
        cancel(Client("RUNNING", refuses=True))


class Application:
    """A boto3 client whose application refuses to start a job run while it is in `state`."""

    def __init__(self, state: str, code: str) -> None:
        self._state = state
        self._code = code

    def start_job_run(self, **_arguments: Any) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": self._code, "Message": "no"}}, "StartJobRun")

    def get_application(self, **_arguments: Any) -> dict[str, Any]:
        return {"application": {"applicationId": "app", "state": self._state}}


def start(state: str, code: str = "ValidationException") -> None:
    configuration = JobConfiguration("app", "arn:role", "s3://code/purge_table.py", "")
    EmrServerless(Application(state, code), "app", configuration).start("task-1", [])


@pytest.mark.parametrize("code", ["ValidationException", "ConflictException"])
@pytest.mark.parametrize("state", ["CREATING", "STOPPING"])
def test_an_application_on_its_way_to_another_state_is_asked_again(state: str, code: str) -> None:
    """It stops by itself after minutes without a job: the next purge may come just then."""
    with pytest.raises(JobServiceUnavailable):
        start(state, code)


@pytest.mark.parametrize("state", ["STARTED", "STOPPED", "TERMINATED"])
def test_any_other_refusal_is_for_a_person(state: str) -> None:
    with pytest.raises(JobRefused):
        start(state)


def test_who_may_not_ask_for_the_state_is_told_of_the_refusal_itself() -> None:
    class Blind(Application):
        def get_application(self, **_arguments: Any) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetApplication")

    configuration = JobConfiguration("app", "arn:role", "s3://code/purge_table.py", "")
    with pytest.raises(JobRefused, match="start_job_run"):
        EmrServerless(Blind("STOPPING", "ValidationException"), "app", configuration).start("task-1", [])
