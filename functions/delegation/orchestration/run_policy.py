"""The policy of one job run, which narrows the role that all runs share (EMR Serverless, `executionIamPolicy`)."""

import json
from collections.abc import Sequence
from typing import Any, Final

from delegation.tasks.life.model import Task

READS: Final = (
    "dynamodb:BatchGetItem",
    "dynamodb:BatchWriteItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "logs:CreateLogStream",
    "logs:DescribeLogGroups",
    "logs:DescribeLogStreams",
    "logs:PutLogEvents",
    "s3:GetObject",
    "s3:ListBucket",
    "secretsmanager:GetSecretValue",
)
"""The actions that a run has as far as the role allows them; the policy names no resource that the role would not."""


def folders_of(task: Task, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the folders of the record bucket that a run of this task writes: its own, that of a given plan, `more`.

    A purge that executes the plan of a dry run keeps its marks and its receipt beside that plan.
    """
    folders = [task.task_id, f"results/{task.task_id}", *more]
    plan = _named_plan(task)
    return (*folders, plan) if plan is not None else tuple(folders)


def run_policy(role_arn: str, bucket: str, folders: Sequence[str]) -> str:
    """Return the policy of a run that may write to these folders of the record bucket and to no other object."""
    partition = role_arn.split(":")[1]
    written = [f"arn:{partition}:s3:::{bucket}/{folder}/*" for folder in folders]
    statements = [
        {"Effect": "Allow", "Action": list(READS), "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:PutObject", "Resource": written},
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _named_plan(task: Task) -> str | None:
    """Return the folder of the plan that a request named, None without one or for another kind of payload."""
    try:
        payload: Any = json.loads(task.task_payload)
    except ValueError:
        return None
    match payload:
        case {"operation_parameters": {"properties": {"plan": str(plan)}}}:
            return plan.partition("/")[0]
        case _:
            return None
