"""The factory reads a host's properties, from a file and from the environment, and provides one executor."""

from pathlib import Path

import pytest

from delegation.client.errors import ClientMisconfigured
from delegation.client.executor import (
    ENDPOINT,
    TASK_TYPE,
    DelegatedTaskExecutor,
    LocalTaskExecutor,
    TaskExecutorFactory,
    connect_to,
    executor_properties,
)
from tests.unit.client.test_executor import TABLE, ScriptedServers
from tests.unit.client.test_settings import ENVIRONMENT

FILE = """
# Apache Polaris
quarkus.http.port: 8181
polaris.delegation-service.task-type=delegated
polaris.delegation-service.endpoint = http://delegation-service:8182
"""


def factory(world: ScriptedServers, **properties: str) -> tuple[TaskExecutorFactory, list[str]]:
    connected: list[str] = []

    def connect(endpoint: str):
        connected.append(endpoint)
        return world.service.client

    full = {f"polaris.delegation-service.{name.replace('_', '-')}": value for name, value in properties.items()}
    made = TaskExecutorFactory(full, connect=connect, catalog=world.catalog, realm="POLARIS", authorise=world.authorise)
    return made, connected


@pytest.fixture
def world() -> ScriptedServers:
    return ScriptedServers()


@pytest.mark.parametrize(
    ("endpoint", "base"),
    [
        ("http://delegation-service:8182", "http://delegation-service:8182/delegation-service/api"),
        ("https://delegation.example.com/", "https://delegation.example.com/delegation-service/api"),
        ("https://edge/prod/delegation-service/api", "https://edge/prod/delegation-service/api"),
    ],
)
def test_it_delegates_to_the_configured_endpoint(world, endpoint, base):
    made, connected = factory(world, task_type="delegated", endpoint=endpoint)
    made.executor().execute_purge_task(TABLE)
    assert connected == [base]
    assert world.asked == [TABLE]
    assert len(world.drops) == 1


def test_it_purges_in_this_process_without_connecting(world):
    made, connected = factory(world, task_type="local", endpoint="http://delegation-service:8182")
    executor = made.executor()
    assert isinstance(executor, LocalTaskExecutor)
    assert executor.authorise == world.authorise
    assert connected == []


@pytest.mark.parametrize("properties", [{}, {"task_type": "remote"}])
def test_another_task_type_is_refused(world, properties):
    made, _ = factory(world, **properties)
    with pytest.raises(ClientMisconfigured, match=f"{TASK_TYPE}.*`delegated` or `local`"):
        made.executor()


@pytest.mark.parametrize("endpoint", ["", "delegation-service:8182", "ftp://delegation-service"])
def test_an_endpoint_that_is_not_a_url_is_refused(world, endpoint):
    made, _ = factory(world, task_type="delegated", endpoint=endpoint)
    with pytest.raises(ClientMisconfigured, match=ENDPOINT):
        made.executor()


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "application.properties"
    path.write_text(text, encoding="utf-8")
    return path


def test_properties_are_read_from_a_file(tmp_path):
    found = executor_properties(written(tmp_path, FILE), {})
    assert (found[TASK_TYPE], found[ENDPOINT]) == ("delegated", "http://delegation-service:8182")


def test_a_variable_of_the_environment_takes_precedence(tmp_path):
    given = {"POLARIS_DELEGATION_SERVICE_TASK_TYPE": "local", "POLARIS_DELEGATION_SERVICE_ENDPOINT": ""}
    found = executor_properties(written(tmp_path, FILE), given)
    assert (found[TASK_TYPE], found[ENDPOINT]) == ("local", "http://delegation-service:8182")


def test_the_environment_alone_will_do(world, monkeypatch):
    monkeypatch.setenv("POLARIS_DELEGATION_SERVICE_TASK_TYPE", "delegated")
    monkeypatch.setenv("POLARIS_DELEGATION_SERVICE_ENDPOINT", "http://delegation-service:8182")
    made = TaskExecutorFactory.read(
        connect=lambda _url: world.service.client, catalog=world.catalog, realm="POLARIS", authorise=world.authorise
    )
    assert isinstance(made.executor(), DelegatedTaskExecutor)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("polaris.delegation-service.tasktype=local", r"delegation-service\.tasktype"),
        ("polaris.delegation-service.task-type=local\nnonsense", "line 2 is not name=value"),
        (None, "cannot be read: FileNotFoundError"),
    ],
)
def test_a_bad_file_is_refused_with_its_reason(tmp_path, text, reason):
    path = tmp_path / "absent" if text is None else written(tmp_path, text)
    with pytest.raises(ClientMisconfigured, match=reason):
        executor_properties(path, {})


def test_the_default_connection_has_the_settings_of_the_environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DELEGATION_EDGE_URL")
    with connect_to("https://edge/delegation-service/api") as client:
        assert client.operations.base_url == "https://edge/delegation-service/api"
    monkeypatch.delenv("DELEGATION_CLIENT_SECRET")
    with pytest.raises(ClientMisconfigured, match="DELEGATION_CLIENT_SECRET"):
        connect_to("https://edge/delegation-service/api")
