import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from delegation.cli.connection import Connection
from delegation.cli.main import build
from delegation.polaris.client import PolarisClient
from delegation.tasks.pauses import MemoryPauseStore
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.unit.client.service import Service, Tokens
from tests.unit.polaris.scripted import Server, raw_json, table_answer

OPERATOR = "arn:aws:sts::123456789012:assumed-role/Operator/alice"
IN_CATALOG = "/api/catalog/v1/lake/namespaces/sales%1Feu/tables/orders"


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


def lines(text: str) -> Sequence[dict]:
    return [json.loads(line) for line in text.splitlines()]
