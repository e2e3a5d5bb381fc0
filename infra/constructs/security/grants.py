"""Statements on what the data stack keeps, shared by the functions' roles and the Spark job's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from infra.constructs.security.encryption import use_through
from infra.constructs.tables import DUE_INDEX

_TASK_WRITES: Final = ("dynamodb:GetItem", "dynamodb:PutItem")
"""Transitions are puts; inside a transaction they need the same leave (DynamoDB guide, "IAM for transactions")."""


def allow(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    """Named actions on named resources."""
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))


@dataclass(frozen=True)
class DataGrants:
    """What the data stack keeps, and statements on it."""

    key: kms.IKey
    tasks_table: dynamodb.ITable
    idempotency_table: dynamodb.ITable
    plan_bucket_arn: str
    polaris_secret_arn: str

    def tasks(self, *more: str) -> list[iam.PolicyStatement]:
        """Read and write tasks."""
        return [allow([*_TASK_WRITES, *more], self.tasks_table.table_arn), self._key_for_tables()]

    def idempotency(self) -> iam.PolicyStatement:
        """Read and write idempotency records."""
        return allow(_TASK_WRITES, self.idempotency_table.table_arn)

    def due(self) -> iam.PolicyStatement:
        """Ask what is due."""
        return allow(["dynamodb:Query"], f"{self.tasks_table.table_arn}/index/{DUE_INDEX}")

    def plans(self) -> list[iam.PolicyStatement]:
        """Write and read plans and receipts; never delete them."""
        return [
            allow(["s3:GetObject", "s3:PutObject"], f"{self.plan_bucket_arn}/*"),
            allow(["s3:ListBucket"], self.plan_bucket_arn),
            use_through(self.key, "s3", "Decrypt", "GenerateDataKey"),
        ]

    def read_plans(self) -> list[iam.PolicyStatement]:
        """Read plans."""
        return [
            allow(["s3:GetObject"], f"{self.plan_bucket_arn}/*"),
            allow(["s3:ListBucket"], self.plan_bucket_arn),
            use_through(self.key, "s3", "Decrypt"),
        ]

    def polaris(self) -> list[iam.PolicyStatement]:
        """Read the credentials of the service's principal."""
        return [
            allow(["secretsmanager:GetSecretValue"], self.polaris_secret_arn),
            use_through(self.key, "secretsmanager", "Decrypt"),
        ]

    def purge(self) -> list[iam.PolicyStatement]:
        """What an engine needs besides vended credentials, which are no one's role (DESIGN §5, two identities)."""
        return [*self.tasks(), *self.plans(), *self.polaris()]

    def _key_for_tables(self) -> iam.PolicyStatement:
        return use_through(self.key, "dynamodb", "Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey")
