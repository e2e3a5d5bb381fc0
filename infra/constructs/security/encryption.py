"""The customer managed key that encrypts data at rest."""

from typing import Final

from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

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
    """One key for tables, plans and the secret, rotated yearly.

    The key policy lets IAM policies of the account allow the listed actions instead of the usual `kms:*`; no principal
    can get any other action. In a key policy the resource `*` means this key.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.key = kms.Key(
            self,
            "Key",
            description="Polaris Delegation Service: tasks, plans and the catalog principal's secret",
            enable_key_rotation=True,
            removal_policy=RemovalPolicy.RETAIN,
            policy=iam.PolicyDocument(
                statements=[
                    iam.PolicyStatement(
                        sid="AccountUsesAndAdministersByIam",
                        principals=[iam.AccountRootPrincipal()],
                        actions=[*_ADMINISTRATION, *_USE],
                        resources=["*"],
                    )
                ]
            ),
        )


def use_through(key: kms.IKey, service: str, *actions: str) -> iam.PolicyStatement:
    """Allow use of the key, but only through one AWS service that acts for the caller."""
    return iam.PolicyStatement(
        actions=[f"kms:{action}" for action in actions],
        resources=[key.key_arn],
        conditions={"StringEquals": {"kms:ViaService": f"{service}.{Aws.REGION}.amazonaws.com"}},
    )
