import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner, Result

from delegation.cli.connection import Connection
from delegation.cli.main import build
from delegation.polaris.client import PolarisClient
from delegation.tasks.pauses import MemoryPauseStore
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.aws import mock_aws
from tests.kit.dynamodb import MemoryHealthStore, MemoryReferenceStore
from tests.unit.client.service import TASK_ID, TASKS, Service, Tokens, json_answer
from tests.unit.polaris.scripted import Server, raw_json, table_answer

OPERATOR = "arn:aws:sts::123456789012:assumed-role/Operator/alice"
IN_CATALOG = "/api/catalog/v1/lake/namespaces/sales%1Feu/tables/orders"
TABLE = "lake.sales.eu.orders"
IDENTITY = {"catalog_name": "lake", "namespace_levels": ["sales", "eu"], "table_name": "orders"}
ACCEPTED = {"delegation_task_id": TASK_ID, "status": "QUEUED", "status_query_url": f"{TASKS}/{TASK_ID}"}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    """Remove the environment's settings and any stack, and make the terminal wide enough for any table."""
    for name in [name for name in os.environ if name.startswith("DELEGATION_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run the command without the groups of other packages."""

    def run(*words: str, given: str | None = None) -> Result:
        result = CliRunner().invoke(build(()), words, input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def terminal(monkeypatch) -> None:
    """Let the output be a terminal without colors, whose lines are $COLUMNS wide."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("LINES", "50")


@pytest.fixture
def stack(tmp_path) -> Path:
    """A stack.json with unreachable addresses."""
    path = tmp_path / "stack.json"
    path.write_text(
        json.dumps(
            {
                "edge_url": "https://edge.test/delegation-service/api",
                "ca_cert": "/ca.pem",
                "client_cert": "/client.pem",
                "client_key": "/client.key",
                "token_url": "http://127.0.0.1:1/oauth/tokens",
                "client_id": "polaris",
                "client_secret": "hunter2",
                "scope": "execute_tasks",
                "realm": "POLARIS",
                "aws_endpoint": "http://127.0.0.1:1",
                "dynamodb_endpoint": "http://127.0.0.1:1",
                "s3_endpoint": "http://127.0.0.1:1",
                "polaris_url": "https://polaris.test/api/catalog",
                "polaris_credential": "owner:hunter3",
                "polaris_scope": "PRINCIPAL_ROLE:ALL",
                "warehouse": "lake",
            }
        ),
        encoding="utf-8",
    )
    return path


@pytest.fixture
def service(monkeypatch) -> Service:
    """The service that every command calls."""
    service = Service()
    monkeypatch.setattr(Connection, "client", lambda _self: service.client)
    monkeypatch.setattr(Connection, "operator_client", lambda _self: service.client)
    return service


@pytest.fixture
def accepting(service) -> Service:
    """The service, which accepts every task."""
    service.answer("POST", TASKS, json_answer(202, ACCEPTED))
    return service


@pytest.fixture
def polaris(monkeypatch) -> Server:
    """The catalog from which `submit --sync` loads the table."""
    server = Server()
    server.answer("GET", "/api/catalog/v1/config", raw_json('{"overrides": {"prefix": "lake"}}'))
    server.answer("GET", IN_CATALOG, table_answer())
    catalog = PolarisClient("https://polaris.test/api/catalog", Tokens(), transport=server.transport)
    monkeypatch.setattr(Connection, "catalog", lambda _self: catalog)
    return server


@pytest.fixture
def store(monkeypatch) -> MemoryTaskStore:
    """The task table."""
    store = MemoryTaskStore()
    monkeypatch.setattr(Connection, "task_store", lambda _self, _table: store)
    pauses = MemoryPauseStore()
    monkeypatch.setattr(Connection, "pause_store", lambda _self, _table: pauses)
    monkeypatch.setattr(Connection, "operator", lambda _self, _table: OPERATOR)
    return store


@pytest.fixture
def index(monkeypatch) -> MemoryReferenceStore:
    """The reference index."""
    index = MemoryReferenceStore()
    monkeypatch.setattr(Connection, "reference_store", lambda _self, _table: index)
    return index


@pytest.fixture
def healths(monkeypatch, index) -> MemoryHealthStore:
    """The healths of tables, beside the reference index."""
    store = MemoryHealthStore()
    monkeypatch.setattr(Connection, "health_store", lambda _self, _table: store)
    return store


@pytest.fixture
def s3(monkeypatch) -> Iterator[Any]:
    """A client of an emulated S3 without buckets, and credentials for other clients of it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield boto3.client("s3")


def sent(service: Service) -> dict[str, Any]:
    """Return the body of the only task that was submitted."""
    [request] = service.asked("POST", TASKS)
    return json.loads(request.content)


def lines(text: str) -> Sequence[dict]:
    return [json.loads(line) for line in text.splitlines()]
