"""The rotation of the secret of the service's principal in Polaris: a function, its schedule and its alarm."""

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.functions import DeployedFunction, FunctionNetwork
from infra.constructs.logs import LogKeeping
from infra.constructs.monitoring import watch_errors
from infra.constructs.security.permissions import Grants, statements
from infra.environment.functions import ROTATION
from infra.environment.resources import Resources, environment
from infra.operations.alarms import SECRET_ROTATION
from infra.package.parts import Processor


class SecretRotationSchedule(Construct):
    """Rotates the secret every so many days, the first time after so many: at the first deployment it is empty."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: lambda_.Code,
        processor: Processor,
        resources: Resources,
        grants: Grants,
        keeping: LogKeeping,
        network: FunctionNetwork | None,
        days: int,
    ) -> None:
        super().__init__(scope, construct_id)
        secret_arn = grants.data.polaris_secret_arn
        built = DeployedFunction(
            self,
            "Rotate",
            function=ROTATION,
            code=code,
            processor=processor,
            variables=environment(ROTATION.name, resources),
            allowed=statements(ROTATION.name, grants),
            keeping=keeping,
            network=network,
        )
        self.function = built.function
        self.function.add_permission(
            "SecretsManager",
            principal=iam.ServicePrincipal("secretsmanager.amazonaws.com"),
            source_arn=secret_arn,
        )
        schedule = secretsmanager.CfnRotationSchedule(
            self,
            "Schedule",
            secret_id=secret_arn,
            rotation_lambda_arn=self.function.function_arn,
            rotate_immediately_on_update=False,
            rotation_rules=secretsmanager.CfnRotationSchedule.RotationRulesProperty(
                schedule_expression=f"rate({days} day{'s' if days > 1 else ''})"
            ),
        )
        # Secrets Manager tries the function out when it gets the schedule.
        schedule.node.add_dependency(self.function)

    def watch(self, *, stage: str, topic_arn: str, runbook_url: str | None) -> cloudwatch.Alarm:
        """Raise an alarm when a step fails."""
        return watch_errors(
            self, SECRET_ROTATION, self.function, stage=stage, topic_arn=topic_arn, runbook_url=runbook_url
        )
