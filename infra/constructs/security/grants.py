"""Policy statements on the data stack's resources, for the roles of the functions and of the Spark job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from infra.constructs.security.encryption import use_through
from infra.constructs.stores import ADMISSION_INDEX, CORRELATION_INDEX, DUE_INDEX, RECEIVED_INDEX, TARGET_INDEX

_WRITES: Final = ("dynamodb:GetItem", "dynamodb:PutItem")
"""A put in a transaction needs the same permission (DynamoDB guide, "Using IAM with DynamoDB transactions")."""


def allow(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))


@dataclass(frozen=True)
class DataGrants:
    """The data stack's resources, and statements that allow access to them."""

    key: kms.IKey
    tasks_table: dynamodb.ITable
    idempotency_table: dynamodb.ITable
    references_table: dynamodb.ITable
    plan_bucket_arn: str
    polaris_secret_arn: str
    callback_keys_arn: str | None = None
    tombstones_table: dynamodb.ITable | None = None

    def tasks(self, *more: str) -> list[iam.PolicyStatement]:
        """Allow reading and writing tasks, and the actions `more` on their table."""
        return [allow([*_WRITES, *more], self.tasks_table.table_arn), self._key_for_tables()]

    def idempotency(self) -> iam.PolicyStatement:
        return allow(_WRITES, self.idempotency_table.table_arn)

    def references(self) -> iam.PolicyStatement:
        return allow(
            [*_WRITES, "dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:Query"],
            self.references_table.table_arn,
        )

    def tombstones(self, index: str | None = None, *, of_a_table: bool = False) -> list[iam.PolicyStatement]:
        """Allow reading and writing tombstones where there is a gateway, and querying one index or those of a table."""
        if self.tombstones_table is None:
            return []
        table = self.tombstones_table.table_arn
        queried = ([f"{table}/index/{index}"] if index else []) + ([table] if of_a_table else [])
        return [allow(_WRITES, table), *([allow(["dynamodb:Query"], *queried)] if queried else [])]

    def due(self) -> iam.PolicyStatement:
        return allow(["dynamodb:Query"], f"{self.tasks_table.table_arn}/index/{DUE_INDEX}")

    def unfinished(self) -> list[iam.PolicyStatement]:
        return [self.due(), allow(["dynamodb:BatchGetItem"], self.tasks_table.table_arn)]

    def admission(self) -> iam.PolicyStatement:
        return allow(["dynamodb:Query"], f"{self.tasks_table.table_arn}/index/{ADMISSION_INDEX}")

    def lists(self) -> list[iam.PolicyStatement]:
        """Allow querying the indexes of received tasks, and reading the tasks that they name."""
        names = (RECEIVED_INDEX, TARGET_INDEX, CORRELATION_INDEX)
        return [
            allow(["dynamodb:Query"], *(f"{self.tasks_table.table_arn}/index/{name}" for name in names)),
            allow(["dynamodb:BatchGetItem"], self.tasks_table.table_arn),
        ]

    def plans(self) -> list[iam.PolicyStatement]:
        """Allow reading and writing plans and receipts, not deleting them."""
        return [
            allow(["s3:GetObject", "s3:PutObject"], f"{self.plan_bucket_arn}/*"),
            allow(["s3:ListBucket"], self.plan_bucket_arn),
            use_through(self.key, "s3", "Decrypt", "GenerateDataKey"),
        ]

    def read_plans(self) -> list[iam.PolicyStatement]:
        return [
            allow(["s3:GetObject"], f"{self.plan_bucket_arn}/*"),
            allow(["s3:ListBucket"], self.plan_bucket_arn),
            use_through(self.key, "s3", "Decrypt"),
        ]

    def polaris(self) -> list[iam.PolicyStatement]:
        """Allow reading the credentials of the service's principal in Polaris."""
        return [
            allow(["secretsmanager:GetSecretValue"], self.polaris_secret_arn),
            use_through(self.key, "secretsmanager", "Decrypt"),
        ]

    def rotate_polaris(self) -> list[iam.PolicyStatement]:
        """Allow replacing those credentials by the steps of Secrets Manager."""
        steps = ("DescribeSecret", "GetSecretValue", "PutSecretValue", "UpdateSecretVersionStage")
        return [
            allow([f"secretsmanager:{step}" for step in steps], self.polaris_secret_arn),
            use_through(self.key, "secretsmanager", "Decrypt", "GenerateDataKey"),
        ]

    def callback_keys(self) -> list[iam.PolicyStatement]:
        """Allow reading the keys that sign callbacks, where there are callbacks."""
        if self.callback_keys_arn is None:
            return []
        return [
            allow(["secretsmanager:GetSecretValue"], self.callback_keys_arn),
            use_through(self.key, "secretsmanager", "Decrypt"),
        ]

    def purge(self) -> list[iam.PolicyStatement]:
        """Allow what an engine needs besides vended credentials, which alone give access to a table's files."""
        return [*self.tasks(), *self.plans(), *self.polaris(), self.references()]

    def _key_for_tables(self) -> iam.PolicyStatement:
        return use_through(self.key, "dynamodb", "Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey")
