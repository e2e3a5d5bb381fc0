"""The VPC of load balancer, endpoints, functions and Spark jobs, created or existing, and the security groups."""

from typing import Final
from urllib.parse import urlsplit

from aws_cdk import Aws, Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.logs import LogKeeping
from infra.network_settings import NetworkSettings, VpcLayout
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
