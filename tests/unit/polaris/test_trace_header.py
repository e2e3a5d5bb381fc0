"""The X-Ray header of an invocation goes to Polaris by our transport, to queue, execution and job by botocore."""

from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from delegation.orchestration.dispatch import Dispatcher, SqsDispatchQueue
from delegation.orchestration.job_runs import EmrServerless, JobConfiguration
from tests.unit.polaris.scripted import Server, raw_json

TRACE = "Root=1-67f5d1c2-4f1e2d3c4b5a69788796a5b4;Parent=53995c3f42cd8ad8;Sampled=1"
ANSWERS = {"StartExecution": {"executionArn": "arn", "startDate": "2026-11-22"}, "StartJobRun": {"jobRunId": "1"}}


@pytest.fixture
def invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Lambda sets for an invocation (AWS Lambda developer guide, "Defined runtime environment variables")."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "api")
    monkeypatch.setenv("_X_AMZN_TRACE_ID", TRACE)


def send(server: Server) -> None:
    server.answer("GET", "/v1/config", raw_json("{}"))
    server.transport.send("GET", "http://polaris.test/v1/config", idempotent=True, headers={"Accept": "a/b"})


@pytest.mark.usefixtures("invocation")
def test_a_request_to_polaris_has_the_header(server: Server) -> None:
    send(server)
    [request] = server.requests
    assert (request.headers["X-Amzn-Trace-Id"], request.headers["Accept"]) == (TRACE, "a/b")


def test_outside_of_lambda_there_is_none(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_X_AMZN_TRACE_ID", raising=False)
    send(server)
    assert "X-Amzn-Trace-Id" not in server.requests[0].headers


def sent_by(service: str) -> tuple[Any, list[str]]:
    """Return a client whose requests are answered before they are sent, and the trace headers of these."""
    client = boto3.client(service, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    found: list[str] = []

    def answer(model: Any, params: dict[str, Any], **_rest: object) -> tuple[Any, dict[str, Any]]:
        found.append(params["headers"].get("X-Amzn-Trace-Id", ""))
        return SimpleNamespace(status_code=200), ANSWERS.get(model.name, {})

    client.meta.events.register_last("before-call", answer)
    return client, found


@pytest.mark.usefixtures("invocation")
def test_queue_execution_and_job_get_it() -> None:
    sqs, to_queue = sent_by("sqs")
    SqsDispatchQueue(sqs, "https://sqs.us-east-1.amazonaws.com/123456789012/queue").send("task", 1)
    states, to_states = sent_by("stepfunctions")
    machine = "arn:aws:states:us-east-1:123456789012:stateMachine:purge"
    Dispatcher(states, machine).start_execution("task", 1)
    emr, to_emr = sent_by("emr-serverless")
    configuration = JobConfiguration("app", "arn:aws:iam::123456789012:role/job", "s3://code/job.py", "--conf a=b")
    EmrServerless(emr, "app", configuration).start("task-1", [])
    assert (to_queue, to_states, to_emr) == ([TRACE], [TRACE], [TRACE])
