"""The VPC endpoints: of the private API, and of the AWS services that functions and Spark jobs in the VPC call."""

from collections.abc import Iterable, Sequence
from typing import Final

from aws_cdk import Aws, CustomResource, Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.logs import LogKeeping
from infra.constructs.network.vpc import ServiceVpc
from infra.constructs.security.grants import allow
from infra.constructs.security.nag import acknowledge, acknowledge_finding, acknowledge_serverless
from infra.environment.context import ROOT
from infra.environment.functions import FUNCTIONS
from infra.package.parts import PYTHON_VERSION

GATEWAYS: Final = ("dynamodb", "s3")
"""Free of charge, and routed instead of addressed."""
_BY_VARIABLE: Final = {
    "queue_url": "sqs",
    "notification_queue_url": "sqs",
    "polaris_secret_arn": "secretsmanager",
    "callback_keys_arn": "secretsmanager",
    "state_machine_arn": "states",
    "emr_application_id": "emr-serverless",
    "event_bus": "events",
}
_OF_SPARK: Final = frozenset({"logs", "secretsmanager"})
"""EMR Serverless user guide, "Logging for EMR Serverless with Amazon CloudWatch": jobs in a VPC write through it."""


def interfaces(functions: Iterable[str]) -> tuple[str, ...]:
    """Return the AWS services, other than GATEWAYS, that Spark jobs and these functions call."""
    variables = {name for function in functions for name in FUNCTIONS[function].variables}
    return tuple(sorted(_OF_SPARK | {_BY_VARIABLE[name] for name in variables & _BY_VARIABLE.keys()}))


class AwsServiceEndpoints(Construct):
    """Endpoints of the services that are called from the VPC, so that it needs no way to the internet.

    STS has one if there are operator's roles, by their ARNs, that the functions assume; no other can be assumed by it.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        network: ServiceVpc,
        group: ec2.ISecurityGroup,
        services: Iterable[str],
        roles: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, construct_id)
        policies = {service: _policy_of(service) for service in services}
        if roles:
            policies["sts"] = _of_this_account("sts:AssumeRole", *roles)
        for service in GATEWAYS:
            ec2.CfnVPCEndpoint(
                self,
                service.title(),
                vpc_id=network.vpc_id,
                service_name=_endpoint_service(service),
                vpc_endpoint_type="Gateway",
                route_table_ids=list(network.route_table_ids),
                policy_document=_policy_of(service),
            )
        for service, policy in policies.items():
            ec2.CfnVPCEndpoint(
                self,
                "".join(part.title() for part in service.split("-")),
                vpc_id=network.vpc_id,
                service_name=_endpoint_service(service),
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(network.subnet_ids),
                security_group_ids=[group.security_group_id],
                policy_document=policy,
            )


class ApiEndpoint(Construct):
    """The `execute-api` endpoint that only the load balancer reaches; `id`, and its `addresses` for targets."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        network: ServiceVpc,
        group: ec2.ISecurityGroup,
        keeping: LogKeeping,
    ) -> None:
        super().__init__(scope, construct_id)
        endpoint = ec2.CfnVPCEndpoint(
            self,
            "Endpoint",
            vpc_id=network.vpc_id,
            service_name=_endpoint_service("execute-api"),
            vpc_endpoint_type="Interface",
            private_dns_enabled=False,  # it would divert the VPC's calls of every other API to this endpoint
            subnet_ids=list(network.subnet_ids),
            security_group_ids=[group.security_group_id],
            policy_document=_only_this_account(),
        )
        self.id = endpoint.ref
        interface_addresses = CustomResource(
            self,
            "Addresses",
            service_token=self._address_function(keeping).function_arn,
            resource_type="Custom::EndpointAddresses",
            service_timeout=Duration.minutes(2),
            properties={"NetworkInterfaceIds": endpoint.attr_network_interface_ids},
        )
        self.addresses = tuple(
            interface_addresses.get_att_string(f"Address{index}") for index in range(len(network.subnet_ids))
        )

    def _address_function(self, keeping: LogKeeping) -> lambda_.Function:
        log = keeping.group(self, "AddressLog")
        role = iam.Role(
            self,
            "AddressRole",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={
                "Own": iam.PolicyDocument(
                    statements=[
                        allow(["logs:CreateLogStream", "logs:PutLogEvents"], log.log_group_arn),
                        allow(["ec2:DescribeNetworkInterfaces"], "*"),
                    ]
                )
            },
        )
        reason = "EC2 supports only * as the resource of its Describe actions."
        acknowledge_finding(role, "IAM5[Resource::*]", reason)
        acknowledge_serverless(role, LambdaStarPermissions=reason)
        function = lambda_.Function(
            self,
            "AddressFunction",
            description="Tells CloudFormation the addresses of the API's VPC endpoint",
            runtime=lambda_.Runtime(f"python{PYTHON_VERSION}", lambda_.RuntimeFamily.PYTHON, supports_inline_code=True),
            code=lambda_.Code.from_inline((ROOT / "infra" / "endpoint_addresses.py").read_text(encoding="utf-8")),
            handler="index.handler",
            timeout=Duration.seconds(30),
            memory_size=256,
            role=role.without_policy_updates(),
            log_group=log,
            tracing=lambda_.Tracing.DISABLED,
        )
        same = f"The same Python as the service's functions, {PYTHON_VERSION}."
        acknowledge(function, L1=same)
        acknowledge_serverless(
            function,
            LambdaLatestVersion=same,
            LambdaDLQ="CloudFormation waits for the answer, and fails the deployment without one.",
            LambdaTracing="It runs only while this stack is deployed; no request passes through it.",
        )
        return function


def _endpoint_service(service: str) -> str:
    return f"com.amazonaws.{Aws.REGION}.{service}"


def _policy_of(service: str) -> iam.PolicyDocument | None:
    """Return a policy that lets this account's principals through, to its own resources alone.

    Credentials that a process was given or stole from another account lead nowhere through it (AWS whitepaper "Building
    a data perimeter on AWS"). An event bus of the settings may be another account's. S3 keeps its default: the catalog
    vends credentials of the account that has the lake, to buckets that nobody knows at deployment, and EMR reads its
    own.
    """
    if service == "s3":
        return None
    owner, what = ("*", "event-bus/*") if service == "events" else (Aws.ACCOUNT_ID, "*")
    return _of_this_account(f"{service}:*", f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}:{owner}:{what}")


def _of_this_account(action: str, *resources: str) -> iam.PolicyDocument:
    """Return a policy that lets this account's principals through to these resources, of whatever account."""
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                principals=[iam.AnyPrincipal()],
                actions=[action],
                resources=list(resources),
                conditions={"StringEquals": {"aws:PrincipalAccount": Aws.ACCOUNT_ID}},
            )
        ]
    )


def _only_this_account() -> iam.PolicyDocument:
    """Return a policy that lets through calls of this account's APIs alone; the API's policy names the endpoint."""
    apis = f"arn:{Aws.PARTITION}:execute-api:{Aws.REGION}:{Aws.ACCOUNT_ID}:*"
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(principals=[iam.AnyPrincipal()], actions=["execute-api:Invoke"], resources=[apis])
        ]
    )
