"""The Lambda functions with their roles and log groups, the probe, the rotation, and gradual deployments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import ArnFormat, Duration, Size, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from delegation.environment import SETTINGS_OBJECT
from infra.constructs.code import reading
from infra.constructs.logs import LogKeeping
from infra.constructs.security.grants import OF_THIS_ACCOUNT, allow, service_role
from infra.constructs.security.nag import acknowledge, acknowledge_finding, acknowledge_serverless
from infra.constructs.security.permissions import Grants, statements
from infra.environment.functions import ROTATION, Function
from infra.environment.resources import Resources, environment, fitted
from infra.network_settings import GradualDeployment
from infra.operations.alarms import ROLLBACK_ALARMS
from infra.package.parts import PYTHON_VERSION, Processor

_INTERFACES: Final = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
"""What Lambda itself needs to put a function into a VPC (AWS Lambda developer guide, "Required IAM permissions")."""

_WITHOUT_DEAD_LETTERS: Final = (
    "API Gateway, Step Functions and the queues' mappings wait for the answer and act on a failure. Only the sweeper "
    "is invoked asynchronously, and it runs again a minute later."
)


@dataclass(frozen=True, slots=True)
class FunctionNetwork:
    """The subnets and security groups of a function that must reach addresses inside a VPC."""

    subnet_ids: tuple[str, ...]
    security_group_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FunctionParts:
    """What the functions of one stack share; `stored` has the variables for which a function has no room."""

    code: lambda_.Code
    processor: Processor
    resources: Resources
    grants: Grants
    keeping: LogKeeping
    stored: assets.Asset
    bootstrap_key_arn: str | None = None


class DeployedFunction(Construct):
    """One function; raises TooManyVariables if its variables have no room even without the stored ones."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        function: Function,
        parts: FunctionParts,
        *,
        network: FunctionNetwork | None = None,
        concurrency: int | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        variables = fitted(function.name, environment(function.name, parts.resources), parts.stored.s3_object_url)
        allowed = statements(function.name, parts.grants)
        if SETTINGS_OBJECT in variables:
            allowed += reading(parts.stored, key_arn=parts.bootstrap_key_arn)
        log = parts.keeping.group(self)
        own = allow(["logs:CreateLogStream", "logs:PutLogEvents"], log.log_group_arn)
        self.role = _build_role(self, [own, *allowed, *(_interfaces(self) if network else [])])
        self.function = lambda_.Function(
            self,
            "Function",
            description=function.description,
            runtime=lambda_.Runtime(f"python{PYTHON_VERSION}", lambda_.RuntimeFamily.PYTHON),
            architecture=lambda_.Architecture.custom(parts.processor),
            code=parts.code,
            handler=function.handler,
            timeout=Duration.seconds(function.timeout_seconds),
            memory_size=function.memory_mb,
            ephemeral_storage_size=Size.mebibytes(function.disk_mb),
            environment=variables,
            role=self.role.without_policy_updates(),
            log_group=log,
            logging_format=lambda_.LoggingFormat.JSON,
            reserved_concurrent_executions=concurrency,
            tracing=lambda_.Tracing.ACTIVE,
        )
        resource = self.function.node.default_child
        if isinstance(resource, lambda_.CfnFunction):
            # By this name `sam local invoke` finds it; SAM reads no path of constructs as deep as ours.
            resource.add_metadata("SamResourceId", function.name)
        # The CDK's own way into a VPC would need its subnets' zones, which nobody knows offline.
        if network is not None and isinstance(resource, lambda_.CfnFunction):
            resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
                subnet_ids=list(network.subnet_ids), security_group_ids=list(network.security_group_ids)
            )
        same = f"Lambda and Spark run the same Python, and EMR Serverless has no newer one than {PYTHON_VERSION}."
        acknowledge(self.function, L1=same)
        acknowledge_serverless(self.function, LambdaLatestVersion=same, LambdaDLQ=_WITHOUT_DEAD_LETTERS)


def _build_role(scope: Construct, allowed: list[iam.PolicyStatement]) -> iam.Role:
    tracing = allow(["xray:PutTraceSegments", "xray:PutTelemetryRecords"], "*")
    role = service_role(scope, "Role", "lambda", [tracing, *allowed])
    reason = "AWS supports only * as the resource of X-Ray's write actions and of network interfaces for Lambda."
    acknowledge_finding(role, "IAM5[Resource::*]", reason)
    acknowledge_serverless(role, LambdaStarPermissions=reason)
    return role


def _interfaces(scope: Construct) -> list[iam.PolicyStatement]:
    """Allow Lambda to make the network interfaces of a function, and forbid the function's own code to do so.

    AWS Lambda developer guide, "Giving Lambda functions access to resources in an Amazon VPC".
    """
    functions = Stack.of(scope).format_arn(
        service="lambda", resource="function", resource_name="*", arn_format=ArnFormat.COLON_RESOURCE_NAME
    )
    own_code = {"ArnLike": {"lambda:SourceFunctionArn": functions}}
    return [
        allow(_INTERFACES, "*"),
        iam.PolicyStatement(effect=iam.Effect.DENY, actions=list(_INTERFACES), resources=["*"], conditions=own_code),
    ]


def run_every_minute(scope: Construct, function: lambda_.Function, *, next_run: str) -> None:
    """Schedule a function; a failed run is not repeated, and `next_run` states why."""
    minute = Duration.minutes(1)
    function.configure_async_invoke(retry_attempts=0, max_event_age=minute)
    rule = events.Rule(
        scope,
        "EveryMinute",
        schedule=events.Schedule.rate(minute),
        targets=[targets.LambdaFunction(function, retry_attempts=0, max_event_age=minute)],
    )
    acknowledge_serverless(function, LambdaAsyncFailureDestination=next_run)
    acknowledge_serverless(rule, EventBusDLQ=next_run)


class SecretRotationSchedule(Construct):
    """Rotates the secret every so many days, the first time after so many: at the first deployment it is empty."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        parts: FunctionParts,
        *,
        network: FunctionNetwork | None,
        days: int,
    ) -> None:
        super().__init__(scope, construct_id)
        secret_arn = parts.grants.data.polaris_secret_arn
        self.function = DeployedFunction(self, "Rotate", ROTATION, parts, network=network).function
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


_POLICY: Final = "service-role/AWSCodeDeployRoleForLambdaLimited"
ALIAS: Final = "live"
BEHIND_ALIAS: Final = ("api", "authorizer")
"""The functions that callers wait for. All others change at once, in the same update of the stack, so that a rollback
of these takes the whole stack back."""
_SHIFTS: Final = {
    GradualDeployment.CANARY: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
    GradualDeployment.LINEAR: codedeploy.LambdaDeploymentConfig.LINEAR_10_PERCENT_EVERY_1_MINUTE,
    GradualDeployment.ALL_AT_ONCE: codedeploy.LambdaDeploymentConfig.ALL_AT_ONCE,
}


class GradualDeployments(Construct):
    """`aliases` holds the alias of each function of BEHIND_ALIAS by name, of the version that is deployed.

    CloudFormation updates an alias through its deployment group: CodeDeploy moves the calls to the new version while it
    watches the alarms. If one is raised it moves them back and the update fails, so CloudFormation takes back the rest
    of the stack too (AWS CodeDeploy user guide, "Deployments on an AWS Lambda compute platform").
    """

    def __init__(self, scope: Construct, construct_id: str, *, functions: Mapping[str, lambda_.Function]) -> None:
        super().__init__(scope, construct_id)
        self.aliases: Mapping[str, lambda_.Alias] = {
            name: lambda_.Alias(self, f"{name.title()}Alias", alias_name=ALIAS, version=functions[name].current_version)
            for name in BEHIND_ALIAS
        }

    def watch(self, way: GradualDeployment, alarms: Mapping[str, cloudwatch.IAlarm]) -> None:
        """Deploy through the aliases, and go back when one of ROLLBACK_ALARMS that this stack has is raised."""
        watched = [alarms[rule.name] for rule in ROLLBACK_ALARMS if rule.name in alarms]
        application = codedeploy.LambdaApplication(self, "Application")
        role = self._build_role()
        for name, alias in self.aliases.items():
            codedeploy.LambdaDeploymentGroup(
                self,
                f"{name.title()}Group",
                application=application,
                alias=alias,
                role=role,
                deployment_config=_SHIFTS[way],
                alarms=watched,
                auto_rollback=codedeploy.AutoRollbackConfig(
                    failed_deployment=True, stopped_deployment=True, deployment_in_alarm=True
                ),
            )

    def _build_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com", conditions={"StringEquals": OF_THIS_ACCOUNT}),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(_POLICY)],
        )
        reason = "AWS' limited managed policy for CodeDeploy, which may shift aliases and read alarms."
        acknowledge_finding(role, f"IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{_POLICY}]", reason)
        return role
