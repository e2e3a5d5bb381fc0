"""No service of AWS acts in another account's name, and no endpoint leads another account's principals out."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.infra.conftest import SynthesizedStack

UNCONDITIONAL: Final = {
    "lambda.amazonaws.com": "Lambda documents no condition for the trust of an execution role; iam:PassRole decides.",
    "apigateway.amazonaws.com": "API Gateway documents none for the account's role of logs.",
}
"""Services whose trust has no condition, with the reason."""
ACCOUNT: Final = {"Ref": "AWS::AccountId"}


def services(statement: Mapping[str, Any]) -> list[Any]:
    principal = statement.get("Principal")
    named = principal.get("Service", []) if isinstance(principal, dict) else []
    return named if isinstance(named, list) else [named]


def granted(stacks: Mapping[str, SynthesizedStack]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every Allow statement for a service: of resources' policies, and of roles' trust."""
    for stack in stacks.values():
        for name, body in stack.document["Resources"].items():
            properties = body.get("Properties", {})
            for key in ("PolicyDocument", "KeyPolicy", "ResourcePolicy", "AssumeRolePolicyDocument"):
                document = properties.get(key)
                for statement in document["Statement"] if isinstance(document, dict) else ():
                    if statement["Effect"] == "Allow" and services(statement):
                        yield name, statement


def of_this_account(condition: Mapping[str, Any]) -> bool:
    """Whether a condition names this account, or an ARN in it or of a resource of this template."""
    values = [value for each in condition.values() for value in each.values()]
    return any(value == ACCOUNT or "AWS::AccountId" in str(value) or "Fn::GetAtt" in str(value) for value in values)


def test_a_service_acts_for_this_account_alone(everything: dict[str, SynthesizedStack]) -> None:
    found = list(granted(everything))
    assert len(found) > 5
    without = {
        (name, str(service))
        for name, statement in found
        for service in services(statement)
        if str(service) not in UNCONDITIONAL and not of_this_account(statement.get("Condition", {}))
    }
    assert without == set()


def test_what_lists_no_condition_is_trust_alone(everything: dict[str, SynthesizedStack]) -> None:
    named = {
        service
        for _, statement in granted(everything)
        for service in services(statement)
        if "Condition" not in statement and isinstance(service, str)
    }
    assert named <= UNCONDITIONAL.keys()


def test_a_service_invokes_a_function_for_a_resource_of_this_account(everything: dict[str, SynthesizedStack]) -> None:
    permissions = [
        (name, body["Properties"])
        for stack in everything.values()
        for name, body in stack.document["Resources"].items()
        if body["Type"] == "AWS::Lambda::Permission"
    ]
    assert len(permissions) > 5
    for name, permission in permissions:
        source = str(permission["SourceArn"])
        assert "AWS::AccountId" in source or "Fn::GetAtt" in source or "Ref" in source, name


@pytest.mark.parametrize("service", ["dynamodb", "sqs", "secretsmanager", "logs"])
def test_an_endpoint_lets_through_this_account_alone(everything: dict[str, SynthesizedStack], service: str) -> None:
    [policy] = [
        body["Properties"]["PolicyDocument"]["Statement"]
        for body in everything["network"].resources("AWS::EC2::VPCEndpoint").values()
        if body["Properties"]["ServiceName"]["Fn::Join"][1][-1] == f".{service}"
    ]
    [statement] = policy
    assert statement["Action"] == f"{service}:*"
    assert statement["Condition"] == {"StringEquals": {"aws:PrincipalAccount": ACCOUNT}}
    assert statement["Resource"]["Fn::Join"][1][-2:] == [ACCOUNT, ":*"]


def test_only_the_endpoint_of_s3_has_the_default_policy(everything: dict[str, SynthesizedStack]) -> None:
    """The catalog vends credentials of the account that has the lake, to buckets unknown at deployment."""
    without = {
        body["Properties"]["ServiceName"]["Fn::Join"][1][-1]
        for body in everything["network"].resources("AWS::EC2::VPCEndpoint").values()
        if "PolicyDocument" not in body["Properties"]
    }
    assert without == {".s3"}
