"""The Lambda functions of the table in infra/environment/functions.py, each with a separate role and log group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aws_cdk import ArnFormat, Duration, Size, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from delegation.environment import SETTINGS_OBJECT
from infra.constructs.code import StoredSettings, reading
from infra.constructs.logs import LogKeeping
from infra.constructs.security.grants import allow
from infra.constructs.security.nag import acknowledge, acknowledge_finding, acknowledge_serverless
from infra.constructs.security.permissions import Grants, statements
from infra.environment.functions import Function, deployed_functions
from infra.environment.resources import Resources, environment
from infra.environment.variables import fitted
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

_ARCHITECTURES: Final = {
    Processor.ARM64: lambda_.Architecture.ARM_64,
    Processor.X86_64: lambda_.Architecture.X86_64,
}
_WITHOUT_DEAD_LETTERS: Final = (
    "API Gateway, Step Functions and the queues' mappings wait for the answer and act on a failure; the sweeper, alone "
    "invoked asynchronously, runs again a minute later."
)


@dataclass(frozen=True, slots=True)
class FunctionNetwork:
    """The subnets and security groups of a function that must reach addresses inside a VPC."""

    subnet_ids: tuple[str, ...]
    security_group_ids: tuple[str, ...]


@dataclass(frozen=True)
class FunctionPlacement:
    """The functions that run in a network; no function by default."""

    names: frozenset[str] = frozenset()
    network: FunctionNetwork | None = None


@dataclass(frozen=True)
class FunctionLimits:
    """The reserved concurrency of functions by name."""

    concurrency: Mapping[str, int] = field(default_factory=dict)


class Functions(Construct):
    """`by_name` holds the Lambda function of each name in `deployed_functions`, `roles` its role."""

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
        stored: StoredSettings,
        bootstrap_key_arn: str | None = None,
        placement: FunctionPlacement = FunctionPlacement(),
        limits: FunctionLimits = FunctionLimits(),
    ) -> None:
        """Raises TooManyVariables for a function whose variables have no room even without those in `stored`."""
        super().__init__(scope, construct_id)
        self._code = code
        self._processor = processor
        self._keeping = keeping
        self._placement = placement
        self._limits = limits
        self.roles: dict[str, iam.Role] = {}
        built: dict[str, lambda_.Function] = {}
        for name, function in deployed_functions(resources.properties).items():
            variables = fitted(name, environment(name, resources), stored.url)
            allowed = statements(name, grants)
            if SETTINGS_OBJECT in variables:
                allowed += reading(stored.asset, key_arn=bootstrap_key_arn)
            built[name] = self._build(function, variables, allowed)
        self.by_name: Mapping[str, lambda_.Function] = built

    def _build(
        self, function: Function, variables: dict[str, str], allowed: list[iam.PolicyStatement]
    ) -> lambda_.Function:
        built = DeployedFunction(
            self,
            "".join(part.title() for part in function.name.split("_")),
            function=function,
            code=self._code,
            processor=self._processor,
            variables=variables,
            allowed=allowed,
            keeping=self._keeping,
            network=self._placement.network if function.name in self._placement.names else None,
            concurrency=self._limits.concurrency.get(function.name, function.reserved_concurrency),
        )
        self.roles[function.name] = built.role
        return built.function


class DeployedFunction(Construct):
    """One function with its role and log group."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        code: lambda_.Code,
        processor: Processor,
        variables: Mapping[str, str],
        allowed: Sequence[iam.PolicyStatement],
        keeping: LogKeeping,
        network: FunctionNetwork | None = None,
        concurrency: int | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        log = keeping.group(self)
        own = allow(["logs:CreateLogStream", "logs:PutLogEvents"], log.log_group_arn)
        self.role = _build_role(self, [own, *allowed, *(_interfaces(self) if network else [])])
        self.function = lambda_.Function(
            self,
            "Function",
            description=function.description,
            runtime=lambda_.Runtime(f"python{PYTHON_VERSION}", lambda_.RuntimeFamily.PYTHON),
            architecture=_ARCHITECTURES[processor],
            code=code,
            handler=function.handler,
            timeout=Duration.seconds(function.timeout_seconds),
            memory_size=function.memory_mb,
            ephemeral_storage_size=Size.mebibytes(function.disk_mb),
            environment=dict(variables),
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
    role = iam.Role(
        scope,
        "Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        inline_policies={"Own": iam.PolicyDocument(statements=[tracing, *allowed])},
    )
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
