"""The resources of the data stack, and their protection."""

from itertools import pairwise
from typing import Any

import pytest

from infra.environment.tables import TASK_INDEXES
from infra.local.resources import create_tables

TABLE = "AWS::DynamoDB::Table"


def tables(data: Any) -> dict[str, dict[str, Any]]:
    by_key = {body["Properties"]["KeySchema"][0]["AttributeName"]: body for body in data.resources(TABLE).values()}
    assert set(by_key) == {"task_id", "scope", "pk", "table_key"}
    return by_key


def test_the_stack_refuses_termination(data: Any) -> None:
    assert data.stack.termination_protection


@pytest.mark.parametrize("key", ["task_id", "scope", "pk", "table_key"])
def test_tables_have_point_in_time_recovery_and_refuse_deletion(data: Any, key: str) -> None:
    properties = tables(data)[key]["Properties"]
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert properties["DeletionProtectionEnabled"] is True
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["SSESpecification"]["SSEType"] == "KMS"
    (key_id,) = data.resources("AWS::KMS::Key")
    assert properties["SSESpecification"]["KMSMasterKeyId"] == {"Fn::GetAtt": [key_id, "Arn"]}


def test_the_task_table_has_the_keys_and_index_that_the_store_uses(data: Any) -> None:
    properties = tables(data)["task_id"]["Properties"]
    assert properties["KeySchema"] == [
        {"AttributeName": "task_id", "KeyType": "HASH"},
        {"AttributeName": "version", "KeyType": "RANGE"},
    ]
    kinds = {part["AttributeName"]: part["AttributeType"] for part in properties["AttributeDefinitions"]}
    places = {
        "due": ("due_bucket", "due_at"),
        "admission": ("admission_bucket", "admission_key"),
        "received": ("received_bucket", "received_key"),
        "target": ("target_key", "received_key"),
        "correlation": ("correlation_key", "received_key"),
    }
    names = {name for pair in places.values() for name in pair}
    assert kinds == {"task_id": "S", "version": "N", **dict.fromkeys(names, "S")}
    indexes = {index["IndexName"]: index for index in properties["GlobalSecondaryIndexes"]}
    assert {
        name: tuple(part["AttributeName"] for part in index["KeySchema"]) for name, index in indexes.items()
    } == places
    for index in indexes.values():
        assert [part["KeyType"] for part in index["KeySchema"]] == ["HASH", "RANGE"]
        assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    assert "TimeToLiveSpecification" not in properties  # the history does not expire


def test_idempotency_records_expire(data: Any) -> None:
    properties = tables(data)["scope"]["Properties"]
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert properties["KeySchema"] == [{"AttributeName": "scope", "KeyType": "HASH"}]


class RecordingDynamoDb:
    """A DynamoDB client without tables that records what is created."""

    class exceptions:
        class ResourceInUseException(Exception): ...

        class ClientError(Exception): ...

    def __init__(self) -> None:
        self.created: dict[str, dict[str, Any]] = {}

    def create_table(self, *, TableName: str, **properties: Any) -> None:
        self.created[TableName] = properties

    def update_time_to_live(self, *, TableName: str, TimeToLiveSpecification: dict[str, Any]) -> None:
        self.created[TableName]["TimeToLiveSpecification"] = TimeToLiveSpecification

    def get_waiter(self, _name: str) -> "RecordingDynamoDb":
        return self

    def wait(self, **_options: Any) -> None: ...


def test_the_local_stack_creates_the_same_tables(data: Any) -> None:
    local = RecordingDynamoDb()
    create_tables(local)
    deployed = tables(data)
    del deployed["table_key"]  # the local stack creates the tombstones' with its gateway
    assert len(local.created) == len(deployed)
    for properties in local.created.values():
        twin = deployed[properties["KeySchema"][0]["AttributeName"]]["Properties"]
        by_name = lambda parts: sorted(parts, key=lambda part: part["AttributeName"])  # noqa: E731
        assert by_name(properties.pop("AttributeDefinitions")) == by_name(twin["AttributeDefinitions"])
        assert properties == {name: twin[name] for name in properties}
        assert {"GlobalSecondaryIndexes", "TimeToLiveSpecification"} & set(twin) <= set(properties)


def test_the_key_rotates(data: Any) -> None:
    data.template.has_resource_properties("AWS::KMS::Key", {"EnableKeyRotation": True})


def test_buckets_are_private_encrypted_and_accept_tls_only(data: Any) -> None:
    buckets = data.resources("AWS::S3::Bucket")
    policies = {
        body["Properties"]["Bucket"]["Ref"]: body["Properties"]["PolicyDocument"]["Statement"]
        for body in data.resources("AWS::S3::BucketPolicy").values()
    }
    assert set(policies) == set(buckets)
    for name, body in buckets.items():
        assert body["Properties"]["PublicAccessBlockConfiguration"] == {
            "BlockPublicAcls": True,
            "BlockPublicPolicy": True,
            "IgnorePublicAcls": True,
            "RestrictPublicBuckets": True,
        }
        assert body["Properties"]["BucketEncryption"]
        denied = [
            statement["Condition"]
            for statement in policies[name]
            if statement["Effect"] == "Deny"
            and statement["Action"] == "s3:*"
            and statement["Principal"] == {"AWS": "*"}
        ]
        assert {"Bool": {"aws:SecureTransport": "false"}} in denied
        assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied


def test_plans_are_versioned_encrypted_with_the_key_and_expire(data: Any, deployment: Any) -> None:
    logical_id = deployment.data.get_logical_id(deployment.data.buckets.plans.node.default_child)
    properties = data.resources("AWS::S3::Bucket")[logical_id]["Properties"]
    assert properties["VersioningConfiguration"] == {"Status": "Enabled"}
    (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["BucketKeyEnabled"] is True
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    rules = {rule["Id"]: rule for rule in properties["LifecycleConfiguration"]["Rules"]}
    assert rules["expire"]["ExpirationInDays"] == 365
    assert rules["expire"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert rules["expire"]["Status"] == "Enabled"


def test_the_secret_is_created_without_a_value(data: Any) -> None:
    (secret,) = data.resources("AWS::SecretsManager::Secret").values()
    assert set(secret["Properties"]) == {"Description", "KmsKeyId", "Tags"}


def test_without_cleanup_no_idempotency_record_is_deleted(node: str) -> None:
    """`polaris.idempotency.cleanup.enabled` = false."""
    from aws_cdk import App, Stack
    from aws_cdk import aws_kms as kms
    from aws_cdk.assertions import Template

    from infra.constructs.stores import TaskTables

    stack = Stack(App(), "Data")
    TaskTables(stack, "Tables", key=kms.Key(stack, "Key"), keys_expire=False)
    found = Template.from_stack(stack).find_resources(TABLE)
    local = RecordingDynamoDb()
    create_tables(local, keys_expire=False)
    for properties in (*(body["Properties"] for body in found.values()), *local.created.values()):
        assert "TimeToLiveSpecification" not in properties


def test_an_upgrade_adds_one_index_of_the_task_table_at_a_deployment(node: str) -> None:
    """DynamoDB refuses an update with two; `delegation deploy-check` names it."""
    from aws_cdk import App, Stack
    from aws_cdk import aws_kms as kms
    from aws_cdk.assertions import Template

    from infra.constructs.stores import TaskTables

    def deployed(indexes: int) -> dict[str, Any]:
        stack = Stack(App(), "Data")
        tables = TaskTables(stack, "Tables", key=kms.Key(stack, "Key"), task_indexes=indexes)
        document: dict[str, Any] = Template.from_stack(stack).to_json()
        name = stack.get_logical_id(tables.tasks.node.default_child)  # type: ignore[arg-type]
        properties: dict[str, Any] = document["Resources"][name]["Properties"]
        return properties

    steps = [deployed(number)["GlobalSecondaryIndexes"] for number in range(1, len(TASK_INDEXES) + 1)]
    for number, (before, after) in enumerate(pairwise(steps), start=1):
        assert [one for one in after if one not in before] == [after[number]]
        assert [one for one in before if one not in after] == []
    assert {one["AttributeName"] for one in deployed(1)["AttributeDefinitions"]} == {
        *("task_id", "version", "due_bucket", "due_at")
    }
