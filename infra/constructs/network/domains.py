"""The fronts of the API: a Regional domain with mutual TLS, and a private domain behind a load balancer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import CfnOutput
from aws_cdk import aws_acmpca as acmpca
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_wafv2 as waf
from constructs import Construct

from infra.constructs.monitoring import FrontNames
from infra.constructs.network.vpc import HTTPS, ApiEndpoint, ServiceVpc
from infra.constructs.stores import BALANCER_PREFIX, CONNECTION_PREFIX, Buckets
from infra.environment.resources import resource_name
from infra.gateway_answers import ANSWERS
from infra.settings import Settings

BASE_PATH: Final = "delegation-service/api"
"""The prefix of the API's paths (Delegation Service proposal, Appendix, `servers`)."""


def server_certificate(scope: Construct, settings: Settings) -> acm.ICertificate:
    """Return the certificate that the settings name, or a new one; a public one waits for its DNS record."""
    if settings.certificate_arn:
        return acm.Certificate.from_certificate_arn(scope, "Certificate", settings.certificate_arn)
    if settings.certificate_authority_arn:
        authority = acmpca.CertificateAuthority.from_certificate_authority_arn(
            scope, "CertificateAuthority", settings.certificate_authority_arn
        )
        return acm.PrivateCertificate(
            scope, "Certificate", domain_name=settings.domain_name, certificate_authority=authority
        )
    return acm.Certificate(
        scope, "Certificate", domain_name=settings.domain_name, validation=acm.CertificateValidation.from_dns()
    )


_TLS_POLICY: Final = "ELBSecurityPolicy-TLS13-1-2-Res-2021-06"
_RULE_PRIORITY: Final = 100
# The endpoint answers 403 to a request that names no API, which shows that it is reachable.
_HEALTHY: Final = "200,403"


@dataclass(frozen=True)
class PrivateNetwork:
    """What the private profile has: the VPC, the load balancer's security group, and the API's endpoint."""

    vpc: ServiceVpc
    balancer_group: ec2.ISecurityGroup
    endpoint: ApiEndpoint


class MutualTlsLoadBalancer(Construct):
    """`listener` is for rules of other services; `dns_name` is the load balancer's, `names` are those in CloudWatch.

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
        network: PrivateNetwork,
        buckets: Buckets,
        certificate_arn: str,
    ) -> None:
        super().__init__(scope, construct_id)
        balancer = self._build_balancer(network, buckets.access_log)
        self.dns_name = balancer.attr_dns_name
        self.hosted_zone_id = balancer.attr_canonical_hosted_zone_id
        self.listener = self._build_listener(settings, balancer, certificate_arn, buckets.truststore)
        self.names = FrontNames(balancer.attr_load_balancer_full_name, self._forward(settings, network))
        CfnOutput(self, "DnsName", value=self.dns_name)

    def _build_balancer(self, network: PrivateNetwork, access_log: s3.IBucket) -> elb.CfnLoadBalancer:
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
            subnets=list(network.vpc.subnet_ids),
            security_groups=[network.balancer_group.security_group_id],
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

    def _forward(self, settings: Settings, network: PrivateNetwork) -> str:
        """Return the target group's name as CloudWatch has it."""
        targets = endpoint_targets(self, network.vpc.vpc_id, network.endpoint.addresses, healthy=_HEALTHY)
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
                        values=[f"/{BASE_PATH}", f"/{BASE_PATH}/*"]
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


_FIVE_MINUTES: Final = 300


class RegionalFront(Construct):
    """A domain that demands a client certificate, and a firewall that limits the requests from one address."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        api: apigateway.RestApi,
        truststore: s3.IBucket,
    ) -> None:
        super().__init__(scope, construct_id)
        self.address: str | None = None  # its own name has a public record
        self.names: FrontNames | None = None
        self.domain = apigateway.DomainName(
            self,
            "Domain",
            domain_name=settings.domain_name,
            certificate=server_certificate(self, settings),
            endpoint_type=apigateway.EndpointType.REGIONAL,
            security_policy=apigateway.SecurityPolicy.TLS_1_2,
            mtls=apigateway.MTLSConfig(
                bucket=truststore, key=settings.truststore_key, version=settings.truststore_version
            ),
        )
        if settings.ownership_certificate_arn:
            resource = self.domain.node.default_child
            if isinstance(resource, apigateway.CfnDomainName):
                resource.ownership_verification_certificate_arn = settings.ownership_certificate_arn
        self.domain.add_api_mapping(api.deployment_stage, base_path=BASE_PATH)
        self._limit_rate(settings, api)
        target = self.domain.domain_name_alias_domain_name
        alias(self, settings, target, self.domain.domain_name_alias_hosted_zone_id)
        CfnOutput(self, "Target", value=target)

    def _limit_rate(self, settings: Settings, api: apigateway.RestApi) -> None:
        name = resource_name(settings.stage, "rate")
        visible = waf.CfnWebACL.VisibilityConfigProperty(
            cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
        )
        limit = waf.CfnWebACL.RateBasedStatementProperty(
            aggregate_key_type="IP", limit=settings.rate_limit, evaluation_window_sec=_FIVE_MINUTES
        )
        firewall = waf.CfnWebACL(
            self,
            "Firewall",
            scope="REGIONAL",
            default_action=waf.CfnWebACL.DefaultActionProperty(allow={}),
            visibility_config=visible,
            rules=[
                waf.CfnWebACL.RuleProperty(
                    name="rate-of-one-address",
                    priority=0,
                    action=waf.CfnWebACL.RuleActionProperty(block={}),
                    statement=waf.CfnWebACL.StatementProperty(rate_based_statement=limit),
                    visibility_config=visible,
                )
            ],
        )
        waf.CfnWebACLAssociation(
            self, "Protected", resource_arn=api.deployment_stage.stage_arn, web_acl_arn=firewall.attr_arn
        )


class PrivateFront(Construct):
    """A private domain that only the endpoint of the load balancer can use; `listener` takes further rules."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        api: apigateway.RestApi,
        network: PrivateNetwork,
        buckets: Buckets,
    ) -> None:
        super().__init__(scope, construct_id)
        certificate = server_certificate(self, settings)
        _, mapping = private_domain(
            self,
            name=settings.domain_name,
            certificate_arn=certificate.certificate_arn,
            api=api,
            endpoint_id=network.endpoint.id,
        )
        mapping.node.add_dependency(api.deployment_stage)
        balancer = MutualTlsLoadBalancer(
            self,
            "LoadBalancer",
            settings=settings,
            network=network,
            buckets=buckets,
            certificate_arn=certificate.certificate_arn,
        )
        self.listener = balancer.listener
        self.address = balancer.dns_name
        self.names = balancer.names
        alias(self, settings, balancer.dns_name, balancer.hosted_zone_id)
        CfnOutput(self, "Target", value=balancer.dns_name)


def private_domain(
    scope: Construct, *, name: str, certificate_arn: str, api: apigateway.RestApi, endpoint_id: str
) -> tuple[apigateway.CfnDomainNameV2, apigateway.CfnBasePathMappingV2]:
    """Return a private domain by which API Gateway finds an API from the header `Host`, and its mapping at the root: a
    private domain takes no base path with a slash, so the API itself has the prefix in its paths."""
    domain = apigateway.CfnDomainNameV2(
        scope,
        "Domain",
        domain_name=name,
        certificate_arn=certificate_arn,
        endpoint_configuration=apigateway.CfnDomainNameV2.EndpointConfigurationProperty(types=["PRIVATE"]),
        security_policy="TLS_1_2",
        policy=only_through(endpoint_id),
    )
    apigateway.CfnDomainNameAccessAssociation(
        scope,
        "Access",
        domain_name_arn=domain.attr_domain_name_arn,
        access_association_source=endpoint_id,
        access_association_source_type="VPCE",
    )
    mapping = apigateway.CfnBasePathMappingV2(
        scope,
        "Mapping",
        domain_name_arn=domain.attr_domain_name_arn,
        rest_api_id=api.rest_api_id,
        stage=api.deployment_stage.stage_name,
    )
    return domain, mapping


def endpoint_targets(
    scope: Construct, vpc_id: str | None, addresses: Sequence[str], *, healthy: str
) -> elb.CfnTargetGroup:
    """Return a target group of a VPC endpoint's addresses; `healthy` are the statuses that pass its check."""
    return elb.CfnTargetGroup(
        scope,
        "Endpoint",
        vpc_id=vpc_id,
        target_type="ip",
        protocol="HTTPS",
        port=HTTPS,
        targets=[elb.CfnTargetGroup.TargetDescriptionProperty(id=address, port=HTTPS) for address in addresses],
        health_check_protocol="HTTPS",
        health_check_path="/",
        matcher=elb.CfnTargetGroup.MatcherProperty(http_code=healthy),
    )


def only_through(endpoint_id: str) -> iam.PolicyDocument:
    """Return a resource policy that refuses whatever does not come through one VPC endpoint."""
    everything = ["execute-api:/*"]
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(principals=[iam.AnyPrincipal()], actions=["execute-api:Invoke"], resources=everything),
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["execute-api:Invoke"],
                resources=everything,
                conditions={"StringNotEquals": {"aws:SourceVpce": endpoint_id}},
            ),
        ]
    )


def alias(scope: Construct, settings: Settings, target: str, target_zone_id: str) -> None:
    """Point the domain at its target in the zone of the settings, if they name one."""
    if settings.hosted_zone_id is None:
        return
    route53.CfnRecordSet(
        scope,
        "Record",
        hosted_zone_id=settings.hosted_zone_id,
        name=settings.domain_name,
        type="A",
        alias_target=route53.CfnRecordSet.AliasTargetProperty(dns_name=target, hosted_zone_id=target_zone_id),
    )
