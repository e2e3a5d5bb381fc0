"""The customer managed key that encrypts data at rest."""

from typing import Final

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.constructs.logs import KEPT
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


class EncryptionKey(Construct):
    """One key for tables, plans and the secret, rotated yearly, or the existing key of the settings.

    An existing key has its own policy, which must allow IAM policies of the account to use it, and what
    `service_statements` returns. The policy of a created key lets IAM policies of the account allow the listed actions
    instead of the usual `kms:*`; no principal can get any other action. In a key policy the resource `*` means this
    key.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: NetworkSettings) -> None:
        super().__init__(scope, construct_id)
        if settings.kms_key_arn is not None:
            self.key: kms.IKey = kms.Key.from_key_arn(self, "Existing", settings.kms_key_arn)
            return
        self.key = kms.Key(
            self,
            "Key",
            description="Polaris Delegation Service: tasks, plans and the catalog principal's secret",
            enable_key_rotation=True,
            removal_policy=KEPT,
            policy=iam.PolicyDocument(
                statements=[
                    iam.PolicyStatement(
                        sid="AccountUsesAndAdministersByIam",
                        principals=[iam.AccountRootPrincipal()],
                        actions=[*_ADMINISTRATION, *_USE],
                        resources=["*"],
                    ),
                    *service_statements(settings),
                ]
            ),
        )


def service_statements(settings: NetworkSettings) -> list[iam.PolicyStatement]:
    """Return what the key policy allows AWS services that use the key in their own name.

    CloudWatch Logs user guide, "Encrypt log data in CloudWatch Logs"; Amazon SNS developer guide, "Key management".
    """
    found: list[iam.PolicyStatement] = []
    if settings.has_customer_key_for(CustomerKeyUse.LOGS):
        groups = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:*"
        found.append(
            iam.PolicyStatement(
                sid="LogsOfThisAccount",
                principals=[iam.ServicePrincipal(f"logs.{Aws.REGION}.amazonaws.com")],
                actions=[*_USE, "kms:DescribeKey"],
                resources=["*"],
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )
    if settings.has_customer_key_for(CustomerKeyUse.TOPICS):
        found.append(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
    return found


def use_through(key: kms.IKey, service: str, *actions: str) -> iam.PolicyStatement:
    """Allow use of the key, but only through one AWS service that acts for the caller."""
    return iam.PolicyStatement(
        actions=[f"kms:{action}" for action in actions],
        resources=[key.key_arn],
        conditions={"StringEquals": {"kms:ViaService": f"{service}.{Aws.REGION}.amazonaws.com"}},
    )
