"""The gateway's stack: off by default, one function with its own role, a private API, the load balancer's rule."""

import json
from typing import Any
from urllib.parse import unquote

import pytest
from pydantic import ValidationError

from delegation.cli.doctor.aws import TOMBSTONES
from delegation.gateway.app import LARGEST_BODY
from delegation.wiring.gateway import GatewayEnvironment, catalog_paths
from infra.environment.context import default_context
from infra.environment.functions import GATEWAY
from infra.environment.resources import Resources, environment
from infra.rule.conditions import listener_rules
from infra.settings import Settings
from infra.wildcards import wildcards
from tests.infra.conftest import GATEWAY_ENDPOINT, TEMPLATES_ALONE, WITH_GATEWAY, SynthesizedStack
from tests.unit.edge.trust.pki import authority, pem


@pytest.fixture(scope="module")
def gateway(everything: dict[str, SynthesizedStack]) -> SynthesizedStack:
    return everything["gateway"]


def test_it_is_off_by_default_and_its_table_is_there_for_when_it_is_switched_on_again(
    deployment: Any, data: Any
) -> None:
    assert deployment.gateway is None
    (table,) = [name for name in data.document["Resources"] if "Tombstone" in name]
    exported = json.dumps([one["Value"] for one in data.document["Outputs"].values() if "Export" in one])
    assert exported.count(table) == 2


def test_no_template_allows_a_wildcard_of_actions_on_everything(everything: dict[str, SynthesizedStack]) -> None:
    assert [wildcards(stack.document) for stack in everything.values()] == [(), (), (), ()]


def test_it_has_one_function_with_a_role_of_its_own(gateway: SynthesizedStack) -> None:
    function = gateway.one("AWS::Lambda::Function")["Properties"]
    assert function["Handler"] == "delegation.handlers.gateway.handler"
    assert len(gateway.resources("AWS::IAM::Role")) == 1
    assert function["VpcConfig"] == {
        "SubnetIds": ["subnet-0123456789abcdef1", "subnet-0123456789abcdef2"],
        "SecurityGroupIds": ["sg-0123456789abcdef0"],
    }
    variables = function["Environment"]["Variables"]
    assert variables["DELEGATION_POLARIS_URL"] == "http://polaris.internal:8181/api/catalog"
    assert variables["DELEGATION_GATEWAY_BASE_PATH"] == "/catalog"
    assert variables["DELEGATION_TOKEN_JWKS_URL"] == "https://issuer.lake.io/jwks.json"
    assert "Tombstones" in json.dumps(variables["DELEGATION_TOMBSTONES_TABLE"])


def test_the_function_reads_what_the_operator_set(gateway: SynthesizedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = gateway.one("AWS::Lambda::Function")["Properties"]["Environment"]["Variables"]
    of_gateway = ("TIMEOUT_SECONDS", "NAMESPACE_SEPARATOR", "PURGE_REQUESTS")
    for name in ("DELEGATION_POLARIS_URL", *(f"DELEGATION_GATEWAY_{each}" for each in of_gateway)):
        monkeypatch.setenv(name, variables[name])
    read = GatewayEnvironment.read()
    assert (read.timeout_seconds, catalog_paths(read).separator, read.purge_requests) == (20, ".", "refuse")


def test_what_cdk_json_has_is_what_the_function_does_without_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_POLARIS_URL", "http://polaris.internal:8181/api/catalog")
    settings, read = Settings.from_context(default_context() | TEMPLATES_ALONE), GatewayEnvironment.read()
    assert settings.gateway_timeout_seconds == read.timeout_seconds
    assert unquote(settings.gateway_namespace_separator) == catalog_paths(read).separator
    assert settings.gateway_purge_requests == read.purge_requests


def test_only_functions_that_purge_or_restore_know_the_tombstones(everything: dict[str, SynthesizedStack]) -> None:
    service = everything["service"]
    roles, knowing = service.resources("AWS::IAM::Role"), {}
    for body in service.resources("AWS::Lambda::Function").values():
        function = body["Properties"]
        if "DELEGATION_TOMBSTONES_TABLE" in function["Environment"]["Variables"]:
            knowing[function["Handler"].removeprefix("delegation.handlers.")] = roles[
                function["Role"]["Fn::GetAtt"][0]
            ]["Properties"]
    assert set(knowing) == {"api.handler", "attempts.prepare", "attempts.run_inline"}
    assert all("Tombstones" in json.dumps(role["Policies"]) for role in knowing.values())


def test_the_table_of_tombstones_is_protected_and_has_the_indexes_of_its_store(
    everything: dict[str, SynthesizedStack],
) -> None:
    (table,) = [
        body
        for body in everything["data"].resources("AWS::DynamoDB::Table").values()
        if body["Properties"]["KeySchema"][0]["AttributeName"] == "table_key"
    ]
    assert (table["DeletionPolicy"], table["Properties"]["DeletionProtectionEnabled"]) == ("RetainExceptOnCreate", True)
    indexes = {index["IndexName"]: index for index in table["Properties"]["GlobalSecondaryIndexes"]}
    assert {name: [part["AttributeName"] for part in index["KeySchema"]] for name, index in indexes.items()} == {
        "newest": ["listed_in", "listed_key"],
        "due": ["checked_in", "check_at"],
        "callers": ["caller", "listed_key"],
    }
    assert all(index["Projection"] == {"ProjectionType": "ALL"} for index in indexes.values())


def test_the_api_is_private_and_admits_one_endpoint_alone(gateway: SynthesizedStack) -> None:
    api = gateway.one("AWS::ApiGateway::RestApi")["Properties"]
    assert api["EndpointConfiguration"]["Types"] == ["PRIVATE"]
    assert api["BinaryMediaTypes"] == ["*/*"]
    denied = [each for each in api["Policy"]["Statement"] if each["Effect"] == "Deny"]
    assert [each["Condition"] for each in denied] == [{"StringNotEquals": {"aws:SourceVpce": GATEWAY_ENDPOINT}}]
    methods = gateway.resources("AWS::ApiGateway::Method").values()
    assert {body["Properties"]["AuthorizationType"] for body in methods} == {"NONE"}


def test_its_domain_is_the_name_of_the_catalog(gateway: SynthesizedStack) -> None:
    domain = gateway.one("AWS::ApiGateway::DomainNameV2")["Properties"]
    assert (domain["DomainName"], domain["EndpointConfiguration"]) == ("polaris.lake.io", {"Types": ["PRIVATE"]})
    assert "BasePath" not in gateway.one("AWS::ApiGateway::BasePathMappingV2")["Properties"]
    access = gateway.one("AWS::ApiGateway::DomainNameAccessAssociation")["Properties"]
    assert access["AccessAssociationSource"] == GATEWAY_ENDPOINT


def test_too_large_a_request_is_answered_with_what_to_do(gateway: SynthesizedStack) -> None:
    answer = gateway.one("AWS::ApiGateway::GatewayResponse", ResponseType="REQUEST_TOO_LARGE")["Properties"]
    error = json.loads(answer["ResponseTemplates"]["application/json"])["error"]
    assert (answer["StatusCode"], error["code"], error["type"]) == ("413", 413, "PayloadTooLargeException")
    assert "without Idempotency-Key" in error["message"]
    assert f"{LARGEST_BODY / 1e6:.1f} MB" in error["message"]


def test_the_listener_gets_the_rules_of_the_file_with_the_base_of_the_settings(gateway: SynthesizedStack) -> None:
    rules = [body["Properties"] for body in gateway.resources("AWS::ElasticLoadBalancingV2::ListenerRule").values()]
    wanted = json.loads(
        json.dumps([rule["Conditions"] for rule in listener_rules()]).replace("/api/catalog", "/catalog")
    )
    found = sorted(rules, key=lambda rule: rule["Priority"])
    assert [rule["Priority"] for rule in found] == [100, 101, 102, 103, 104]
    assert [rule["Conditions"] for rule in found] == wanted
    group = gateway.one("AWS::ElasticLoadBalancingV2::TargetGroup")["Properties"]
    assert (group["TargetType"], group["Protocol"]) == ("ip", "HTTPS")
    assert [target["Id"] for target in group["Targets"]] == ["10.0.1.7", "10.0.2.7"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"delegation:gateway-polaris-url": None}, "gateway-polaris-url"),
        ({"delegation:gateway-vpc-endpoint": None}, "gateway-vpc-endpoint"),
        ({"delegation:gateway-vpc-id": None}, "gateway-vpc-id"),
        ({"delegation:gateway-subnet-ids": None}, "delegation:gateway-security-group-ids"),
        ({"delegation:gateway-token-public-key": "x"}, "delegation:gateway-token-jwks-url"),
        ({"delegation:gateway-timeout-seconds": 26}, "gateway_timeout_seconds"),
        ({"delegation:gateway-namespace-separator": " "}, "gateway_namespace_separator"),
        ({"delegation:gateway-purge-requests": "ignore"}, "gateway_purge_requests"),
    ],
)
def test_a_gateway_that_is_not_whole_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings.from_context(default_context() | TEMPLATES_ALONE | WITH_GATEWAY | changed)


def test_its_variables_fit_into_the_quota_of_lambda() -> None:
    text = environment(GATEWAY.name, Resources(token_public_key=pem(authority()), properties={"a": "b" * 1500}))
    assert sum(len(name) + len(value) for name, value in text.items()) < 4096


def test_the_doctor_finds_the_parts_by_their_names_and_types(everything: dict[str, SynthesizedStack]) -> None:
    tables = everything["data"].resources("AWS::DynamoDB::Table")
    assert len([name for name in tables if name.startswith(TOMBSTONES)]) == 1
    for kind, number in (("AWS::ApiGateway::RestApi", 1), ("AWS::CloudWatch::Alarm", 2), ("AWS::Lambda::Function", 1)):
        assert len(everything["gateway"].resources(kind)) == number
    [api] = everything["gateway"].resources("AWS::ApiGateway::RestApi").values()
    assert GATEWAY_ENDPOINT in json.dumps(api["Properties"]["Policy"])
