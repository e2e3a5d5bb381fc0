"""The VPC of load balancer, endpoints, functions and Spark jobs, created or existing, with its endpoints."""

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from aws_cdk import Aws, CustomResource, Duration, Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.logs import LogKeeping
from infra.constructs.security.grants import allow, service_role
from infra.constructs.security.nag import acknowledge, acknowledge_finding, acknowledge_serverless
from infra.environment.context import ROOT
from infra.environment.functions import FUNCTIONS
from infra.network_settings import NetworkSettings, VpcLayout
from infra.package.parts import PYTHON_VERSION
from infra.settings import Settings

_ZONES: Final = 2


class ServiceVpc(Construct):
    """`vpc` for security groups, and the ids of its private subnets and their route tables.

    An existing VPC is imported by its attributes, so that synthesis asks no account.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: NetworkSettings, keeping: LogKeeping) -> None:
        super().__init__(scope, construct_id)
        if settings.vpc_id is None:
            created = self._build(settings, keeping)
            subnets = created.isolated_subnets if settings.nat_gateways == 0 else created.private_subnets
            self.vpc: ec2.IVpc = created
            self.vpc_id: str = created.vpc_id
            self.subnet_ids: tuple[str, ...] = tuple(subnet.subnet_id for subnet in subnets)
            self.route_table_ids: tuple[str, ...] = tuple(subnet.route_table.route_table_id for subnet in subnets)
        else:
            # Subnets are named by their ids wherever they are needed; the CDK refuses a VPC without zones all the same.
            zones = Fn.get_azs()
            self.vpc = ec2.Vpc.from_vpc_attributes(self, "Existing", vpc_id=settings.vpc_id, availability_zones=zones)
            self.vpc_id = settings.vpc_id
            self.subnet_ids = settings.subnet_ids
            self.route_table_ids = settings.route_table_ids

    def _build(self, settings: NetworkSettings, keeping: LogKeeping) -> ec2.Vpc:
        private = ec2.SubnetType.PRIVATE_WITH_EGRESS if settings.nat_gateways else ec2.SubnetType.PRIVATE_ISOLATED
        subnets = [ec2.SubnetConfiguration(name="Private", subnet_type=private)]
        if settings.vpc_layout is VpcLayout.ROOM_FOR_PUBLIC:
            public = ec2.SubnetConfiguration(
                name="Public",
                subnet_type=ec2.SubnetType.PUBLIC,
                map_public_ip_on_launch=False,
                reserved=settings.nat_gateways == 0,
            )
            subnets.insert(0, public)
        vpc = ec2.Vpc(
            self,
            "Created",
            ip_addresses=ec2.IpAddresses.cidr(settings.vpc_cidr),
            max_azs=_ZONES,
            nat_gateways=settings.nat_gateways,
            subnet_configuration=subnets,
        )
        log = keeping.group(self, "FlowLog")
        flow = vpc.add_flow_log(
            "Flow",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(log),
            traffic_type=ec2.FlowLogTrafficType.REJECT,  # who was refused; the others are in the access logs
        )
        # The CDK's role lacks the condition (Amazon VPC user guide, "IAM role for publishing flow logs").
        role = None if flow.iam_role is None else flow.iam_role.node.default_child
        if isinstance(role, iam.CfnRole):
            own = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
            role.add_property_override("AssumeRolePolicyDocument.Statement.0.Condition", own)
        return vpc


HTTPS: Final = 443


class SecurityGroups(Construct):
    """`workers` is of functions and Spark jobs, `aws` of the endpoints by which they reach AWS' services.

    `load_balancer`, `api_endpoint` and `probe` are None in the regional profile. No rule admits everybody.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings, vpc: ec2.IVpc) -> None:
        super().__init__(scope, construct_id)
        self._vpc = vpc
        self.workers = self._group("Workers", "Functions and Spark jobs that call Polaris")
        # The ranges of S3, DynamoDB, table buckets and Polaris' load balancer are unknown at deployment.
        for port in sorted({HTTPS, urlsplit(settings.polaris_url).port or HTTPS}):
            self.workers.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "AWS, Polaris and its token issuer")
        self.aws = self._group("AwsEndpoints", "Endpoints of AWS services")
        self.aws.add_ingress_rule(self.workers, ec2.Port.tcp(HTTPS), "Functions and Spark jobs")
        self.load_balancer: ec2.SecurityGroup | None = None
        self.api_endpoint: ec2.SecurityGroup | None = None
        self.probe: ec2.SecurityGroup | None = None
        if settings.is_private:
            # Made in any case: what is imported cannot be removed together with its use.
            self.probe = self._group("Probe", "The probe of the front, which is in the group of the workers too")
            self.load_balancer, self.api_endpoint = self._front(settings)
            if settings.probe_secret_arn is not None:
                self.load_balancer.add_ingress_rule(self.probe, ec2.Port.tcp(HTTPS), "The probe of the front")

    def _front(self, settings: Settings) -> tuple[ec2.SecurityGroup, ec2.SecurityGroup]:
        front = self._group("LoadBalancer", "Polaris and operators reach the load balancer, nobody else")
        endpoint = self._group("ApiEndpoint", "The load balancer reaches the API, nothing else")
        for text in settings.caller_cidrs:
            front.add_ingress_rule(ec2.Peer.ipv4(text), ec2.Port.tcp(HTTPS), "delegation:caller-cidrs")
        for group in settings.caller_security_group_ids:
            front.add_ingress_rule(
                ec2.Peer.security_group_id(group), ec2.Port.tcp(HTTPS), "delegation:caller-security-group-ids"
            )
        front.add_egress_rule(endpoint, ec2.Port.tcp(HTTPS), "The endpoint of the private API")
        endpoint.add_ingress_rule(front, ec2.Port.tcp(HTTPS), "The load balancer")
        return front, endpoint

    def _group(self, construct_id: str, description: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(self, construct_id, vpc=self._vpc, description=description, allow_all_outbound=False)


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
        # This account's APIs alone; the API's policy names the endpoint.
        apis = f"arn:{Aws.PARTITION}:execute-api:{Aws.REGION}:{Aws.ACCOUNT_ID}:*"
        calls = iam.PolicyStatement(principals=[iam.AnyPrincipal()], actions=["execute-api:Invoke"], resources=[apis])
        endpoint = ec2.CfnVPCEndpoint(
            self,
            "Endpoint",
            vpc_id=network.vpc_id,
            service_name=_endpoint_service("execute-api"),
            vpc_endpoint_type="Interface",
            private_dns_enabled=False,  # it would divert the VPC's calls of every other API to this endpoint
            subnet_ids=list(network.subnet_ids),
            security_group_ids=[group.security_group_id],
            policy_document=iam.PolicyDocument(statements=[calls]),
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
        logging = allow(["logs:CreateLogStream", "logs:PutLogEvents"], log.log_group_arn)
        describing = allow(["ec2:DescribeNetworkInterfaces"], "*")
        role = service_role(self, "AddressRole", "lambda", [logging, describing])
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
