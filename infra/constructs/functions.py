"""The Lambda functions of the table in infra/environment.py, each with a separate role and log group."""

from collections.abc import Mapping

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
        scope = Construct(self, "".join(part.title() for part in function.name.split("_")))
        log = logs.LogGroup(scope, "Log", retention=self._log_retention, removal_policy=RemovalPolicy.RETAIN)
        role = self._build_role(scope, log, allowed)
        self.roles[function.name] = role
        built = lambda_.Function(
            scope,
            "Function",
            description=function.description,
            runtime=lambda_.Runtime(f"python{PYTHON_VERSION}", lambda_.RuntimeFamily.PYTHON),
            architecture=lambda_.Architecture.X86_64,
            code=self._code,
            handler=function.handler,
            timeout=Duration.seconds(function.timeout_seconds),
            memory_size=function.memory_mb,
            ephemeral_storage_size=Size.mebibytes(function.disk_mb),
            environment=variables,
            role=role.without_policy_updates(),
            log_group=log,
            logging_format=lambda_.LoggingFormat.JSON,
            reserved_concurrent_executions=function.reserved_concurrency,
            tracing=lambda_.Tracing.ACTIVE,
        )
        acknowledge(
            built,
            L1=f"Lambda and Spark run the same Python, and EMR Serverless has no newer one than {PYTHON_VERSION}.",
        )
        return built

    @staticmethod
    def _build_role(scope: Construct, log: logs.LogGroup, allowed: list[iam.PolicyStatement]) -> iam.Role:
        role = iam.Role(
            scope,
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
        acknowledge_finding(role, "IAM5[Resource::*]", "AWS supports only * as the resource of X-Ray's write actions.")
        return role
