"""EMR Serverless behind the seam, over a client that answers from a script."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.driving.jobs import EmrServerless, JobRefused


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
