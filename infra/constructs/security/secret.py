"""Where the service's own credentials at Polaris live."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.security.nag import acknowledge


class PolarisSecret(Construct):
    """An empty secret: the operator puts `{"client_id", "client_secret"}` in, so no template ever holds a value."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self.secret = secretsmanager.CfnSecret(
            self,
            "Principal",
            description="Polaris principal of the delegation service: {client_id, client_secret}",
            kms_key_id=key.key_arn,
        )
        self.secret.apply_removal_policy(RemovalPolicy.RETAIN)
        acknowledge(
            self.secret,
            SMG4="Polaris rotates its principals' secrets by its own API; the service reads this one with every token.",
        )

    @property
    def arn(self) -> str:
        """The secret's ARN, which is all that a variable or a template holds of it."""
        return self.secret.ref
