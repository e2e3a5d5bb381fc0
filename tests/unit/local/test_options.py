"""Options, keys, stack.json and state machine definitions of the local stack, without processes."""

import json
import stat

import pytest
from pydantic import SecretStr

from delegation.cli.connection import Stack
from infra.environment.context import default_properties
from infra.environment.functions import FUNCTIONS, STATE_MACHINE_DEFINITION
from infra.local import resources
from infra.local.backends import AwsKeys, Endpoints
from infra.local.errors import CannotStartError
from infra.local.options import StackOptions
from infra.local.stack_file import write

OWNER = {"polaris_url": "http://p", "polaris_client_id": "i", "polaris_client_secret": SecretStr("x")}
USER = {"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_SESSION_TOKEN": "t0ken"}


@pytest.mark.parametrize("given", [{"polaris_url": "http://p"}, {"polaris_client_secret": SecretStr("x")}])
def test_incomplete_polaris_options_are_refused(given):
    with pytest.raises(CannotStartError, match="must be given together"):
        StackOptions(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"polaris_service_client_id": "s", "polaris_service_client_secret": SecretStr("x")},
        {**OWNER, "polaris_service_client_id": "s"},
    ],
)
def test_a_service_principal_needs_both_parts_and_a_polaris(given):
    with pytest.raises(CannotStartError, match="--polaris-service-client-secret must be given together"):
        StackOptions(**given)


def test_the_service_has_the_owners_credentials_and_scope_unless_it_has_its_own():
    assert StackOptions().given_polaris() is None
    same = StackOptions(**OWNER, polaris_scope="PRINCIPAL_ROLE:a", polaris_realm="r").given_polaris()
    assert (same.realm, same.owner.scope, same.service.scope) == ("r", "PRINCIPAL_ROLE:a", "PRINCIPAL_ROLE:a")
    assert same.service.client_id == "i"
    own = {"polaris_service_client_id": "s", "polaris_service_client_secret": SecretStr("y")}
    other = StackOptions(**OWNER, **own, polaris_service_scope="PRINCIPAL_ROLE:b").given_polaris()
    assert (other.owner.client_id, other.service.client_id) == ("i", "s")
    assert (other.owner.scope, other.service.scope) == ("PRINCIPAL_ROLE:ALL", "PRINCIPAL_ROLE:b")
    assert "--polaris-service-client-id" in other.service.options


def test_given_properties_override_those_of_cdk_json_and_no_others():
    name = "delegation.retry.TABLE_PURGE.initial-backoff-duration"
    assert name in default_properties()
    assert StackOptions(properties={name: "1s"}).all_properties() == {**default_properties(), name: "1s"}


@pytest.mark.parametrize(
    "given",
    [
        {"delegation.retry.typo": "1"},
        {"delegation.dispatch.grace-duration": "soon"},
        {"delegation.upkeep.interval": "4s"},
        {"delegation.upkeep.least-age": "long"},
    ],
)
def test_a_property_that_functions_would_refuse_is_refused_before_the_start(given):
    with pytest.raises(CannotStartError, match=next(iter(given))):
        StackOptions(properties=given)


def test_the_users_keys_are_for_the_users_endpoints_only():
    assert AwsKeys.choose(USER, foreign=True) == AwsKeys("user", "s3cret", "t0ken")
    assert AwsKeys.choose(USER, foreign=False) == AwsKeys("local", "local")
    assert AwsKeys.choose({"AWS_ACCESS_KEY_ID": "user"}, foreign=True) == AwsKeys("local", "local")


def test_functions_get_the_standard_variables_and_no_empty_one():
    endpoints = Endpoints("http://a", "http://d", "http://s", AwsKeys("local", "local"))
    variables = endpoints.environment()
    assert variables["AWS_ENDPOINT_URL"] == "http://a"
    assert variables["AWS_ENDPOINT_URL_DYNAMODB"] == "http://d"
    assert variables["AWS_ENDPOINT_URL_S3"] == "http://s"
    assert "AWS_SESSION_TOKEN" not in variables
    assert "AWS_ENDPOINT_URL_EMR_SERVERLESS" not in variables
    assert all(variables.values())


def stack_file(**changes):
    return Stack(**{**dict.fromkeys(Stack.model_fields, "x"), **changes})


def test_stack_json_is_replaced_atomically_and_readable_by_its_owner_only(tmp_path):
    write(stack_file(edge_url="old"), tmp_path)
    path = write(stack_file(edge_url="new", client_secret="s3cret"), tmp_path)
    found = json.loads(path.read_text())
    assert (found["edge_url"], found["client_secret"], found["ca_cert"]) == ("new", "s3cret", "x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["stack.json"]


@pytest.mark.parametrize(
    "value",
    [
        StackOptions(**{**OWNER, "polaris_client_secret": SecretStr("s3cret")}),
        Endpoints("http://a", "http://d", "http://s", AwsKeys.choose(USER, foreign=True)),
        stack_file(client_secret="s3cret", polaris_credential="id:s3cret"),
    ],
    ids=["options", "endpoints", "stack file"],
)
def test_no_text_of_a_value_shows_a_secret(value):
    assert "s3cret" not in repr(value)
    assert "t0ken" not in repr(value)


def test_the_definition_names_functions_of_the_table():
    arns = {name: f"arn:{name}" for name in FUNCTIONS}
    states = json.loads(resources.definition(STATE_MACHINE_DEFINITION, arns))["States"]
    called = {state["Resource"] for state in states.values() if state["Type"] == "Task"}
    assert called <= set(arns.values())
    assert "arn:run_inline" in called


def test_a_definition_with_a_placeholder_of_an_unknown_function_is_refused(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text('{"Resource": "${UnknownFunctionArn}"}')
    with pytest.raises(CannotStartError, match="UnknownFunctionArn"):
        resources.definition(path, {"acquire": "arn"})


def test_a_given_polaris_has_a_catalog_of_its_own():
    assert StackOptions(**OWNER).catalog == "memory"
    with pytest.raises(CannotStartError, match=r"--catalog .* --polaris-url"):
        StackOptions(**OWNER, catalog="persistence")
