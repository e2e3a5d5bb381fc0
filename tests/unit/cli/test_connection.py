import json

import boto3
import pytest
from pydantic import SecretStr

from delegation.cli.connection import Connection, Stack, find_task_table, polaris_as
from delegation.cli.errors import CommandError, TaskTableUnknown
from delegation.configuration import SettingsInvalid
from delegation.tasks.errors import StoreUnavailable
from tests.aws import mock_aws
from tests.contract.task_tables import create_task_table
from tests.kit.errors import coded

ENVIRONMENT = {
    "DELEGATION_EDGE_URL": "https://other.test/delegation-service/api",
    "DELEGATION_TOKEN_URL": "https://issuer.test/oauth/tokens",
    "DELEGATION_CLIENT_ID": "polaris",
    "DELEGATION_CLIENT_SECRET": "hunter2",
    "DELEGATION_REALM": "OTHER",
}


@pytest.fixture
def environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_stack_hides_its_secrets(stack):
    shown = repr(Stack.read(stack))
    assert "hunter2" not in shown
    assert "hunter3" not in shown


def test_default_stack_is_in_the_working_directory_and_the_environment_precedes_it(stack, tmp_path, monkeypatch):
    (tmp_path / ".local").mkdir()
    stack.rename(tmp_path / ".local" / "stack.json")
    assert Connection(None).client_settings().client_secret.get_secret_value() == "hunter2"
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert Connection(None).client_settings().realm == "OTHER"


@pytest.mark.parametrize("name", ["edge_url", "polaris_url", "gateway_url"])
def test_an_empty_address_does_not_lead_to_the_system_of_the_default_stack(stack, tmp_path, monkeypatch, name):
    """`DELEGATION_GATEWAY_URL=$UNSET delegation drop …` dropped the table of the local stack's catalog."""
    (tmp_path / ".local").mkdir()
    described = {**json.loads(stack.read_text()), "gateway_url": "http://127.0.0.1:1/api/catalog"}
    (tmp_path / ".local" / "stack.json").write_text(json.dumps(described))
    monkeypatch.setenv(f"DELEGATION_{name.upper()}", "")
    connected = {"edge_url": "client_settings", "polaris_url": "catalog", "gateway_url": "catalog_through_gateway"}
    with pytest.raises(SettingsInvalid, match=rf"{name} \(DELEGATION_{name.upper()}\): is set and empty"):
        getattr(Connection(None), connected[name])()
    Connection(stack).client_settings()  # a stack that is named precedes all settings


def test_an_empty_gateway_of_a_stack_is_none(stack):
    stack.write_text(json.dumps({**json.loads(stack.read_text()), "gateway_url": ""}))
    with pytest.raises(CommandError, match="runs without a gateway", check=coded("GATEWAY_UNKNOWN")):
        Connection(stack).catalog_through_gateway()


def test_without_stack_or_environment_the_next_step_names_both(tmp_path):
    with pytest.raises(CommandError, check=coded("NOT_CONNECTED")) as caught:
        Connection(None).client_settings()
    assert "delegation local up" in caught.value.next_step
    assert "--stack" in caught.value.next_step


def test_missing_named_stack_is_reported(tmp_path, environment):
    with pytest.raises(CommandError, match=r"missing\.json", check=coded("NOT_CONNECTED")):
        Connection(tmp_path / "missing.json").client_settings()


@pytest.mark.parametrize("content", ["{", "[]", '{"client_secret": "hunter2"}'])
def test_invalid_stack_is_reported_without_its_secrets(stack, content):
    stack.write_text(content)
    with pytest.raises(SettingsInvalid) as caught:
        Connection(stack).client_settings()
    assert "hunter2" not in str(caught.value)


def test_incomplete_environment_names_the_variable(environment, monkeypatch):
    monkeypatch.delenv("DELEGATION_REALM")
    with pytest.raises(SettingsInvalid, match="DELEGATION_REALM") as caught:
        Connection(None).client_settings()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("credential", ["", "id", "id:", ":secret"])
def test_polaris_credential_has_two_parts(credential):
    with pytest.raises(CommandError, match="id:secret", check=coded("BAD_CONNECTION")):
        polaris_as("https://polaris.test", SecretStr(credential), scope="PRINCIPAL_ROLE:ALL", realm=None)


@pytest.fixture
def dynamodb(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with mock_aws():
        yield boto3.client("dynamodb")


def other_table(dynamodb):
    dynamodb.create_table(
        TableName="idempotency",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "scope", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "scope", "KeyType": "HASH"}],
    )


def test_task_table_is_found_by_its_key(dynamodb):
    other_table(dynamodb)
    table = create_task_table(dynamodb)
    assert find_task_table(dynamodb) == table


@pytest.mark.parametrize("count", [0, 2])
def test_task_table_must_be_named_unless_exactly_one_matches(dynamodb, count):
    for _ in range(count):
        create_task_table(dynamodb)
    with pytest.raises(TaskTableUnknown) as caught:
        find_task_table(dynamodb)
    assert "--tasks-table" in caught.value.next_step


def test_named_table_without_a_stack_is_in_the_environments_account(dynamodb):
    store = Connection(None).task_store(create_task_table(dynamodb))
    assert store.heads().tasks == ()


def test_missing_region_is_reported(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(CommandError, match="region", check=coded("BAD_CONNECTION")):
        Connection(None).task_store("tasks")


def test_unreachable_stack_is_reported(stack):
    with pytest.raises(StoreUnavailable):
        Connection(stack).task_store(None)


def test_stack_file_of_a_newer_release_is_read(stack):
    stack.write_text(json.dumps(json.loads(stack.read_text()) | {"added_later": 1}))
    assert Connection(stack).client_settings().scope == "execute_tasks"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "https://dynamodb.test", None])
def test_client_of_a_task_table_does_not_retry_by_itself(stack, monkeypatch, endpoint):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    document = json.loads(stack.read_text())
    stack.write_text(json.dumps({**document, "dynamodb_endpoint": endpoint or "http://127.0.0.1:1"}))
    config = Connection(stack if endpoint else None).task_store("tasks").dynamodb.client.meta.config
    assert config.retries["total_max_attempts"] == 1
    if endpoint:
        assert (config.connect_timeout, config.read_timeout) == (2, 5)
