"""The API on AWS honours keys as the properties of its function say; AWS is moto."""

import io
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from aws_lambda_powertools import Logger

from delegation.edge.api.app import create_app
from delegation.metrics import MetricLines
from delegation.tasks.stores.base import Advance, Create
from delegation.wiring.api import api_dependencies
from delegation.wiring.tasks import task_store
from tests.contract.task_tables import create_record_table, create_task_table, moto
from tests.kit.tasks.builders import acquired, failed, submitted
from tests.unit.edge.gateway import Context, request

Send = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The task's id; its table has one FAILURE."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_REALM", "POLARIS")
    monkeypatch.setenv("DELEGATION_PLAN_BUCKET", "plans")
    with moto() as client:
        monkeypatch.setenv("DELEGATION_TASKS_TABLE", create_task_table(client))
        monkeypatch.setenv("DELEGATION_IDEMPOTENCY_TABLE", create_record_table(client, f"records-{uuid.uuid4()}"))
        queue = boto3.client("sqs").create_queue(QueueName="dispatch")["QueueUrl"]
        monkeypatch.setenv("DELEGATION_QUEUE_URL", queue)
        store = task_store()
        task = store.apply(Create(submitted()))
        held = store.apply(Advance(task, acquired(task)))
        yield store.apply(Advance(held, failed(held))).task_id


def api() -> Send:
    logger = Logger(service=f"edge-{uuid.uuid4()}", stream=io.StringIO())
    handle = create_app(api_dependencies(), logger=logger, metrics=MetricLines("Delegation", "keys"))
    return lambda event: handle(event, Context())


def retried(task_id: str) -> dict[str, Any]:
    return request("POST", f"/v1/tasks/{task_id}/retry", None, headers={"Idempotency-Key": "k"})


def test_a_key_is_kept_for_the_lifetime_that_is_set(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_PROPERTIES", '{"polaris.idempotency.lifetime": "PT2H"}')
    send = api()
    assert json.loads(send(request("GET", "/v1/config", None))["body"])["idempotency-key-lifetime"] == "PT120M"
    first, again = send(retried(aws)), send(retried(aws))
    assert (first["statusCode"], again["statusCode"], again["body"]) == (200, 200, first["body"])
    assert [task.status.value for task in task_store().history(aws)].count("SUBMITTED") == 2


def test_keys_that_are_switched_off_leave_no_record(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_PROPERTIES", '{"polaris.idempotency.enabled": "false"}')
    send = api()
    config = json.loads(send(request("GET", "/v1/config", None))["body"])
    assert config["properties"] == {"idempotency-key-supported": "false"}
    assert [send(retried(aws))["statusCode"] for _ in range(2)] == [200, 409]
