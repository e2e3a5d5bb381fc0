"""The VPC of load balancer, endpoints, functions and Spark jobs: a created or an existing one."""

from typing import Final

from aws_cdk import Aws, Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.logs import LogKeeping
from infra.network_settings import NetworkSettings, VpcLayout

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
