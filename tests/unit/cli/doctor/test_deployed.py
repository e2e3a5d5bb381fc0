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
from delegation.cli.doctor.aws import LOG_GROUPS, RUNTIME, DeployedCheck
from infra.package.parts import PYTHON_VERSION

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
ENDPOINT = "vpce-0a1b2c3d4e5f60718"
OF_THE_GATEWAY = {
    "AWS::Lambda::Function": "gateway",
    "AWS::ApiGateway::RestApi": "abc123",
    "AWS::CloudWatch::Alarm": "lost",
}
INDEXES = [{"IndexName": name} for name in ("newest", "due", "callers")]
TABLE = {"TableStatus": "ACTIVE", "GlobalSecondaryIndexes": INDEXES}
REST_API = {
    "id": "abc123",
    "endpointConfiguration": {"types": ["PRIVATE"]},
    "policy": f'{{\\"aws:SourceVpce\\":\\"{ENDPOINT}\\"}}',
}
VPC_ENDPOINT = {"VpcEndpointId": ENDPOINT, "State": "available", "ServiceName": "com.amazonaws.eu-west-1.execute-api"}
REJECTED = {"VpcEndpoints": [{**VPC_ENDPOINT, "State": "rejected"}]}
Answers = dict[str, Any]


def stack_named(parameters: dict[str, Any]) -> str:
    """The part of the stage that a request to CloudFormation names."""
    return str(parameters["body"]["StackName"]).rpartition("-")[2]


def listed(parameters: dict[str, Any]) -> Any:
    """What AWS answers to ListStackResources: the table of tombstones is in *Data*, most others in *Service*."""
    found = {
        "Data": [("GatewayTombstones1A2B", "AWS::DynamoDB::Table", "tombstones")],
        "Service": [(kind, kind, one) for kind, one in RESOURCES.items()],
        "Gateway": [(kind, kind, one) for kind, one in OF_THE_GATEWAY.items()],
    }.get(stack_named(parameters), [])
    return {
        "StackResourceSummaries": [
            {"LogicalResourceId": name, "ResourceType": kind, "PhysicalResourceId": one}
            | {"LastUpdatedTimestamp": 1, "ResourceStatus": "CREATE_COMPLETE"}
            for name, kind, one in found
        ]
    }


def without(*parts: str) -> Any:
    """What AWS answers to DescribeStacks where some parts of the stage were not deployed."""
    return lambda parameters: "ValidationError" if stack_named(parameters) in parts else healthy()["DescribeStacks"]


def healthy() -> Answers:
    """What AWS answers about a deployment that works, by operation."""
    logging = {
        "level": "ERROR",
        "destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": f"a:log-group:{GROUP}:*"}}],
    }
    return {
        "DescribeStacks": {"Stacks": [{"StackName": "s", "CreationTime": 1, "StackStatus": "CREATE_COMPLETE"}]},
        "ListStackResources": listed,
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
        "DescribeTable": {"Table": TABLE},
        "GetRestApi": REST_API,
        "GetStages": {"item": [{"stageName": "live", "deploymentId": "d1"}]},
        "DescribeVpcEndpoints": {"VpcEndpoints": [VPC_ENDPOINT]},
    }


def clients(answers: Answers) -> Callable[[str], Any]:
    """Return what makes boto3 clients with these answers, each a document, an error's code, or made from a request."""

    def answer(model: Any, params: dict[str, Any], **_: Any) -> tuple[AWSResponse, Any]:
        found = answers[model.name]
        if callable(found):
            found = found(params)
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
        ("GetFunctionConfiguration", {"Handler": "index.handler"}, "function", None, "belongs to the CDK"),
        ("GetEventSourceMapping", {"State": "Disabled"}, "queue's mapping", False, "--enabled"),
        ("DescribeRule", {"State": "DISABLED"}, "schedule", False, "enable-rule"),
        ("DescribeStateMachine", {"loggingConfiguration": {"level": "OFF"}}, "state machine", False, "logs: OFF"),
        ("DescribeStateMachine", {"status": "DELETING"}, "state machine", False, "DELETING"),
        ("DescribeLogGroups", {"logGroups": []}, "state machine", None, "Purge a table"),
        ("ListJobRuns", {"jobRuns": []}, "EMR application", None, "engine = spark"),
        ("DescribeTargetHealth", {"TargetHealthDescriptions": []}, "load balancer's targets", False, "no targets"),
        ("ListSubscriptionsByTopic", {"Subscriptions": []}, "alarms' topic", False, "sns subscribe"),
        ("DescribeAlarms", {"MetricAlarms": [{**ALARM, "ActionsEnabled": False}]}, "alarms", False, "notify nobody"),
        ("DescribeAlarms", {"MetricAlarms": [{**ALARM, "StateValue": "ALARM"}]}, "alarms", False, "lost is on"),
        ("GetApplication", "AccessDeniedException", "EMR application", False, "you may not read"),
        ("DescribeRule", "ResourceNotFoundException", "schedule", False, "does not exist"),
        ("DescribeTable", {"Table": {**TABLE, "TableStatus": "DELETING"}}, "gateway's tombstones", False, "DELETING"),
        ("DescribeTable", {"Table": {"TableStatus": "ACTIVE"}}, "gateway's tombstones", False, "callers, due, newest"),
        ("DescribeTable", "ResourceNotFoundException", "gateway's tombstones", False, "does not exist"),
        ("GetRestApi", {"endpointConfiguration": {"types": ["REGIONAL"]}}, "gateway's API", False, "REGIONAL"),
        ("GetRestApi", {"policy": ""}, "gateway's endpoint", False, "admits no VPC endpoint"),
        ("GetStages", {"item": []}, "gateway's API", False, "no deployed stage"),
        ("DescribeVpcEndpoints", REJECTED, "gateway's endpoint", False, "gateway-vpc-endpoint"),
        ("DescribeVpcEndpoints", "InvalidVpcEndpointId.NotFound", "gateway's endpoint", False, f"{ENDPOINT} does not"),
    ],
)
def test_what_is_broken_is_named_with_its_fix(operation: str, changed: Any, name: str, ok: bool, said: str) -> None:
    answer = changed if isinstance(changed, str) else {**healthy()[operation], **changed}
    seen = found(**{operation: answer})
    assert seen[name][0] is ok
    assert said in seen[name][1]
    assert [other for other, (good, _) in seen.items() if good is not True] == [name]


def test_a_disabled_rule_has_a_command_alone_on_its_line_and_no_guess_at_its_target() -> None:
    """The sweeper and the probe of the front have a rule each."""
    _, text = found(DescribeRule={"State": "DISABLED"})["schedule"]
    command = text[text.index("aws events enable-rule") :]
    assert command.split() == ["aws", "events", "enable-rule", "--name", "sweep"]
    assert "sweeper" not in text
    assert "the function that it starts does not run" in text


def test_a_stage_that_is_not_deployed_is_one_finding() -> None:
    [(name, (ok, text))] = found(DescribeStacks="ValidationError").items()
    assert (name, ok) == ("stack PolarisDelegation-prod-Data", False)
    assert "--stage" in text


def test_a_stage_without_network_or_gateway_says_so_and_is_well() -> None:
    seen = found(DescribeStacks=without("Network", "Gateway"))
    absent = {name: text for name, (ok, text) in seen.items() if ok is not True}
    assert absent.keys() == {"stack PolarisDelegation-prod-Network", "stack PolarisDelegation-prod-Gateway"}
    assert all("no such stack" in text for text in absent.values())
    assert not any(name.startswith("gateway") for name in seen)


def test_the_function_of_the_gateway_and_its_stack_are_checked_as_the_others() -> None:
    def of_the_gateway(parameters: dict[str, Any]) -> Any:
        old = {"Runtime": "python3.12"} if parameters["url_path"].split("/")[3] == "gateway" else {}
        return {**healthy()["GetFunctionConfiguration"], **old}

    def rolled_back(parameters: dict[str, Any]) -> Any:
        status = {"Gateway": "ROLLBACK_COMPLETE"}.get(stack_named(parameters), "CREATE_COMPLETE")
        return {"Stacks": [{**healthy()["DescribeStacks"]["Stacks"][0], "StackStatus": status}]}

    seen = found(GetFunctionConfiguration=of_the_gateway, DescribeStacks=rolled_back)
    broken = {name: text for name, (ok, text) in seen.items() if ok is not True}
    assert broken.keys() == {"stack PolarisDelegation-prod-Gateway", "function"}
    assert "gateway runs on python3.12" in broken["function"]


def test_a_gateway_whose_table_or_alarm_is_gone_is_found() -> None:
    def no_table(parameters: dict[str, Any]) -> Any:
        return {"StackResourceSummaries": []} if stack_named(parameters) == "Data" else listed(parameters)

    seen = found(DescribeAlarms={"MetricAlarms": []})
    assert "there are no alarms" in seen["alarms"][1]
    assert [name for name, (ok, _) in seen.items() if ok is not True] == ["alarms", "gateway's alarms"]
    seen = found(ListStackResources=no_table, DescribeAlarms={"MetricAlarms": [{**ALARM, "AlarmName": "other"}]})
    broken = {name: text for name, (ok, text) in seen.items() if ok is not True}
    assert broken.keys() == {"gateway's tombstones", "gateway's alarms"}
    assert "Deploy the Data stack" in broken["gateway's tombstones"]
    assert "exist: lost " in broken["gateway's alarms"]


def test_the_command_exits_with_1(run: Any, monkeypatch: Any) -> None:
    answers, client = shared()
    answers.clear()
    answers.update({**healthy(), "DescribeRule": {"State": "DISABLED"}})
    monkeypatch.setattr(command, "_clients", lambda _make, _endpoints: client)
    done = run("doctor", "--deployed", "--json")
    assert done.exit_code == 1
    assert {one["name"] for one in json.loads(done.stdout)["checks"] if one["ok"] is False} == {"schedule"}
