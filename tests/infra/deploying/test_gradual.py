"""A deployment through an alias goes back on an alarm, and is switched on and off without a loss."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from delegation.cli.deployment.deploying import dangers_of
from infra.operations.alarms import ROLLBACK_ALARMS
from tests.infra.deploying.templates import imports_in, synthesized

pytestmark = pytest.mark.long
STACK = "PolarisDelegation-prod-Service"
Resources = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def service(node: str) -> Callable[[str], Any]:
    return synthesized


def of_kind(template: Any, kind: str) -> Resources:
    return {name: body for name, body in template["Resources"].items() if body["Type"] == kind}


def called(template: Any) -> dict[str, str]:
    """Return the kind of resource that each method and the authorizer of the API invoke."""
    resources: Resources = template["Resources"]
    uris = {name: one["Properties"]["Integration"]["Uri"] for name, one in of_kind(template, METHOD).items()}
    uris |= {name: one["Properties"]["AuthorizerUri"] for name, one in of_kind(template, AUTHORIZER).items()}
    return {
        name: next(resources[word]["Type"] for word in resources if f'"{word}"' in json.dumps(uri))
        for name, uri in uris.items()
        if "lambda" in json.dumps(uri)
    }


METHOD, AUTHORIZER = "AWS::ApiGateway::Method", "AWS::ApiGateway::Authorizer"


def test_callers_reach_the_alias_and_may_be_admitted_to_it(service: Callable[[str], Any]) -> None:
    plain, gradual = service("as it is")[STACK], service("gradual")[STACK]
    assert set(called(plain).values()) == {"AWS::Lambda::Function"}
    assert set(called(gradual).values()) == {"AWS::Lambda::Alias"}
    assert called(plain).keys() == called(gradual).keys()
    aliases = of_kind(gradual, "AWS::Lambda::Alias")
    permitted = [one["Properties"]["FunctionName"] for one in of_kind(gradual, "AWS::Lambda::Permission").values()]
    for name in aliases:
        assert {"Ref": name} in permitted, "API Gateway may not invoke the alias"


def test_an_alias_is_moved_by_codedeploy_which_goes_back_on_the_alarms(service: Callable[[str], Any]) -> None:
    template = service("gradual")[STACK]
    groups = of_kind(template, "AWS::CodeDeploy::DeploymentGroup")
    alarms = of_kind(template, "AWS::CloudWatch::Alarm")
    wanted = {rule.name for rule in ROLLBACK_ALARMS} - {"ProbeFailed"}
    for alias in of_kind(template, "AWS::Lambda::Alias").values():
        group = groups[alias["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"]["Ref"]]["Properties"]
        assert group["AutoRollbackConfiguration"] == {
            "Enabled": True,
            "Events": ["DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_REQUEST", "DEPLOYMENT_STOP_ON_ALARM"],
        }
        assert group["AlarmConfiguration"]["Enabled"] is True
        watched = {
            alarms[one["Name"]["Ref"]]["Properties"]["AlarmName"] for one in group["AlarmConfiguration"]["Alarms"]
        }
        assert watched == {f"polaris-delegation-prod-{name}" for name in wanted}
        assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaLinear10PercentEvery1Minute"
    for alarm in alarms.values():
        assert "Alias" not in json.dumps(alarm), "CloudFormation would find a circle"


def test_it_is_switched_on_and_off_without_a_loss(service: Callable[[str], Any]) -> None:
    plain, gradual = service("as it is"), service("gradual")
    assert dangers_of(plain, gradual, imports_in_templates(plain)) == []
    assert dangers_of(gradual, plain, imports_in_templates(gradual)) == []
    deployed = [of_kind(one[STACK], "AWS::ApiGateway::Deployment").keys() for one in (plain, gradual)]
    assert not deployed[0] & deployed[1], "the stage would still call what is removed"
    functions = [of_kind(one[STACK], "AWS::Lambda::Function").keys() for one in (plain, gradual)]
    assert functions[0] == functions[1], "functions of running executions stay"
    machines = [of_kind(one[STACK], "AWS::StepFunctions::StateMachine") for one in (plain, gradual)]
    assert machines[0] == machines[1]


def test_codedeploy_may_move_aliases_for_this_account_alone(service: Callable[[str], Any]) -> None:
    roles = [
        body["Properties"]
        for body in of_kind(service("gradual")[STACK], "AWS::IAM::Role").values()
        if "codedeploy" in json.dumps(body["Properties"]["AssumeRolePolicyDocument"])
    ]
    [role] = roles
    [statement] = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    assert "AWSCodeDeployRoleForLambdaLimited" in json.dumps(role["ManagedPolicyArns"])
    assert "Policies" not in role


def imports_in_templates(templates: Any) -> Any:
    from tests.infra.deploying.templates import skeleton

    return imports_in({name: skeleton(one) for name, one in templates.items()})
