"""The network: VPC, security groups and endpoints; a VPC that Polaris may share must outlive the service."""

from aws_cdk import Annotations, CfnOutput, Stack
from constructs import Construct

from delegation.removal.orphans.requests import roles_of
from infra.constructs.logs import LogKeeping
from infra.constructs.network.domains import PrivateNetwork
from infra.constructs.network.vpc import ApiEndpoint, AwsServiceEndpoints, SecurityGroups, ServiceVpc, interfaces
from infra.environment.functions import FUNCTIONS, deployed_functions
from infra.settings import Settings


class NetworkStack(Stack):
    """`vpc` and `groups`; `front` is what the private profile's load balancer and API need, otherwise None."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings, keeping: LogKeeping) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Polaris Delegation Service: VPC, security groups, endpoints",
            termination_protection=True,
        )
        self.vpc = ServiceVpc(self, "Vpc", settings=settings, keeping=keeping)
        self.groups = SecurityGroups(self, "Groups", settings=settings, vpc=self.vpc.vpc)
        if settings.creates_endpoints:
            services = interfaces(functions_in_vpc(settings))
            roles = quarantine_roles(settings)
            AwsServiceEndpoints(self, "Aws", network=self.vpc, group=self.groups.aws, services=services, roles=roles)
        if settings.unreachable_issuers:
            Annotations.of(self).add_warning_v2(
                "delegation:issuer-unreachable",
                f"The authorizer cannot fetch the keys of {', '.join(settings.unreachable_issuers)}, so the API would "
                "answer every request with 500: the new VPC has no way to the internet. Set "
                "delegation:nat-gateways=1, or leave the authorizer out of the VPC with "
                '"delegation:functions-in-vpc": [] in cdk.json.',
            )
        if self.groups.probe is not None:
            self.export_value(self.groups.probe.security_group_id)
        self.front: PrivateNetwork | None = None
        if self.groups.load_balancer is not None and self.groups.api_endpoint is not None:
            endpoint = ApiEndpoint(self, "Api", network=self.vpc, group=self.groups.api_endpoint, keeping=keeping)
            self.front = PrivateNetwork(self.vpc, self.groups.load_balancer, endpoint)
        CfnOutput(self, "WorkerSecurityGroup", value=self.groups.workers.security_group_id)
        CfnOutput(self, "VpcId", value=self.vpc.vpc_id)


def quarantine_roles(settings: Settings) -> tuple[str, ...]:
    """Return the ARNs of the operator's roles that removals of orphan files assume."""
    return tuple(sorted(set(roles_of(settings.properties).values())))


def functions_in_vpc(settings: Settings) -> frozenset[str]:
    """Return the names of the functions that run in the VPC: those that call Polaris, and those of the settings."""
    callers = {name for name, function in FUNCTIONS.items() if "polaris_url" in function.variables}
    return frozenset(callers | {*settings.functions_in_vpc}) & deployed_functions(settings.properties).keys()
