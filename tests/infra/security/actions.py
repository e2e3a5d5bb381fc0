"""The IAM action that each recorded operation needs (Service Authorization Reference, one page for each service)."""

from typing import Final

from tests.infra.security.policies import Allowed
from tests.infra.security.recorder import Call

_PREFIXES: Final = {"stepfunctions": "states"}
"""The prefix of a service's actions where it is not botocore's name of the service."""
_ACTIONS: Final = {
    ("dynamodb", "TransactWriteItems.Put"): "dynamodb:PutItem",
    ("dynamodb", "TransactWriteItems.Update"): "dynamodb:UpdateItem",
    ("dynamodb", "TransactWriteItems.Delete"): "dynamodb:DeleteItem",
    ("dynamodb", "TransactWriteItems.ConditionCheck"): "dynamodb:ConditionCheckItem",
    ("dynamodb", "TransactGetItems.Get"): "dynamodb:GetItem",
    ("emr-serverless", "StartJobRun.PassRole"): "iam:PassRole",
    ("s3", "ListObjectsV2"): "s3:ListBucket",
    ("s3", "HeadBucket"): "s3:ListBucket",
    ("s3", "HeadObject"): "s3:GetObject",
    ("s3", "DeleteObjects"): "s3:DeleteObject",
    ("s3", "CreateMultipartUpload"): "s3:PutObject",
    ("s3", "UploadPart"): "s3:PutObject",
    ("s3", "CompleteMultipartUpload"): "s3:PutObject",
    ("sqs", "SendMessageBatch"): "sqs:SendMessage",
}
"""Operations whose action has another name; DynamoDB guide, "Using IAM with DynamoDB transactions"."""


def needed(call: Call) -> Allowed:
    """Return what a role must be allowed for a recorded call."""
    role, service, operation, resource = call
    action = _ACTIONS.get((service, operation), f"{_PREFIXES.get(service, service)}:{operation}")
    return Allowed(role, action, resource)
