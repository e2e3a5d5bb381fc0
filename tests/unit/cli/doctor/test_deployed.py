"""`delegation doctor --deployed` against botocore's clients, whose answers are checked against AWS' service models."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from botocore.validate import validate_parameters

from delegation.cli.doctor import command
from delegation.cli.doctor.deployed import LOG_GROUPS, RUNTIME, DeployedCheck
from infra.package.parts import PYTHON_VERSION
from tests.paths import ROOT

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:purge"
TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"
GROUP = f"{LOG_GROUPS}polaris-delegation-prod-purge-1"
TARGETS = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/t/1"
ROLE = "arn:aws:iam::123456789012:role/job"
EMR = "arn:aws:emr-serverless:us-east-1:123456789012:/applications/app1"
RESOURCES = {
    "AWS::Lambda::Function": "api",
    "AWS::Lambda::EventSourceMapping": "4f2b1f0e-5c1d-4d7e-9a57-0d2f3c5b6a71",
    "AWS::Events::Rule": "sweep",
    "AWS::StepFunctions::StateMachine": MACHINE,
    "AWS::EMRServerless::Application": "app1",
    "AWS::ElasticLoadBalancingV2::TargetGroup": TARGETS,
    "AWS::SNS::Topic": TOPIC,
}
Answers = dict[str, Any]


def healthy() -> Answers:
    """What AWS answers about a deployment that works, by operation."""
    logging = {
        "level": "ERROR",
        "destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": f"a:log-group:{GROUP}:*"}}],
    }
    return {
        "DescribeStacks": {"Stacks": [{"StackName": "s", "CreationTime": 1, "StackStatus": "CREATE_COMPLETE"}]},
        "ListStackResources": {
            "StackResourceSummaries": [
                {"LogicalResourceId": kind, "ResourceType": kind, "PhysicalResourceId": found}
                | {"LastUpdatedTimestamp": 1, "ResourceStatus": "CREATE_COMPLETE"}
                for kind, found in RESOURCES.items()
            ]
        },
        "GetFunctionConfiguration": {"Handler": "delegation.handlers.api.handler", "Runtime": RUNTIME}
        | {"State": "Active", "LastUpdateStatus": "Successful", "Architectures": ["arm64"]},
        "GetEventSourceMapping": {"State": "Enabled", "EventSourceArn": "arn:aws:sqs:us-east-1:1:dispatch"},
        "DescribeRule": {"State": "ENABLED", "ScheduleExpression": "rate(1 minute)"},
        "DescribeStateMachine": {"stateMachineArn": MACHINE, "name": "purge", "status": "ACTIVE", "definition": "{}"}
        | {"roleArn": "r", "type": "STANDARD", "creationDate": 1, "loggingConfiguration": logging},
        "DescribeLogGroups": {"logGroups": [{"logGroupName": GROUP, "storedBytes": 5}]},
        "GetApplication": {
            "application": {"applicationId": "app1", "arn": EMR, "releaseLabel": "emr-spark-8.0.0", "type": "Spark"}
            | {"state": "STOPPED", "createdAt": 1, "updatedAt": 1}
        },
        "ListJobRuns": {
            "jobRuns": [
                {"applicationId": "app1", "id": "1", "arn": EMR, "createdBy": ROLE, "createdAt": 1, "updatedAt": 1}
                | {"executionRole": ROLE, "state": "SUCCESS", "stateDetails": "ok", "releaseLabel": "emr-spark-8.0.0"}
            ]
        },
        "DescribeTargetHealth": {"TargetHealthDescriptions": [{"TargetHealth": {"State": "healthy"}}]},
        "ListSubscriptionsByTopic": {"Subscriptions": [{"SubscriptionArn": f"{TOPIC}:1"}]},
        "DescribeAlarms": {
            "MetricAlarms": [
                {"AlarmName": "lost", "ActionsEnabled": True, "AlarmActions": [TOPIC], "StateValue": "OK"},
            ]
        },
    }


def clients(answers: Answers) -> Callable[[str], Any]:
    """Return what makes boto3 clients with these answers, each a document or an error's code."""

    def answer(model: Any, **_: Any) -> tuple[AWSResponse, Any]:
        found = answers[model.name]
        if isinstance(found, str):
            raise ClientError({"Error": {"Code": found, "Message": found}}, model.name)
        validate_parameters(found, model.output_shape)
        return AWSResponse(None, 200, {}, None), found

    @cache
    def client(service: str) -> Any:
        made = boto3.client(service, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s")
        made.meta.events.register("before-call", answer)
        return made

    return client


@cache
def shared() -> tuple[Answers, Callable[[str], Any]]:
    """One set of clients for all tests, as making one takes a tenth of a second, and the answers that they read."""
    answers: Answers = {}
    return answers, clients(answers)


def found(**changed: Any) -> dict[str, tuple[bool | None, str]]:
    answers, client = shared()
    answers.clear()
    answers.update({**healthy(), **changed})
    return {one.name: (one.ok, f"{one.detail} {one.fix}") for one in DeployedCheck("prod", client).findings()}


def test_a_healthy_deployment_passes() -> None:
    assert {name for name, (ok, _) in found().items() if ok is not True} == set()
    assert f"python{PYTHON_VERSION}" == RUNTIME


ALARM = {"AlarmName": "lost", "ActionsEnabled": True, "AlarmActions": [TOPIC], "StateValue": "OK"}


@pytest.mark.parametrize(
    ("operation", "changed", "name", "ok", "said"),
    [
        ("GetFunctionConfiguration", {"Runtime": "python3.12"}, "function", False, "infra.package"),
        ("GetFunctionConfiguration", {"LastUpdateStatus": "Failed"}, "function", False, "last update Failed"),
        ("GetFunctionConfiguration", {"Handler": "index.handler"}, "function", None, "the CDK's own"),
        ("GetEventSourceMapping", {"State": "Disabled"}, "queue's mapping", False, "--enabled"),
        ("DescribeRule", {"State": "DISABLED"}, "schedule", False, "enable-rule"),
        ("DescribeStateMachine", {"loggingConfiguration": {"level": "OFF"}}, "state machine", False, "logs: OFF"),
        ("DescribeStateMachine", {"status": "DELETING"}, "state machine", False, "DELETING"),
        ("DescribeLogGroups", {"logGroups": []}, "state machine", None, "no bytes yet"),
        ("ListJobRuns", {"jobRuns": []}, "EMR application", None, "engine = spark"),
        ("DescribeTargetHealth", {"TargetHealthDescriptions": []}, "load balancer's targets", False, "none"),
        ("ListSubscriptionsByTopic", {"Subscriptions": []}, "alarms' topic", False, "sns subscribe"),
        ("DescribeAlarms", {"MetricAlarms": []}, "alarms", False, "there are none"),
        ("DescribeAlarms", {"MetricAlarms": [{**ALARM, "ActionsEnabled": False}]}, "alarms", False, "notify nobody"),
        ("DescribeAlarms", {"MetricAlarms": [{**ALARM, "StateValue": "ALARM"}]}, "alarms", False, "lost is on"),
        ("GetApplication", "AccessDeniedException", "EMR application", False, "may not look"),
        ("DescribeRule", "ResourceNotFoundException", "schedule", False, "does not exist"),
    ],
)
def test_what_is_broken_is_named_with_its_fix(operation: str, changed: Any, name: str, ok: bool, said: str) -> None:
    answer = changed if isinstance(changed, str) else {**healthy()[operation], **changed}
    seen = found(**{operation: answer})
    assert seen[name][0] is ok
    assert said in seen[name][1]
    assert [other for other, (good, _) in seen.items() if good is not True] == [name]


def test_a_stage_that_is_not_deployed_is_one_finding() -> None:
    [(name, (ok, text))] = found(DescribeStacks="ValidationError").items()
    assert (name, ok) == ("stack PolarisDelegation-prod-Data", False)
    assert "--stage" in text


def test_the_command_exits_with_1(run: Any, monkeypatch: Any) -> None:
    answers, client = shared()
    answers.clear()
    answers.update({**healthy(), "DescribeRule": {"State": "DISABLED"}})
    monkeypatch.setattr(command, "_clients", lambda _make, _endpoints: client)
    done = run("doctor", "--deployed", "--json")
    assert done.exit_code == 1
    assert {one["name"] for one in json.loads(done.stdout)["checks"] if one["ok"] is False} == {"schedule"}


def test_the_page_names_a_proof_for_each_assumption() -> None:
    page = (ROOT / "docs/deployment.md").read_text(encoding="utf-8").partition("## What AWS has not shown yet")[2]
    rows = [line for line in page.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    assert [row for row in rows if row.count("`") < 2] == []
    assert sum("doctor --deployed" in row for row in rows) >= 4
