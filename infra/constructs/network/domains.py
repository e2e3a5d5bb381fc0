"""The two fronts of the API: a Regional domain with mutual TLS, and a private domain behind the load balancer."""

from dataclasses import dataclass
from typing import Final

from aws_cdk import CfnOutput
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_wafv2 as waf
from constructs import Construct

from infra.constructs.monitoring import FrontNames
from infra.constructs.network.certificates import server_certificate
from infra.constructs.network.endpoints import ApiEndpoint
from infra.constructs.network.groups import SecurityGroups
from infra.constructs.network.load_balancer import MutualTlsLoadBalancer
from infra.constructs.network.vpc import ServiceVpc
from infra.naming import resource_name
from infra.settings import Settings

_FIVE_MINUTES: Final = 300


@dataclass(frozen=True)
class PrivateNetwork:
    """What the private front needs of the network stack."""

    vpc: ServiceVpc
    groups: SecurityGroups
    endpoint: ApiEndpoint


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
        base_path: str,
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
        self.domain.add_api_mapping(api.deployment_stage, base_path=base_path)
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
        truststore: s3.IBucket,
        access_log: s3.IBucket,
        base_path: str,
    ) -> None:
        super().__init__(scope, construct_id)
        certificate = server_certificate(self, settings)
        self._build_domain(settings, api, network.endpoint.id, certificate.certificate_arn)
        if network.groups.load_balancer is None:
            raise ValueError("the private front needs the network of the private profile")
        balancer = MutualTlsLoadBalancer(
            self,
            "LoadBalancer",
            settings=settings,
            network=network.vpc,
            group=network.groups.load_balancer,
            endpoint=network.endpoint,
            certificate_arn=certificate.certificate_arn,
            truststore=truststore,
            access_log=access_log,
            base_path=base_path,
        )
        self.listener = balancer.listener
        self.address = balancer.dns_name
        self.names = FrontNames(balancer.full_name, balancer.targets)
        alias(self, settings, balancer.dns_name, balancer.hosted_zone_id)
        CfnOutput(self, "Target", value=balancer.dns_name)

    def _build_domain(
        self, settings: Settings, api: apigateway.RestApi, endpoint_id: str, certificate_arn: str
    ) -> None:
        domain = apigateway.CfnDomainNameV2(
            self,
            "Domain",
            domain_name=settings.domain_name,
            certificate_arn=certificate_arn,
            endpoint_configuration=apigateway.CfnDomainNameV2.EndpointConfigurationProperty(types=["PRIVATE"]),
            security_policy="TLS_1_2",
            policy=only_through(endpoint_id),
        )
        apigateway.CfnDomainNameAccessAssociation(
            self,
            "Access",
            domain_name_arn=domain.attr_domain_name_arn,
            access_association_source=endpoint_id,
            access_association_source_type="VPCE",
        )
        # At the root: a private domain takes no base path with a slash, so the API itself has the prefix in its paths.
        mapping = apigateway.CfnBasePathMappingV2(
            self,
            "Mapping",
            domain_name_arn=domain.attr_domain_name_arn,
            rest_api_id=api.rest_api_id,
            stage=api.deployment_stage.stage_name,
        )
        mapping.node.add_dependency(api.deployment_stage)


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
