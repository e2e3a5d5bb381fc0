"""The security groups: callers reach the load balancer, it alone the API's endpoint, and nothing the workers."""

from typing import Final
from urllib.parse import urlsplit

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from infra.settings import Settings

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
