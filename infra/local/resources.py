"""Creates the local stack's tables, buckets, queue and dead-letter queue, secret and state machine.

They are the resources that infra/constructs declares, without those that exist only in AWS (keys, roles, alarms).
"""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.environment.functions import (
    DISPATCH_MAX_RECEIVES,
    DISPATCH_VISIBILITY_SECONDS,
    STATE_MACHINE_DEFINITION,
    placeholder,
)
from infra.environment.tables import EXPIRES_AT, TASK_INDEXES, TOMBSTONE_INDEXES
from infra.local.errors import CannotStartError

TASKS_TABLE = "delegation-tasks"
IDEMPOTENCY_TABLE = "delegation-idempotency"
REFERENCES_TABLE = "delegation-references"
TOMBSTONES_TABLE = "delegation-tombstones"
CATALOG_TABLES = ("delegation-catalog-objects", "delegation-catalog-references")
PLAN_BUCKET = "delegation-plans"
CODE_BUCKET = "delegation-code"
QUEUE = "delegation-dispatch"
NOTIFICATION_QUEUES = ("delegation-notifications", "delegation-notifications-events", "delegation-notifications-apart")
CALLBACK_KEYS = "callback-keys.json"
STATE_MACHINE = "delegation-purge"
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Queue:
    url: str
    arn: str


def create_tables(
    dynamodb: Any,
    tasks: str = TASKS_TABLE,
    idempotency: str = IDEMPOTENCY_TABLE,
    references: str = REFERENCES_TABLE,
    *,
    keys_expire: bool = True,
) -> None:
    """Create the task table with its indexes, the idempotency table with its time to live, the reference index.

    Without `keys_expire` records that have expired are kept. Existing tables, in a DynamoDB that outlives the stack,
    are used unchanged.
    """
    _create_table(dynamodb, tasks, {"task_id": "S", "version": "N"}, TASK_INDEXES)
    _create_table(dynamodb, idempotency, {"scope": "S"})
    _create_table(dynamodb, references, {"pk": "S", "sk": "S"})
    if not keys_expire:
        return
    ttl = {"Enabled": True, "AttributeName": EXPIRES_AT}
    try:
        dynamodb.update_time_to_live(TableName=idempotency, TimeToLiveSpecification=ttl)
    except dynamodb.exceptions.ClientError as exc:
        # DynamoDB returns this error if time to live is already enabled.
        if exc.response["Error"]["Code"] != "ValidationException":
            raise


def create_tombstones(dynamodb: Any, name: str = TOMBSTONES_TABLE) -> None:
    """Create the table of tombstones with its indexes; an existing one is used unchanged."""
    _create_table(dynamodb, name, {"table_key": "S", "tombstone_id": "S"}, TOMBSTONE_INDEXES, projected="ALL")


def _create_table(
    dynamodb: Any,
    name: str,
    key: Mapping[str, str],
    indexes: Sequence[tuple[str, str, str]] = (),
    *,
    projected: str = "KEYS_ONLY",
) -> None:
    options: dict[str, Any] = {}
    if indexes:
        projection = {"ProjectionType": projected}
        options["GlobalSecondaryIndexes"] = [
            {"IndexName": index, "KeySchema": _key_schema(names), "Projection": projection} for index, *names in indexes
        ]
    types = {**key, **{part: "S" for _, *names in indexes for part in names}}
    try:
        dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": part, "AttributeType": types[part]} for part in types],
            KeySchema=_key_schema(key),
            **options,
        )
    except dynamodb.exceptions.ResourceInUseException:
        return
    dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def _key_schema(names: Iterable[str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=False)]


def create_buckets(s3: Any, *names: str) -> None:
    """Create buckets; existing ones are used unchanged."""
    for name in names:
        try:
            s3.create_bucket(Bucket=name)
        except (s3.exceptions.BucketAlreadyOwnedByYou, s3.exceptions.BucketAlreadyExists):
            s3.head_bucket(Bucket=name)


def keep_versions(s3: Any, name: str) -> None:
    """Have a bucket keep the versions of its objects, so that deletes write delete markers."""
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})


def create_queue(sqs: Any, name: str = QUEUE, *, visibility_seconds: int = DISPATCH_VISIBILITY_SECONDS) -> Queue:
    """Create a queue, by default that of dispatches, with its dead-letter queue."""
    dead = _queue(sqs, f"{name}-dead", {})
    redrive = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": DISPATCH_MAX_RECEIVES}
    attributes = {"VisibilityTimeout": str(visibility_seconds), "RedrivePolicy": json.dumps(redrive)}
    return _queue(sqs, name, attributes)


def _queue(sqs: Any, name: str, attributes: Mapping[str, str]) -> Queue:
    url = sqs.create_queue(QueueName=name, Attributes=dict(attributes))["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return Queue(url, arn)


def create_secret(secrets_manager: Any, client_id: str, client_secret: str) -> str:
    """Store the service's credentials in Polaris; return the secret's ARN, the only part that functions receive."""
    text = json.dumps({"client_id": client_id, "client_secret": client_secret})
    arn: str = secrets_manager.create_secret(Name="delegation/polaris", SecretString=text)["ARN"]
    return arn


def create_callback_keys(secrets_manager: Any, names: Iterable[str], folder: Path) -> str:
    """Store a new key for each callback, also in a file for its receiver; return the secret's ARN."""
    text = json.dumps({name: [secrets.token_urlsafe(32)] for name in names})
    path = folder / CALLBACK_KEYS
    path.touch(mode=0o600)
    path.write_text(text + "\n", encoding="utf-8")
    arn: str = secrets_manager.create_secret(Name="delegation/callbacks", SecretString=text)["ARN"]
    return arn


def create_state_machine(states: Any, function_arns: Mapping[str, str], *, account: str) -> str:
    """Create the state machine from the definition that CDK deploys; `function_arns` by function name."""
    answer = states.create_state_machine(
        name=STATE_MACHINE,
        definition=definition(STATE_MACHINE_DEFINITION, function_arns),
        roleArn=f"arn:aws:iam::{account}:role/delegation-states",
        type="STANDARD",
    )
    arn: str = answer["stateMachineArn"]
    return arn


def definition(path: Path, function_arns: Mapping[str, str]) -> str:
    """Return the definition with its placeholders replaced; raise `CannotStartError` for an unknown placeholder."""
    values = {placeholder(name): arn for name, arn in function_arns.items()}
    text = path.read_text(encoding="utf-8")
    if unknown := sorted(set(_PLACEHOLDER.findall(text)) - set(values)):
        raise CannotStartError(
            "Step Functions", f"{path.name} has placeholders of unknown functions: {', '.join(unknown)}"
        )
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def reason(exc: BotoCoreError | ClientError) -> str:
    """Return why an AWS call failed, in one line."""
    return " ".join(str(exc).split())[:300]
