"""EmrServerless over a client with scripted answers."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.orchestration.job_runs import EmrServerless, JobConfiguration, JobRefused, JobServiceUnavailable
from tests.kit.tasks.builders import MINUTE, NOW


class Client:
    """A boto3 client for one run, which has the next of `states` at each read; `refuses` refuses cancelling."""

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


STATES = {
    **dict.fromkeys(("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING"), 1),
    **dict.fromkeys(("CANCELLING", "SUCCESS", "FAILED", "CANCELLED"), 0),
}


@pytest.mark.parametrize(("state", "calls"), STATES.items())
def test_only_a_live_run_is_cancelled(state: str, calls: int) -> None:
    """StartJob polls every five seconds until a former attempt's run has ended, and cancels it at the first poll."""
    client = Client(state, refuses=not calls)
    cancel(client)
    assert client.cancelled == calls


@pytest.mark.parametrize("then", ["CANCELLING", "CANCELLED", "SUCCESS"])
def test_a_refusal_is_ignored_when_the_run_is_ending_by_then(then: str) -> None:
    client = Client("RUNNING", then, refuses=True)
    cancel(client)
    assert client.cancelled == 1


def test_a_refusal_for_a_run_that_continues_is_raised() -> None:
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
    configuration = JobConfiguration("app", "arn:role", "s3://code/run_task.py", "")
    EmrServerless(Application(state, code), "app", configuration).start("task-1", [])


@pytest.mark.parametrize("code", ["ValidationException", "ConflictException"])
@pytest.mark.parametrize("state", ["CREATING", "STOPPING"])
def test_a_start_is_repeated_while_the_application_changes_its_state(state: str, code: str) -> None:
    """It stops after some minutes without a job, and the next purge may come at that moment."""
    with pytest.raises(JobServiceUnavailable):
        start(state, code)


@pytest.mark.parametrize("state", ["STARTED", "STOPPED", "TERMINATED"])
def test_any_other_refusal_is_permanent(state: str) -> None:
    with pytest.raises(JobRefused):
        start(state)


def test_without_permission_to_read_the_state_the_refusal_is_raised() -> None:
    class WithoutPermission(Application):
        def get_application(self, **_arguments: Any) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetApplication")

    configuration = JobConfiguration("app", "arn:role", "s3://code/run_task.py", "")
    with pytest.raises(JobRefused, match="start_job_run"):
        EmrServerless(WithoutPermission("STOPPING", "ValidationException"), "app", configuration).start("task-1", [])


class Listing(Client):
    """A client that counts its lists of two active runs."""

    lists = 0

    def list_job_runs(self, **_arguments: Any) -> dict[str, Any]:
        self.lists += 1
        return {"jobRuns": [{"id": f"run-{n}", "name": f"task-{n}-1", "state": "RUNNING"} for n in (1, 2)]}


def test_active_runs_are_listed_once_a_minute() -> None:
    """A list that was read after the time asked about has every run that was started before it."""
    client, now = Listing("RUNNING"), NOW
    service = EmrServerless(client, "app", clock=lambda: now)
    for task in ("task-1-", "task-2-"):
        assert [run.name for run in service.active(task, as_of=NOW)] == [f"{task}1"]
    assert client.lists == 1
    assert [run.name for run in service.active("task-1-")] == ["task-1-1"]  # as of now: only a new list will do
    assert client.lists == 2
    now = NOW + MINUTE
    service.active("task-1-", as_of=NOW)
    assert client.lists == 3


@pytest.mark.parametrize("state", ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING", "CANCELLING"])
def test_a_run_is_active_until_it_has_ended(state: str) -> None:
    """A job that is being cancelled still deletes files, so the next attempt's job has to wait for it."""

    class Selecting:
        def list_job_runs(self, *, states: list[str], **_arguments: Any) -> dict[str, Any]:
            run = {"id": "run-1", "name": "task-1-1", "state": state}
            return {"jobRuns": [run] if state in states else []}

    assert [run.id for run in EmrServerless(Selecting(), "app").active("task-1-")] == ["run-1"]


class Applications:
    """A boto3 client of several applications with their runs; one that is absent answers as EMR does."""

    def __init__(self, **runs: list[str]) -> None:
        self._runs = runs
        self.cancelled: list[tuple[str, str]] = []
        self.started: list[str] = []

    def get_job_run(self, *, applicationId: str, jobRunId: str) -> dict[str, Any]:
        if jobRunId not in self._runs.get(applicationId, []):
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no"}}, "GetJobRun")
        return {"jobRun": {"jobRunId": jobRunId, "name": f"task-{jobRunId}", "state": "RUNNING"}}

    def list_job_runs(self, *, applicationId: str, states: list[str]) -> dict[str, Any]:
        if applicationId not in self._runs:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no"}}, "ListJobRuns")
        return {
            "jobRuns": [{"id": one, "name": f"task-{one}", "state": states[0]} for one in self._runs[applicationId]]
        }

    def cancel_job_run(self, *, applicationId: str, jobRunId: str) -> dict[str, Any]:
        self.cancelled.append((applicationId, jobRunId))
        return {}

    def start_job_run(self, *, applicationId: str, **_arguments: Any) -> dict[str, Any]:
        self.started.append(applicationId)
        return {"jobRunId": "new"}


def test_a_job_that_a_former_application_runs_is_watched_and_cancelled_there() -> None:
    """A deployment with other Spark settings makes an application beside the one whose job runs."""
    client = Applications(now=["young"], former=["old"])
    assert EmrServerless(client, "now").get("old") is None, "without its name the job would be taken for gone"
    jobs = EmrServerless(client, "now", JobConfiguration("now", "role", "entry", ""), former=["gone", "former"])
    found = jobs.get("old")
    assert not found.has_ended
    assert {run.id for run in jobs.active("task-")} == {"young", "old"}
    jobs.cancel("old")
    jobs.cancel("nowhere")
    assert client.cancelled == [("former", "old")]
    assert jobs.start("task-2", []) == "new"
    assert client.started == ["now"]


JARS = ("org.apache.iceberg:runtime:1.12.0", "s3://jars/bundle.jar", "org.apache.iceberg:bundle:1.12.0")


def test_a_run_that_needs_jars_loads_them_and_compiles_what_the_jvm_does() -> None:
    configuration = JobConfiguration("app", "arn:role", "s3://code/purge_table.py", "--conf a=b", jars=JARS)
    assert configuration.parameters(with_jars=False) == "--conf a=b"
    assert configuration.parameters(with_jars=True) == (
        "--conf a=b --conf spark.jars=s3://jars/bundle.jar "
        "--conf spark.jars.packages=org.apache.iceberg:runtime:1.12.0,org.apache.iceberg:bundle:1.12.0 "
        "--conf spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=4 "
        "--conf spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=4"
    )


def test_a_run_that_needs_jars_is_not_started_without_any() -> None:
    service = EmrServerless(Client("RUNNING"), "app", JobConfiguration("app", "arn:role", "s3://code/x.py", ""))
    with pytest.raises(JobRefused, match="delegation:emr-jars"):
        service.start("task-1", [], with_jars=True)
