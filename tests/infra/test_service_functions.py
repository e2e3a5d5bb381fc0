"""The deployed functions are those of the table in infra/environment, with only the permissions they need."""

import json
from typing import Any
from unittest.mock import Mock

import pytest

from infra.environment.context import default_properties
from infra.environment.functions import FUNCTIONS, deployed_functions
from infra.environment.resources import environment

DEPLOYED = deployed_functions(default_properties())
_INTERFACES = {
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
}
IN_VPC = ("api", "authorizer", "prepare", "run_inline")


def function(service: Any, name: str) -> dict[str, Any]:
    body: dict[str, Any] = service.one("AWS::Lambda::Function", Handler=FUNCTIONS[name].handler)["Properties"]
    return body


def statements(service: Any, name: str) -> list[dict[str, Any]]:
    role = service.document["Resources"][function(service, name)["Role"]["Fn::GetAtt"][0]]["Properties"]
    assert "ManagedPolicyArns" not in role
    return [statement for policy in role["Policies"] for statement in policy["PolicyDocument"]["Statement"]]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_every_function_of_the_table_is_deployed_and_no_other(service: Any) -> None:
    deployed = {body["Properties"]["Handler"] for body in service.resources("AWS::Lambda::Function").values()}
    assert deployed == {entry.handler for entry in DEPLOYED.values()}
    assert FUNCTIONS.keys() - DEPLOYED.keys() == {"notifier"}


def test_removals_of_orphan_files_may_assume_exactly_the_operators_roles(everything: Any, service: Any) -> None:
    def assumed(stack: Any, name: str) -> list[Any]:
        found = [one for one in statements(stack, name) if "sts:AssumeRole" in listed(one["Action"])]
        assert all(listed(one["Action"]) == ["sts:AssumeRole"] for one in found)
        return [resource for one in found for resource in listed(one["Resource"])]

    deployed = everything["service"]
    assert assumed(deployed, "run_inline") == ["arn:aws:iam::123456789012:role/lake/quarantine"]
    assert not any(assumed(deployed, name) for name in DEPLOYED.keys() - {"run_inline"})
    assert assumed(service, "run_inline") == []
    (endpoint,) = [
        one["Properties"]
        for one in everything["network"].resources("AWS::EC2::VPCEndpoint").values()
        if json.dumps(one["Properties"]["ServiceName"]).endswith('.sts"]]}')
    ]
    (allowed,) = endpoint["PolicyDocument"]["Statement"]
    role = "arn:aws:iam::123456789012:role/lake/quarantine"
    assert (allowed["Action"], allowed["Resource"]) == ("sts:AssumeRole", role)


@pytest.mark.parametrize("name", DEPLOYED)
def test_a_function_has_the_limits_and_the_variables_of_the_table(service: Any, deployment: Any, name: str) -> None:
    properties = function(service, name)
    assert properties["Timeout"] == FUNCTIONS[name].timeout_seconds
    assert properties["MemorySize"] == FUNCTIONS[name].memory_mb
    assert properties["EphemeralStorage"] == {"Size": FUNCTIONS[name].disk_mb}
    expected = deployment.service.resolve(environment(name, deployment.service.resources))
    assert properties["Environment"]["Variables"] == expected


@pytest.mark.parametrize("name", DEPLOYED)
def test_the_code_of_no_function_may_use_the_interfaces(service: Any, name: str) -> None:
    """Lambda makes them with the function's role, so the role allows it; the function's own calls are denied."""
    denied = [one for one in statements(service, name) if one["Effect"] == "Deny"]
    assert len(denied) == (name in IN_VPC)
    for one in denied:
        assert {*one["Action"]} == _INTERFACES
        assert one["Condition"]["ArnLike"]["lambda:SourceFunctionArn"]["Fn::Join"][1][-1].endswith(":function:*")


def test_the_functions_that_call_polaris_and_the_authorizer_run_in_the_vpc(service: Any) -> None:
    placed = {name: function(service, name).get("VpcConfig") for name in DEPLOYED}
    assert {name for name, config in placed.items() if config} == {*IN_VPC}
    for config in filter(None, placed.values()):
        assert len(config["SubnetIds"]) == 2
        assert len(config["SecurityGroupIds"]) == 1


def test_no_two_functions_share_a_role(service: Any) -> None:
    roles = [function(service, name)["Role"]["Fn::GetAtt"][0] for name in DEPLOYED]
    assert len(set(roles)) == len(DEPLOYED)


def test_only_the_job_role_is_passed_and_only_to_emr_serverless(service: Any) -> None:
    (passing,) = [one for one in statements(service, "start_job") if one["Action"] == "iam:PassRole"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    role = service.document["Resources"][passing["Resource"]["Fn::GetAtt"][0]]["Properties"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "emr-serverless.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_the_authorizer_reads_the_revocation_lists_and_no_other_object(service: Any) -> None:
    [reading] = [one for one in statements(service, "authorizer") if one["Action"] == "s3:GetObject"]
    in_truststore, elsewhere = reading["Resource"]
    assert in_truststore["Fn::Join"][1][-1] == "/lists/ca.crl"
    assert "TrustStore" in str(in_truststore)
    assert elsewhere == {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":s3:::pki-lists/people.crl"]]}
    variables = function(service, "authorizer")["Environment"]["Variables"]
    assert variables["DELEGATION_REVOCATION_LISTS"]["Fn::Join"][1][-1] == "/lists/ca.crl,s3://pki-lists/people.crl"


def test_without_revocation_lists_in_s3_the_authorizer_may_do_nothing(node: str) -> None:
    from infra.constructs.security.permissions import statements as permissions_of

    assert permissions_of("authorizer", Mock(revocation_list_arns=())) == []


@pytest.mark.parametrize("name", DEPLOYED)
def test_a_log_has_the_retention_of_the_settings(service: Any, name: str) -> None:
    properties = function(service, name)
    log = service.document["Resources"][properties["LoggingConfig"]["LogGroup"]["Ref"]]
    assert log["Properties"]["RetentionInDays"] == 90
    assert log["DeletionPolicy"] == "RetainExceptOnCreate"
    assert properties["LoggingConfig"]["LogFormat"] == "JSON"
    assert properties["TracingConfig"] == {"Mode": "Active"}


def test_a_failed_sweep_is_not_retried(service: Any) -> None:
    rule = service.one("AWS::Events::Rule")["Properties"]
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    (target,) = rule["Targets"]
    sweeper = service.document["Resources"][target["Arn"]["Fn::GetAtt"][0]]["Properties"]
    assert sweeper["Handler"] == FUNCTIONS["sweeper"].handler
    assert service.one("AWS::Lambda::EventInvokeConfig")["Properties"]["MaximumRetryAttempts"] == 0


def test_in_a_vpc_there_are_spark_jobs(service: Any) -> None:
    variables = {name: function(service, name)["Environment"]["Variables"] for name in ("api", "prepare")}
    assert {name: one["DELEGATION_SPARK"] for name, one in variables.items()} == {"api": "on", "prepare": "on"}


def test_the_authorizer_believes_the_load_balancers_endpoint_alone(service: Any, network: Any) -> None:
    variables = function(service, "authorizer")["Environment"]["Variables"]
    assert variables["DELEGATION_CLIENT_CERTIFICATE_SOURCE"] == "alb"
    exported = variables["DELEGATION_CLIENT_VPC_ENDPOINTS"]["Fn::ImportValue"].partition(":")[2]
    endpoint = network.document["Resources"][network.document["Outputs"][exported]["Value"]["Ref"]]["Properties"]
    assert endpoint["ServiceName"]["Fn::Join"][1][-1] == ".execute-api"
