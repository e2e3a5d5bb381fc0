"""The secrets for the service's credentials in Polaris, and for the keys that sign callbacks."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.logs import KEPT
from infra.constructs.security.nag import acknowledge


class PolarisSecret(Construct):
    """An empty secret; the operator stores `{"client_id", "client_secret"}`, so that no template contains a value."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self.secret = secretsmanager.CfnSecret(
            self,
            "Principal",
            description="Polaris principal of the delegation service: {client_id, client_secret}",
            kms_key_id=key.key_arn,
        )
        self.secret.apply_removal_policy(KEPT)
        acknowledge(
            self.secret,
            SMG4="At first it is empty; delegation:polaris-secret-rotation-days rotates it from the service stack.",
        )

    @property
    def arn(self) -> str:
        """The secret's ARN, the only part of it in variables and templates."""
        return self.secret.ref


class CallbackKeys(Construct):
    """An empty secret; the operator stores `{"NAME": ["key"]}`, and two keys of a callback while one is replaced."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self.secret = secretsmanager.CfnSecret(
            self,
            "Keys",
            description="Keys that sign the callbacks of the delegation service, by the names of the callbacks",
            kms_key_id=key.key_arn,
        )
        self.secret.apply_removal_policy(KEPT)
        acknowledge(
            self.secret,
            SMG4="A key is shared with a receiver, so only the operator can replace it, on both sides.",
        )

    @property
    def arn(self) -> str:
        """The secret's ARN, the only part of it in variables and templates."""
        return self.secret.ref
