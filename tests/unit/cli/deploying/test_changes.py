"""`delegation deploy-check`: what would be destroyed is refused before anything is deployed."""

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from delegation.cli.deployment import deploying as module
from delegation.cli.deployment.deploying import ADVICE, DeployedStacks, Risk, dangers_of, dangers_of_change_set

STACK = "PolarisDelegation-prod-Data"
TABLE = {"Type": "AWS::DynamoDB::Table", "Properties": {"BillingMode": "PAY_PER_REQUEST"}, "DeletionPolicy": "Retain"}
SUBNET = {"Type": "AWS::EC2::Subnet", "Properties": {"CidrBlock": "10.0.0.0/21"}}
APPLICATION = {"Type": "AWS::EMRServerless::Application", "Properties": {"MaximumCapacity": {"Cpu": "64 vCPU"}}}
OTHER = {"Type": "AWS::IAM::Role", "Properties": {"RoleName": "a"}}


def template(exports: dict[str, Any] | None = None, **resources: Any) -> dict[str, Any]:
    outputs = {
        f"Output{at}": {"Value": value, "Export": {"Name": name}}
        for at, (name, value) in enumerate((exports or {}).items())
    }
    return {"Resources": resources, "Outputs": outputs}


def changed(resource: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {**resource, "Properties": {**resource["Properties"], **properties}}


def harms(before: Any, after: Any, users: tuple[str, ...] = ()) -> list[tuple[Risk, str]]:
    return [(one.harm, one.name) for one in dangers_of({STACK: before}, {STACK: after}, lambda _: users)]


def test_what_stays_is_no_danger() -> None:
    same = template({"x": 1}, Table=TABLE, Subnet=SUBNET, Application=APPLICATION, Role=OTHER)
    assert harms(same, same, ("Service",)) == []
    more = template({"x": 1, "y": 2}, **same["Resources"], New=TABLE)
    assert harms(same, more, ("Service",)) == []
    assert harms(template(Table=TABLE), template(Table=changed(TABLE, BillingMode="PROVISIONED"))) == []
    assert harms(template(Role=OTHER), template()) == []
    tagged = changed(APPLICATION, Tags=[{"Key": "a", "Value": "b"}])  # also while it runs
    assert harms(template(One=APPLICATION), template(One=tagged)) == []
    assert dangers_of({STACK: template(Table=TABLE)}, {}, lambda _: ()) == [], "a stack that is no more synthesized"


@pytest.mark.parametrize(
    ("before", "after", "harm"),
    [
        (TABLE, changed(TABLE, TableName="other"), Risk.REPLACED),
        (TABLE, {**TABLE, "Type": "AWS::DynamoDB::GlobalTable"}, Risk.REMOVED),
        (TABLE, None, Risk.REMOVED),
        (SUBNET, changed(SUBNET, CidrBlock="10.0.8.0/22"), Risk.NETWORK_REPLACED),
        (APPLICATION, changed(APPLICATION, MaximumCapacity={"Cpu": "128 vCPU"}), Risk.APPLICATION_MUST_STOP),
    ],
)
def test_what_would_be_lost_or_refused_is_named(before: Any, after: Any, harm: Risk) -> None:
    assert harms(template(One=before), template(**({} if after is None else {"One": after}))) == [(harm, "One")]


def indexed(*names: str) -> dict[str, Any]:
    return changed(TABLE, GlobalSecondaryIndexes=[{"IndexName": name} for name in names])


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (("due",), ("due", "admission"), []),
        ((), ("due", "admission"), [(Risk.INDEXES_AT_ONCE, "One")]),
        (("due",), ("admission",), [(Risk.INDEXES_AT_ONCE, "One")]),
        (("due", "admission"), (), [(Risk.INDEXES_AT_ONCE, "One")]),
        (("due", "admission"), ("admission", "due"), []),
    ],
)
def test_more_indexes_than_dynamodb_makes_at_once_are_refused(before, after, found):
    """An update with two of them fails: "Cannot perform more than one GSI creation or deletion in a single update"."""
    assert harms(template(One=indexed(*before)), template(One=indexed(*after))) == found


def starting(former: str = "") -> dict[str, Any]:
    variables = {"DELEGATION_EMR_APPLICATION_ID": {"Ref": "New"}}
    named = {"DELEGATION_EMR_FORMER_APPLICATION_IDS": former} if former else {}
    return {"Type": "AWS::Lambda::Function", "Properties": {"Environment": {"Variables": {**variables, **named}}}}


@pytest.mark.parametrize(
    ("functions", "found"),
    [
        ({"Start": starting()}, [Risk.APPLICATION_LEFT]),
        ({"Start": starting("00f1"), "Sweeper": starting()}, [Risk.APPLICATION_LEFT]),
        ({"Start": starting("00f1")}, [Risk.APPLICATION_LEFT]),
        ({"Start": starting("00f1,00f2"), "Sweeper": starting("00f2")}, []),
    ],
)
def test_an_application_whose_jobs_some_function_would_not_know_is_named(functions: Any, found: list[Risk]) -> None:
    before, after = template(One=APPLICATION), template(Two=APPLICATION, **functions)
    dangers = dangers_of({STACK: before}, {STACK: after}, lambda _: (), lambda _stack, _name: "00f2")
    assert [one.harm for one in dangers] == found
    assert all("00f2" in one.reason for one in dangers)


@pytest.mark.parametrize("after", [{}, {"x": 2}], ids=["removed", "changed"])
def test_an_export_is_refused_only_while_it_is_imported(after: dict[str, Any]) -> None:
    assert harms(template({"x": 1}), template(after), ("Service",)) == [(Risk.EXPORT_IN_USE, "x")]
    assert harms(template({"x": 1}), template(after)) == []


def resource_change(kind: str, action: str, replacement: str | None = None) -> dict[str, Any]:
    change = {"LogicalResourceId": "One", "ResourceType": kind, "Action": action}
    return {"Type": "Resource", "ResourceChange": change | ({"Replacement": replacement} if replacement else {})}


@pytest.mark.parametrize(
    ("kind", "action", "replacement", "found"),
    [
        ("AWS::DynamoDB::Table", "Modify", "True", [Risk.REPLACED]),
        ("AWS::DynamoDB::Table", "Modify", "Conditional", [Risk.REPLACED]),
        ("AWS::DynamoDB::Table", "Modify", "False", []),
        ("AWS::DynamoDB::Table", "Remove", None, [Risk.REMOVED]),
        ("AWS::DynamoDB::Table", "Add", None, []),
        ("AWS::EC2::Subnet", "Modify", "True", [Risk.NETWORK_REPLACED]),
        ("AWS::EC2::Subnet", "Remove", None, []),
        ("AWS::IAM::Role", "Remove", None, []),
    ],
)
def test_a_change_set_says_what_cloudformation_would_replace(kind, action, replacement, found):
    assert [one.harm for one in dangers_of_change_set(STACK, [resource_change(kind, action, replacement)])] == found


@pytest.fixture
def assembly(tmp_path: Path) -> Path:
    folder = tmp_path / "cdk.out"
    folder.mkdir()
    stack = {"type": "aws:cloudformation:stack", "properties": {"templateFile": "data.json", "stackName": STACK}}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": {"Data": stack, "Tree": {"type": "cdk:tree"}}}))
    (folder / "data.json").write_text(json.dumps(template(Subnet=changed(SUBNET, CidrBlock="10.0.8.0/22"))))
    return folder


@pytest.fixture
def cloudformation(monkeypatch: pytest.MonkeyPatch) -> Any:
    client = boto3.client("cloudformation", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    monkeypatch.setattr(module.DeployedStacks, "connect", lambda: DeployedStacks(client))
    with Stubber(client) as stubbed:
        yield stubbed


def deployed(cloudformation: Any, found: Any) -> None:
    asked = {"StackName": STACK, "TemplateStage": "Original"}
    cloudformation.add_response("get_template", {"TemplateBody": json.dumps(found)}, asked)


def test_the_command_refuses_and_says_what_to_do(run, assembly, cloudformation) -> None:
    deployed(cloudformation, template(Subnet=SUBNET, Table=TABLE))
    done = run("deploy-check", "--app", str(assembly))
    assert done.exit_code == 1
    text = " ".join(done.stdout.split())
    assert f"✗ {STACK} Subnet the AWS::EC2::Subnet would be replaced" in text
    assert "CidrBlock" in text
    assert f"✗ {STACK} Table the AWS::DynamoDB::Table would be kept without a stack." in text
    assert "2 changes must not be deployed" in done.stderr


def test_json_has_harm_and_advice(run, assembly, cloudformation) -> None:
    deployed(cloudformation, template(Subnet=SUBNET))
    done = run("deploy-check", "--app", str(assembly), "--json")
    (one,) = json.loads(done.stdout)["refused"]
    assert (one["harm"], one["stack"], one["name"]) == ("NETWORK_REPLACED", STACK, "Subnet")
    assert one["advice"] == ADVICE[Risk.NETWORK_REPLACED]
    assert ADVICE.keys() == set(Risk)
    assert json.loads(done.stderr)["error_code"] == "DEPLOY_REFUSED"


def test_a_first_deployment_holds_nothing(run, assembly, cloudformation) -> None:
    cloudformation.add_client_error("get_template", "ValidationError", "Stack with id x does not exist")
    done = run("deploy-check", "--app", str(assembly))
    assert (done.exit_code, done.stdout) == (0, "Nothing that holds data is replaced or removed.\n")


def test_a_change_set_is_read_to_its_last_page(run, assembly, cloudformation) -> None:
    deployed(cloudformation, template())
    asked = {"StackName": STACK, "ChangeSetName": "check"}
    cloudformation.add_response("describe_change_set", {"Changes": [], "NextToken": "2"}, asked)
    last = {"Changes": [resource_change("AWS::S3::Bucket", "Modify", "True")]}
    cloudformation.add_response("describe_change_set", last, {**asked, "NextToken": "2"})
    done = run("deploy-check", "--app", str(assembly), "--change-set", "check", "--json")
    assert [one["harm"] for one in json.loads(done.stdout)["refused"]] == ["REPLACED"]


def test_an_account_that_does_not_answer_is_no_permission_to_deploy(run, assembly, cloudformation) -> None:
    cloudformation.add_client_error("get_template", "AccessDenied", "no")
    done = run("deploy-check", "--app", str(assembly), "--json")
    assert done.exit_code == 1
    assert json.loads(done.stderr)["error_code"] == "BAD_CONNECTION"


@pytest.mark.parametrize("content", [None, "{", "{}", '{"artifacts": {"a": {"type": "aws:cloudformation:stack"}}}'])
def test_a_folder_without_templates_is_named(run, tmp_path, cloudformation, content) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    done = run("deploy-check", "--app", str(tmp_path), "--json")
    if content == "{}":
        assert done.exit_code == 0  # an app without stacks
    else:
        assert json.loads(done.stderr)["error_code"] == "NOT_SYNTHESIZED"
