"""Fixtures of `delegation doctor`: a deployment in this process, an emulated AWS, and the settings of both."""

import json
from collections.abc import Iterator

import boto3
import pytest

from tests.aws import mock_aws
from tests.contract.task_tables import create_task_table
from tests.unit.cli.doctor.world import Deployment, Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[Servers]:
    found = Servers(tmp_path_factory.mktemp("deployment"))
    yield found
    found.stop()


@pytest.fixture
def deployment(servers) -> Deployment:
    found = Deployment()
    servers.serve(found)
    return found


@pytest.fixture(scope="module")
def aws() -> Iterator[dict[str, str]]:
    """The parts of a deployment on an emulated AWS, by their settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with mock_aws():
            dynamodb, sqs = boto3.client("dynamodb"), boto3.client("sqs")
            for table in ("idempotency", "references"):
                dynamodb.create_table(
                    TableName=table,
                    BillingMode="PAY_PER_REQUEST",
                    AttributeDefinitions=[{"AttributeName": "scope", "AttributeType": "S"}],
                    KeySchema=[{"AttributeName": "scope", "KeyType": "HASH"}],
                )
            dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
            arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
            boto3.client("s3").create_bucket(Bucket="plans-of-the-service")
            yield {
                "tasks_table": create_task_table(dynamodb),
                "idempotency_table": "idempotency",
                "references_table": "references",
                "queue_url": sqs.create_queue(QueueName="tasks", Attributes={"RedrivePolicy": redrive})["QueueUrl"],
                "plan_bucket": "plans-of-the-service",
            }


@pytest.fixture
def settings(servers, deployment, aws, monkeypatch):
    """The settings of a healthy set-up; a test replaces some."""
    values = {
        "edge_url": servers.edge_url,
        "ca_cert": str(servers.authority.files.cert),
        "operator_cert": str(servers.operator.cert),
        "operator_key": str(servers.operator.key),
        "token_url": f"{servers.plain_url}/issuer/token",
        "client_id": "alice",
        "client_secret": "pw",
        "scope": "manage_tasks",
        "realm": "POLARIS",
        "polaris_url": f"{servers.plain_url}/api/catalog",
        "polaris_service_credential": "service:pw",
        "polaris_admin_credential": "admin:pw",
        **aws,
    }

    def put(**changes: str | None) -> None:
        for name, value in {**values, **changes}.items():
            if value is None:
                monkeypatch.delenv(f"DELEGATION_{name.upper()}", raising=False)
            else:
                monkeypatch.setenv(f"DELEGATION_{name.upper()}", value)

    put()
    return put
