"""What roles are allowed and no recorded call shows, each with the reason.

Either another part than the role's own code makes the call, or the code makes it only after a fault or with old items,
which the recorded runs do not have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.infra.security.policies import API_ADDRESS, FLOW_LOG, JOBS, STATE_MACHINE, Allowed

_STEPS: Final = ("acquire", "prepare", "run_inline", "start_job", "heartbeat", "complete", "make_due")
_WITH_TABLES: Final = ("api", "dispatcher", "sweeper", *_STEPS, "notifier", "gateway")
_FUNCTIONS: Final = (*_WITH_TABLES, "authorizer", "rotate_secret", "probe_front")
_IN_VPC: Final = ("api", "authorizer", "prepare", "run_inline", "gateway", "rotate_secret", "probe_front")
_KEY: Final = "AWS::KMS::Key"
_LOG: Final = "AWS::Logs::LogGroup"
_REFERENCES: Final = "{DELEGATION_REFERENCES_TABLE}"
_TOMBSTONES: Final = "{DELEGATION_TOMBSTONES_TABLE}"
_BOOTSTRAP_KEY: Final = "arn:aws:kms:eu-central-1:123456789012:key/5678abcd-0000-4000-8000-000000000000"
_SETTINGS_IN_S3: Final = ("start_job", JOBS)
_ENDING: Final = ("api", "gateway", "sweeper", "acquire", "run_inline", "heartbeat", "complete", "make_due")
_RECORDS: Final = "{DELEGATION_IDEMPOTENCY_TABLE}"
_TASKS: Final = "{DELEGATION_TASKS_TABLE}"
_CALLBACKS: Final = "{DELEGATION_NOTIFICATION_QUEUE_URL}"
_EVENTS: Final = "{DELEGATION_EVENT_QUEUE_URL}"
_APART: Final = "{DELEGATION_APART_QUEUE_URL}"


@dataclass(frozen=True, slots=True)
class Unseen:
    """Actions that roles have on a resource without a recorded call, and why."""

    roles: tuple[str, ...]
    actions: tuple[str, ...]
    resource: str
    reason: str

    def each(self) -> Iterator[Allowed]:
        """Yield every role's every action."""
        for role in self.roles:
            for action in self.actions:
                yield Allowed(role, action, self.resource)


UNSEEN: Final = (
    Unseen(
        (JOBS,),
        ("dynamodb:Query",),
        f"{_TASKS}/index/admission",
        "Only the job of the shared worker lets waiting rewrites start, in a deployment with limits.",
    ),
    Unseen(
        ("run_inline",),
        ("sts:AssumeRole",),
        "arn:aws:iam::123456789012:role/lake/quarantine",
        "Only a removal that tags orphan files assumes the operator's role.",
    ),
    Unseen(
        (*_FUNCTIONS, JOBS, API_ADDRESS, FLOW_LOG),
        ("logs:CreateLogStream", "logs:PutLogEvents"),
        _LOG,
        "Lambda, EMR and the VPC write their logs themselves.",
    ),
    Unseen((JOBS, FLOW_LOG), ("logs:DescribeLogStreams",), _LOG, "EMR and the VPC look for the stream to continue."),
    Unseen((JOBS,), ("logs:DescribeLogGroups",), "*", "EMR looks for the application's log group."),
    Unseen(_FUNCTIONS, ("xray:PutTraceSegments", "xray:PutTelemetryRecords"), "*", "Lambda's daemon sends traces."),
    Unseen(
        _IN_VPC,
        (
            "ec2:AssignPrivateIpAddresses",
            "ec2:CreateNetworkInterface",
            "ec2:DeleteNetworkInterface",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSubnets",
            "ec2:UnassignPrivateIpAddresses",
        ),
        "*",
        "Lambda makes the interfaces of a function in a VPC; a Deny forbids the function's code the same.",
    ),
    Unseen(
        (API_ADDRESS,),
        ("ec2:DescribeNetworkInterfaces",),
        "*",
        "The code of this custom resource is in the template, and runs only during a deployment.",
    ),
    Unseen(
        (*_WITH_TABLES, JOBS),
        ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
        f"{_KEY} through dynamodb",
        "DynamoDB uses the table's key in the caller's name.",
    ),
    Unseen(
        ("api", "run_inline", JOBS),
        ("kms:Decrypt", "kms:GenerateDataKey"),
        f"{_KEY} through s3",
        "S3 uses the bucket's key in the caller's name.",
    ),
    Unseen(("prepare",), ("kms:Decrypt",), f"{_KEY} through s3", "As above, for a reader."),
    Unseen(
        ("api", "gateway", "prepare", "run_inline", "notifier", "rotate_secret", JOBS),
        ("kms:Decrypt",),
        f"{_KEY} through secretsmanager",
        "Secrets Manager uses the secret's key in the caller's name.",
    ),
    Unseen(
        ("probe_front",),
        ("secretsmanager:GetSecretValue",),
        "{DELEGATION_PROBE_SECRET_ARN}",
        "The local stack has no probe; tests/unit/handlers/test_probe_front.py reads the secret.",
    ),
    Unseen(("rotate_secret",), ("kms:GenerateDataKey",), f"{_KEY} through secretsmanager", "As above, for a writer."),
    Unseen(
        ("api", "gateway", "sweeper", "acquire", "prepare", "run_inline", "heartbeat", "complete", "make_due"),
        ("kms:Decrypt", "kms:GenerateDataKey"),
        f"{_KEY} through sqs",
        "SQS uses the queue's key in the sender's name.",
    ),
    Unseen(("dispatcher", "notifier"), ("kms:Decrypt",), f"{_KEY} through sqs", "And in the receiver's name."),
    Unseen(
        ("dispatcher",),
        ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
        "{DELEGATION_QUEUE_URL}",
        "Lambda's event source mapping receives with the function's role.",
    ),
    *(
        Unseen(
            ("notifier",),
            ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
            queue,
            "Lambda's event source mapping receives with the function's role.",
        )
        for queue in (_CALLBACKS, _EVENTS, _APART)
    ),
    Unseen((JOBS,), ("s3:GetObject",), "{DELEGATION_EMR_ENTRY_POINT}", "EMR fetches the main file itself."),
    Unseen((JOBS,), ("s3:GetObject",), "asset", "EMR unpacks the archive; the stack has the package on its path."),
    Unseen(
        (STATE_MACHINE,),
        (
            "logs:CreateLogDelivery",
            "logs:DeleteLogDelivery",
            "logs:DescribeLogGroups",
            "logs:DescribeResourcePolicies",
            "logs:GetLogDelivery",
            "logs:ListLogDeliveries",
            "logs:PutResourcePolicy",
            "logs:UpdateLogDelivery",
        ),
        "*",
        "Step Functions sets up its logs (Step Functions developer guide, Logging using CloudWatch Logs).",
    ),
    Unseen(
        (STATE_MACHINE,),
        ("xray:GetSamplingRules", "xray:GetSamplingTargets", "xray:PutTelemetryRecords", "xray:PutTraceSegments"),
        "*",
        "Step Functions sends its traces itself.",
    ),
    Unseen(
        _SETTINGS_IN_S3, ("s3:GetObject",), "{DELEGATION_SETTINGS_OBJECT}", "Settings without room in the variables."
    ),
    Unseen(
        (*_SETTINGS_IN_S3,),
        ("kms:Decrypt",),
        f"{_BOOTSTRAP_KEY} through s3",
        "S3 uses the bootstrap bucket's key in the caller's name.",
    ),
    Unseen(
        ("authorizer",),
        ("s3:GetObject",),
        "{DELEGATION_REVOCATION_LISTS}",
        "The local stack has no revocation list in S3; tests/unit/edge/trust reads them.",
    ),
    Unseen(
        ("api",),
        ("dynamodb:Query",),
        f"{_TASKS}/index/correlation",
        "The recorded runs list tasks by table; a list by correlation id uses this index.",
    ),
    Unseen(("api",), ("dynamodb:Query",), f"{_TASKS}/index/admission", "The place of a task that waits, when asked."),
    Unseen(("api",), ("dynamodb:Query",), f"{_TOMBSTONES}/index/newest", "A list of tombstones, the newest first."),
    Unseen(
        ("gateway",),
        ("dynamodb:GetItem",),
        _RECORDS,
        "A write without a clear answer is read back (polaris_common/dynamodb.py, put_once).",
    ),
    Unseen(("gateway",), ("dynamodb:GetItem",), _TOMBSTONES, "As above."),
    Unseen(
        ("gateway",),
        ("dynamodb:Query",),
        f"{_TOMBSTONES}/index/callers",
        "Owners list their own tombstones (docs/gateway.md, Undrop); the recorded ones are operators'.",
    ),
    Unseen(
        (JOBS,),
        ("dynamodb:GetItem", "dynamodb:PutItem"),
        _TOMBSTONES,
        "A job that purges a dropped table reads its tombstone and records its end; the recorded ones are small.",
    ),
    Unseen(
        (JOBS, "run_inline"),
        ("dynamodb:BatchWriteItem", "dynamodb:DeleteItem"),
        _REFERENCES,
        "A purge makes the pass over its catalog that it needs (references/refresh.py).",
    ),
    Unseen(
        (JOBS,),
        ("dynamodb:PutItem",),
        _REFERENCES,
        "A purge makes the pass over its catalog that it needs (references/refresh.py).",
    ),
    Unseen(
        ("run_inline",),
        ("dynamodb:ConditionCheckItem", "dynamodb:DeleteItem"),
        _TASKS,
        "Maintenance deletes tasks after their retention, which no run waits for (delegation.tasks.work.maintenance).",
    ),
    Unseen(
        ("run_inline",),
        ("dynamodb:BatchGetItem",),
        _TASKS,
        "A parent reads its children (delegation.tasks.work.reads); the recorded run has none.",
    ),
    Unseen(
        ("run_inline", JOBS),
        ("dynamodb:Query",),
        f"{_TASKS}/index/due",
        "A removal of orphan files finds unfinished tasks (removal/orphans/claims.py); none is recorded.",
    ),
    Unseen((JOBS,), ("dynamodb:BatchGetItem",), _TASKS, "As above: it reads the tasks that it found."),
    Unseen(
        ("run_inline",),
        ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem"),
        _RECORDS,
        "Maintenance starts the expiry of idempotency records and deletes expired ones (idempotency/store.py).",
    ),
    Unseen(
        _ENDING,
        ("sqs:SendMessage",),
        _CALLBACKS,
        "Any of them may end a task and send what its end announces; the recorded run ends its tasks in others.",
    ),
    Unseen(
        (*_ENDING, "prepare"),
        ("sqs:SendMessage",),
        _EVENTS,
        "As with callbacks; the recorded run had one queue for both.",
    ),
    Unseen(
        ("sweeper",),
        ("sqs:SendMessage",),
        _APART,
        "The sweeper sends what is for receivers that are set apart (delegation.notifications.delivery).",
    ),
    *(
        Unseen(("sweeper",), ("sqs:GetQueueAttributes",), queue, "It fills no queue of notifications beyond its room.")
        for queue in (_CALLBACKS, _EVENTS, _APART)
    ),
)


def unseen() -> list[Allowed]:
    """Return everything in the list, each as often as it is listed."""
    return [each for group in UNSEEN for each in group.each()]
