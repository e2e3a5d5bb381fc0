"""The customer managed key, the secrets that the operator fills, and policy statements on data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Aws
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.logs import KEPT
from infra.constructs.security.nag import acknowledge
from infra.environment.tables import ADMISSION_INDEX, CORRELATION_INDEX, DUE_INDEX, RECEIVED_INDEX, TARGET_INDEX
from infra.network_settings import CustomerKeyUse, NetworkSettings

_ADMINISTRATION: Final = tuple(
    f"kms:{action}"
    for action in (
        "CancelKeyDeletion",
        "CreateAlias",
        "CreateGrant",
        "DeleteAlias",
        "DescribeKey",
        "DisableKey",
        "DisableKeyRotation",
        "EnableKey",
        "EnableKeyRotation",
        "GetKeyPolicy",
        "GetKeyRotationStatus",
        "ListAliases",
        "ListGrants",
        "ListKeyPolicies",
        "ListKeyRotations",
        "ListResourceTags",
        "PutKeyPolicy",
        "RetireGrant",
        "RevokeGrant",
        "RotateKeyOnDemand",
        "ScheduleKeyDeletion",
        "TagResource",
        "UntagResource",
        "UpdateAlias",
        "UpdateKeyDescription",
    )
)
_USE: Final = (
    "kms:Encrypt",
    "kms:Decrypt",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
)


def encryption_key(scope: Construct, settings: NetworkSettings) -> kms.IKey:
    """Return one key for tables, plans and the secret, rotated yearly, or the existing key of the settings.

    An existing key has its own policy, which must allow IAM policies of the account to use it, and what
    `service_statements` returns. The policy of a created key lets IAM policies of the account allow the listed actions
    instead of the usual `kms:*`; no principal can get any other action. In a key policy the resource `*` means this
    key.
    """
    if settings.kms_key_arn is not None:
        return kms.Key.from_key_arn(scope, "Existing", settings.kms_key_arn)
    by_iam = iam.PolicyStatement(
        sid="AccountUsesAndAdministersByIam",
        principals=[iam.AccountRootPrincipal()],
        actions=[*_ADMINISTRATION, *_USE],
        resources=["*"],
    )
    return kms.Key(
        scope,
        "Key",
        description="Polaris Delegation Service: tasks, plans and the catalog principal's secret",
        enable_key_rotation=True,
        removal_policy=KEPT,
        policy=iam.PolicyDocument(statements=[by_iam, *service_statements(settings)]),
    )


def service_statements(settings: NetworkSettings) -> list[iam.PolicyStatement]:
    """Return what the key policy allows AWS services that use the key in their own name.

    CloudWatch Logs user guide, "Encrypt log data in CloudWatch Logs"; Amazon SNS developer guide, "Key management".
    """
    statements: list[iam.PolicyStatement] = []
    if settings.has_customer_key_for(CustomerKeyUse.LOGS):
        groups = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:*"
        statements.append(
            iam.PolicyStatement(
                sid="LogsOfThisAccount",
                principals=[iam.ServicePrincipal(f"logs.{Aws.REGION}.amazonaws.com")],
                actions=[*_USE, "kms:DescribeKey"],
                resources=["*"],
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )
    if settings.has_customer_key_for(CustomerKeyUse.TOPICS):
        statements.append(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
    return statements


def use_through(key: kms.IKey, service: str, *actions: str) -> iam.PolicyStatement:
    """Allow use of the key, but only through one AWS service that acts for the caller."""
    return iam.PolicyStatement(
        actions=[f"kms:{action}" for action in actions],
        resources=[key.key_arn],
        conditions={"StringEquals": {"kms:ViaService": f"{service}.{Aws.REGION}.amazonaws.com"}},
    )


def empty_secret(
    scope: Construct, construct_id: str, name: str, *, description: str, not_rotated: str, key: kms.IKey
) -> str:
    """Return the ARN of a secret that the operator fills after it is deployed, so that no template contains a value.

    `not_rotated` states why it has no rotation of its own.
    """
    secret = secretsmanager.CfnSecret(
        Construct(scope, construct_id), name, description=description, kms_key_id=key.key_arn
    )
    secret.apply_removal_policy(KEPT)
    acknowledge(secret, SMG4=not_rotated)
    arn: str = secret.ref
    return arn


OF_THIS_ACCOUNT: Final = {"aws:SourceAccount": Aws.ACCOUNT_ID}
_WRITES: Final = ("dynamodb:GetItem", "dynamodb:PutItem")
"""A put in a transaction needs the same permission (DynamoDB guide, "Using IAM with DynamoDB transactions")."""


def allow(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))


def service_role(
    scope: Construct, construct_id: str, service: str, statements: list[iam.PolicyStatement], **conditions: Any
) -> iam.Role:
    """Return a role that a service of AWS assumes, under conditions if there are any, with its own policy alone."""
    return iam.Role(
        scope,
        construct_id,
        assumed_by=iam.ServicePrincipal(f"{service}.amazonaws.com", conditions=conditions or None),
        inline_policies={"Own": iam.PolicyDocument(statements=statements)},
    )


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
