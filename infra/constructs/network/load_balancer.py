"""The internal load balancer that verifies client certificates and is the only way to the private API."""

import json
from typing import Final

from aws_cdk import CfnOutput
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.buckets import BALANCER_PREFIX, CONNECTION_PREFIX
from infra.constructs.network.endpoints import ApiEndpoint
from infra.constructs.network.groups import HTTPS
from infra.constructs.network.vpc import ServiceVpc
from infra.gateway_answers import ANSWERS
from infra.settings import Settings

_TLS_POLICY: Final = "ELBSecurityPolicy-TLS13-1-2-Res-2021-06"
_RULE_PRIORITY: Final = 100
# The endpoint answers 403 to a request that names no API, which shows that it is reachable.
_HEALTHY: Final = "200,403"


class MutualTlsLoadBalancer(Construct):
    """`listener` is for rules of other services; `dns_name` is the load balancer's, `full_name` its name in CloudWatch.

    In the mode *verify* it refuses certificates that no authority of the trust store signed or that a revocation list
    names, and passes the certificate on in headers (Elastic Load Balancing user guide, "Mutual authentication with TLS
    in Application Load Balancer").
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        network: ServiceVpc,
        group: ec2.ISecurityGroup,
        endpoint: ApiEndpoint,
        certificate_arn: str,
        truststore: s3.IBucket,
        access_log: s3.IBucket,
        base_path: str,
    ) -> None:
        super().__init__(scope, construct_id)
        balancer = self._build_balancer(network, group, access_log)
        self.dns_name = balancer.attr_dns_name
        self.hosted_zone_id = balancer.attr_canonical_hosted_zone_id
        self.listener = self._build_listener(settings, balancer, certificate_arn, truststore)
        self.full_name = balancer.attr_load_balancer_full_name
        self.targets = self._forward(settings, network, endpoint, base_path)
        CfnOutput(self, "DnsName", value=self.dns_name)

    def _build_balancer(
        self, network: ServiceVpc, group: ec2.ISecurityGroup, access_log: s3.IBucket
    ) -> elb.CfnLoadBalancer:
        attributes = {
            "routing.http.desync_mitigation_mode": "strictest",
            "routing.http.drop_invalid_header_fields.enabled": "true",
            "routing.http.preserve_host_header.enabled": "true",  # by which the endpoint finds the API
            "access_logs.s3.enabled": "true",
            "access_logs.s3.bucket": access_log.bucket_name,
            "access_logs.s3.prefix": BALANCER_PREFIX,
            "connection_logs.s3.enabled": "true",  # handshakes that failed, and why
            "connection_logs.s3.bucket": access_log.bucket_name,
            "connection_logs.s3.prefix": CONNECTION_PREFIX,
        }
        return elb.CfnLoadBalancer(
            self,
            "LoadBalancer",
            type="application",
            scheme="internal",
            subnets=list(network.subnet_ids),
            security_groups=[group.security_group_id],
            load_balancer_attributes=[
                elb.CfnLoadBalancer.LoadBalancerAttributeProperty(key=key, value=value)
                for key, value in attributes.items()
            ],
        )

    def _build_listener(
        self, settings: Settings, balancer: elb.CfnLoadBalancer, certificate_arn: str, truststore: s3.IBucket
    ) -> elb.CfnListener:
        authorities = elb.CfnTrustStore(
            self,
            "TrustStore",
            ca_certificates_bundle_s3_bucket=truststore.bucket_name,
            ca_certificates_bundle_s3_key=settings.truststore_key,
            ca_certificates_bundle_s3_object_version=settings.truststore_version,
        )
        listener = elb.CfnListener(
            self,
            "Listener",
            load_balancer_arn=balancer.ref,
            port=HTTPS,
            protocol="HTTPS",
            ssl_policy=_TLS_POLICY,
            certificates=[elb.CfnListener.CertificateProperty(certificate_arn=certificate_arn)],
            mutual_authentication=elb.CfnListener.MutualAuthenticationProperty(
                mode="verify", trust_store_arn=authorities.ref, ignore_client_certificate_expiry=False
            ),
            default_actions=[_not_found()],
        )
        revoked = _revocations(settings, truststore)
        if revoked:
            listener.node.add_dependency(
                elb.CfnTrustStoreRevocation(
                    self, "Revocation", trust_store_arn=authorities.ref, revocation_contents=revoked
                )
            )
        return listener

    def _forward(self, settings: Settings, network: ServiceVpc, endpoint: ApiEndpoint, base_path: str) -> str:
        """Return the target group's name as CloudWatch has it."""
        targets = elb.CfnTargetGroup(
            self,
            "Endpoint",
            vpc_id=network.vpc_id,
            target_type="ip",
            protocol="HTTPS",
            port=HTTPS,
            targets=[
                elb.CfnTargetGroup.TargetDescriptionProperty(id=address, port=HTTPS) for address in endpoint.addresses
            ],
            health_check_protocol="HTTPS",
            health_check_path="/",
            matcher=elb.CfnTargetGroup.MatcherProperty(http_code=_HEALTHY),
        )
        elb.CfnListenerRule(
            self,
            "Rule",
            listener_arn=self.listener.ref,
            priority=_RULE_PRIORITY,
            conditions=[
                elb.CfnListenerRule.RuleConditionProperty(
                    field="host-header",
                    host_header_config=elb.CfnListenerRule.HostHeaderConfigProperty(values=[settings.domain_name]),
                ),
                elb.CfnListenerRule.RuleConditionProperty(
                    field="path-pattern",
                    path_pattern_config=elb.CfnListenerRule.PathPatternConfigProperty(
                        values=[f"/{base_path}", f"/{base_path}/*"]
                    ),
                ),
            ],
            actions=[elb.CfnListenerRule.ActionProperty(type="forward", target_group_arn=targets.ref)],
        )
        return targets.attr_target_group_full_name


def _not_found() -> elb.CfnListener.ActionProperty:
    """Return the answer to another host or path, in the form of the API's own."""
    answer = ANSWERS["RESOURCE_NOT_FOUND"]
    body = {"error_code": answer.error_code, "message": "there is no such service", "type": answer.type}
    return elb.CfnListener.ActionProperty(
        type="fixed-response",
        fixed_response_config=elb.CfnListener.FixedResponseConfigProperty(
            status_code="404", content_type="application/json", message_body=json.dumps(body)
        ),
    )


def _revocations(
    settings: Settings, truststore: s3.IBucket
) -> list[elb.CfnTrustStoreRevocation.RevocationContentProperty]:
    versions = settings.revocation_versions or (None,) * len(settings.revocation_lists)
    objects = [url.removeprefix("s3://").partition("/") for url in settings.revocation_urls(truststore.bucket_name)]
    return [
        elb.CfnTrustStoreRevocation.RevocationContentProperty(
            s3_bucket=bucket, s3_key=key, s3_object_version=version, revocation_type="CRL"
        )
        for (bucket, _, key), version in zip(objects, versions, strict=True)
    ]
