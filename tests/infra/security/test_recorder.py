"""The recorder writes the calls of a role once, by the settings' names, and none of other credentials or processes."""

from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.aws import mock_aws
from tests.infra.security import recording
from tests.infra.security.actions import needed
from tests.infra.security.policies import JOBS, Allowed
from tests.infra.security.recorder import Call, plugin_environment, role_of, uses

ENVIRON = {
    "DELEGATION_TASKS_TABLE": "tasks",
    "DELEGATION_PLAN_BUCKET": "plans",
    "DELEGATION_EMR_APPLICATION_ID": "app",
    "DELEGATION_EMR_JOB_ROLE_ARN": "arn:job",
    "DELEGATION_REVOCATION_LISTS": "s3://lists/a.crl,s3://lists/b.crl",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process records as the function `acquire`."""
    variables = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in (ENVIRON | variables | plugin_environment(tmp_path)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "acquire")
    return tmp_path


def get(client: object) -> None:
    with pytest.raises(ClientError):
        client.get_item(TableName="tasks", Key={"task_id": {"S": "x"}})  # type: ignore[attr-defined]


def test_a_call_with_the_roles_credentials_is_recorded_once(folder: Path) -> None:
    with mock_aws():
        client = boto3.client("dynamodb")
        get(client)
        get(client)
    [file] = folder.iterdir()
    assert file.read_text().count("\n") == 1
    assert recording.in_folder(folder) == {("acquire", "dynamodb", "GetItem", "{DELEGATION_TASKS_TABLE}")}
    recording.require_known(folder)


def test_a_call_with_vended_credentials_is_not(folder: Path) -> None:
    with mock_aws():
        get(boto3.client("dynamodb", aws_access_key_id="vended", aws_secret_access_key="vended"))
    assert recording.in_folder(folder) == frozenset()


def test_a_call_that_the_recording_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(recording.RECORDING_NOW, raising=False)
    (tmp_path / "1.jsonl").write_text('["acquire", "dynamodb", "Scan", "{DELEGATION_TASKS_TABLE}"]\n')
    with pytest.raises(AssertionError, match=r"Scan.*record"):
        recording.require_known(tmp_path)


@pytest.mark.parametrize(
    ("environ", "role"),
    [
        ({"AWS_LAMBDA_FUNCTION_NAME": "api"}, "api"),
        ({"SPARK_HOME": "/spark", "DELEGATION_PLAN_BUCKET": "plans"}, JOBS),
        ({"DELEGATION_PLAN_BUCKET": "plans"}, None),
    ],
)
def test_the_role_is_the_processes(environ: dict[str, str], role: str | None) -> None:
    assert role_of(environ) == role


@pytest.mark.parametrize(
    ("call", "params", "allowed"),
    [
        (
            ("dynamodb", "TransactWriteItems"),
            {"TransactItems": [{"Put": {"TableName": "tasks"}}, {"ConditionCheck": {"TableName": "tasks"}}]},
            [
                ("dynamodb:PutItem", "{DELEGATION_TASKS_TABLE}"),
                ("dynamodb:ConditionCheckItem", "{DELEGATION_TASKS_TABLE}"),
            ],
        ),
        (
            ("dynamodb", "Query"),
            {"TableName": "tasks", "IndexName": "due"},
            [("dynamodb:Query", "{DELEGATION_TASKS_TABLE}/index/due")],
        ),
        (("dynamodb", "BatchGetItem"), {"RequestItems": {"other": {}}}, [("dynamodb:BatchGetItem", "other")]),
        (("s3", "HeadObject"), {"Bucket": "plans", "Key": "k"}, [("s3:GetObject", "{DELEGATION_PLAN_BUCKET}/*")]),
        (("s3", "ListObjectsV2"), {"Bucket": "plans"}, [("s3:ListBucket", "{DELEGATION_PLAN_BUCKET}")]),
        (("s3", "GetObject"), {"Bucket": "lists", "Key": "b.crl"}, [("s3:GetObject", "{DELEGATION_REVOCATION_LISTS}")]),
        (
            ("events", "PutEvents"),
            {"Entries": [{"EventBusName": "ends"}, {}]},
            [("events:PutEvents", "ends"), ("events:PutEvents", "default")],
        ),
        (
            ("emr-serverless", "StartJobRun"),
            {"applicationId": "app", "executionRoleArn": "arn:job"},
            [
                ("emr-serverless:StartJobRun", "{DELEGATION_EMR_APPLICATION_ID}"),
                ("iam:PassRole", "{DELEGATION_EMR_JOB_ROLE_ARN}"),
            ],
        ),
        (("stepfunctions", "StartExecution"), {"stateMachineArn": "m"}, [("states:StartExecution", "m")]),
    ],
)
def test_what_a_call_needs(call: tuple[str, str], params: dict[str, object], allowed: list[tuple[str, str]]) -> None:
    service, operation = call
    found: list[Call] = [("api", service, *use) for use in uses(service, operation, params, ENVIRON)]
    assert [needed(each) for each in found] == [Allowed("api", action, resource) for action, resource in allowed]


def test_the_text_of_a_recording_is_read_back() -> None:
    calls = recording.committed()
    assert recording.written(calls) == recording.COMMITTED.read_text(encoding="utf-8")
    assert calls
