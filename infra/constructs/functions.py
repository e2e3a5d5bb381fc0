"""The Lambda functions of the table in infra/environment.py, each with a separate role and log group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.security.grants import allow
from infra.constructs.security.nag import acknowledge, acknowledge_finding
from infra.constructs.security.permissions import Grants, statements
from infra.environment import Function, Resources, deployed_functions, environment
from infra.package import PYTHON_VERSION


class Functions(Construct):
    """`by_name` holds the Lambda function of each name in `deployed_functions`, `roles` its role."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: lambda_.Code,
        resources: Resources,
        grants: Grants,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, construct_id)
        self._code = code
        self._log_retention = log_retention
        self.roles: dict[str, iam.Role] = {}
        self.by_name: Mapping[str, lambda_.Function] = {
            name: self._build(function, environment(name, resources), statements(name, grants))
            for name, function in deployed_functions(resources.properties).items()
        }

    def _build(
        self, function: Function, variables: dict[str, str], allowed: list[iam.PolicyStatement]
    ) -> lambda_.Function:
        built = DeployedFunction(
            self,
            "".join(part.title() for part in function.name.split("_")),
            function=function,
            code=self._code,
            variables=variables,
            allowed=allowed,
            log_retention=self._log_retention,
        )
        self.roles[function.name] = built.role
        return built.function


@dataclass(frozen=True, slots=True)
class FunctionNetwork:
    """The subnets and security groups of a function that must reach addresses inside a VPC."""

    subnet_ids: tuple[str, ...]
    security_group_ids: tuple[str, ...]


class DeployedFunction(Construct):
    """One function with its role and log group."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        code: lambda_.Code,
        variables: Mapping[str, str],
        allowed: Sequence[iam.PolicyStatement],
        log_retention: logs.RetentionDays,
        network: FunctionNetwork | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        log = logs.LogGroup(self, "Log", retention=log_retention, removal_policy=RemovalPolicy.RETAIN)
        self.role = self._build_role(log, [*allowed, *([_use_of_network()] if network else [])])
        self.function = lambda_.Function(
            self,
            "Function",
            description=function.description,
            runtime=lambda_.Runtime(f"python{PYTHON_VERSION}", lambda_.RuntimeFamily.PYTHON),
            architecture=lambda_.Architecture.X86_64,
            code=code,
            handler=function.handler,
            timeout=Duration.seconds(function.timeout_seconds),
            memory_size=function.memory_mb,
            ephemeral_storage_size=Size.mebibytes(function.disk_mb),
            environment=dict(variables),
            role=self.role.without_policy_updates(),
            log_group=log,
            logging_format=lambda_.LoggingFormat.JSON,
            reserved_concurrent_executions=function.reserved_concurrency,
            tracing=lambda_.Tracing.ACTIVE,
        )
        resource = self.function.node.default_child
        if network is not None and isinstance(resource, lambda_.CfnFunction):
            resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
                subnet_ids=list(network.subnet_ids), security_group_ids=list(network.security_group_ids)
            )
        acknowledge(
            self.function,
            L1=f"Lambda and Spark run the same Python, and EMR Serverless has no newer one than {PYTHON_VERSION}.",
        )

    def _build_role(self, log: logs.LogGroup, allowed: list[iam.PolicyStatement]) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={
                "Own": iam.PolicyDocument(
                    statements=[
                        allow(["logs:CreateLogStream", "logs:PutLogEvents"], log.log_group_arn),
                        allow(["xray:PutTraceSegments", "xray:PutTelemetryRecords"], "*"),
                        *allowed,
                    ]
                )
            },
        )
        acknowledge_finding(
            role,
            "IAM5[Resource::*]",
            "AWS supports only * as the resource of X-Ray's write actions, and of those on network interfaces.",
        )
        return role


def _use_of_network() -> iam.PolicyStatement:
    """Allow Lambda to attach the function to a network (Lambda guide, "Giving functions access to a VPC")."""
    actions = ("CreateNetworkInterface", "DescribeNetworkInterfaces", "DeleteNetworkInterface", "DescribeSubnets")
    return allow([f"ec2:{action}" for action in actions], "*")
