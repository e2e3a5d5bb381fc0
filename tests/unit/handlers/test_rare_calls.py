"""Calls of handlers that a local stack seldom shows: former, lost and refused job runs, and old items.

They are in the recording with which the roles' permissions are compared (tests/infra/security).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from delegation.orchestration.failures import execution_name
from delegation.orchestration.steps import MAX_TURNS, SPARK
from delegation.tasks.life.model import Status, Task
from delegation.wiring import clients
from tests.kit.tasks.builders import HOUR
from tests.unit.handlers import test_handlers as handlers
from tests.unit.handlers.test_handlers import TASK_ID, Deployed, held, invoke, tasks_of

deployed = handlers.deployed
"""The fixture: the service's resources in moto."""


@dataclass
class JobRuns:
    """Answers each call of an EMR Serverless client before it is sent, at botocore's event `before-call`."""

    states: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()

    def client(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Return what makes clients, of which those of EMR Serverless are answered here."""

        def made(service: str, **config: Any) -> Any:
            client = make(service, **config)
            if service == "emr-serverless":
                client.meta.events.register("before-call.emr-serverless", self.answer)
            return client

        return made

    def answer(self, model: Any, params: dict[str, Any], **_rest: object) -> tuple[Any, dict[str, Any]]:
        """Return the HTTP response and the parsed answer of a call."""
        if model.name in self.refused:
            return SimpleNamespace(status_code=400), {"Error": {"Code": "ValidationException", "Message": "refused"}}
        run_id = params["url_path"].rpartition("/")[2]
        match model.name:
            case "ListJobRuns":
                runs = [{"id": each, "name": self.names[each], "state": state} for each, state in self.states.items()]
                return _ok({"jobRuns": runs})
            case "GetJobRun":
                return _ok({"jobRun": {"jobRunId": run_id, "name": self.names[run_id], "state": self.states[run_id]}})
            case "CancelJobRun":
                self.states[run_id] = "CANCELLING"
                return _ok({"jobRunId": run_id})
            case "GetApplication":
                return _ok({"application": {"state": "STARTED"}})
            case _:
                self.states["run-2"], self.names["run-2"] = "SUBMITTED", f"{TASK_ID}-2"
                return _ok({"jobRunId": "run-2"})


def _ok(answer: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return SimpleNamespace(status_code=200), answer


@pytest.fixture
def runs(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> JobRuns:
    """One run of the first attempt, which waits to start."""
    found = JobRuns({"run-1": "PENDING"}, {"run-1": f"{TASK_ID}-1"})
    monkeypatch.setattr(clients.boto3, "client", found.client(handlers._client))
    return found


def on_spark(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, lease: timedelta = HOUR) -> Task:
    """Return a task whose attempt is held, and has the run."""
    tasks = held(deployed, monkeypatch, lease)
    return tasks.writes.change(TASK_ID, lambda task, _now: task.evolve(engine=SPARK, job_run_id="run-1"))


def test_the_sweeper_ends_the_job_of_a_lost_attempt(deployed, runs, monkeypatch):
    on_spark(deployed, monkeypatch, timedelta(microseconds=1))
    assert invoke("sweeper", deployed, monkeypatch) == {"looked": 1, "failed": 0}
    assert runs.states == {"run-1": "CANCELLING"}


def test_start_job_ends_the_job_of_a_former_attempt_first(deployed, runs, monkeypatch):
    held(deployed, monkeypatch)
    runs.names["run-1"] = f"{TASK_ID}-0"
    assert invoke("start_job", deployed, monkeypatch)["next"] == "start-again"
    assert runs.states == {"run-1": "CANCELLING"}


def test_start_job_asks_about_the_application_that_refuses(deployed, runs, monkeypatch):
    tasks = held(deployed, monkeypatch)
    runs.states.clear()
    runs.refused = frozenset({"StartJobRun"})
    assert invoke("start_job", deployed, monkeypatch)["next"] == "complete"
    assert tasks.reads.get(TASK_ID).error_code == "JOB_REFUSED"


def test_heartbeat_cancels_the_waiting_job_of_a_cancelled_task(deployed, runs, monkeypatch):
    on_spark(deployed, monkeypatch)
    tasks_of(deployed, monkeypatch).writes.change(TASK_ID, lambda task, _now: task.evolve(cancel_requested=True))
    assert invoke("heartbeat", deployed, monkeypatch)["next"] == "heartbeat"
    assert runs.states == {"run-1": "CANCELLING"}


def test_heartbeat_hands_a_long_job_to_the_next_execution(deployed, runs, monkeypatch):
    on_spark(deployed, monkeypatch)
    assert invoke("heartbeat", deployed, monkeypatch, turn=MAX_TURNS)["next"] == "continue"
    assert tasks_of(deployed, monkeypatch).reads.get(TASK_ID).lease.owner == execution_name(TASK_ID, 2)


def test_complete_cancels_a_job_that_still_runs_without_an_outcome(deployed, runs, monkeypatch):
    """Heartbeat found it ended or gone, and it is there again: it would cost on, and its writes would be refused."""
    on_spark(deployed, monkeypatch)
    assert invoke("complete", deployed, monkeypatch)["next"] == "wait"
    assert runs.states == {"run-1": "CANCELLING"}
    assert tasks_of(deployed, monkeypatch).reads.get(TASK_ID).error_code == "JOB_FAILED"


def test_make_due_ends_the_job_first(deployed: Deployed, runs: JobRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    on_spark(deployed, monkeypatch)
    assert invoke("make_due", deployed, monkeypatch)["next"] == "due"
    assert runs.states == {"run-1": "CANCELLING"}
    assert tasks_of(deployed, monkeypatch).reads.get(TASK_ID).status is Status.RETRY_SCHEDULED
