"""The secrets that the operator fills: credentials in Polaris, and keys that sign callbacks."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.logs import KEPT
from infra.constructs.security.nag import acknowledge


class EmptySecret(Construct):
    """A secret that the operator fills after it is deployed, so that no template contains a value."""

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, description: str, not_rotated: str, key: kms.IKey
    ) -> None:
        """`name` is the construct id of the secret itself; `not_rotated` states why it has no rotation of its own."""
        super().__init__(scope, construct_id)
        self.secret = secretsmanager.CfnSecret(self, name, description=description, kms_key_id=key.key_arn)
        self.secret.apply_removal_policy(KEPT)
        acknowledge(self.secret, SMG4=not_rotated)

    @property
    def arn(self) -> str:
        """The secret's ARN, the only part of it in variables and templates."""
        return self.secret.ref


def polaris_secret(scope: Construct, *, key: kms.IKey) -> EmptySecret:
    """Return the secret for `{"client_id", "client_secret"}` of the service's principal in Polaris."""
    return EmptySecret(
        scope,
        "Polaris",
        name="Principal",
        description="Polaris principal of the delegation service: {client_id, client_secret}",
        not_rotated="At first it is empty; delegation:polaris-secret-rotation-days rotates it from the service stack.",
        key=key,
    )


def callback_keys(scope: Construct, *, key: kms.IKey) -> EmptySecret:
    """Return the secret for `{"NAME": ["key"]}` of callbacks, with two keys while one is replaced."""
    return EmptySecret(
        scope,
        "Callbacks",
        name="Keys",
        description="Keys that sign the callbacks of the delegation service, by the names of the callbacks",
        not_rotated="A key is shared with a receiver, so only the operator can replace it, on both sides.",
        key=key,
    )
