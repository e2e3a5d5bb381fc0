"""The private REST API before the gateway, and the load balancer's rule that leads to it."""

import json
from typing import Final

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.logs import LogKeeping
from infra.constructs.network.domains import only_through
from infra.constructs.security.nag import acknowledge
from infra.naming import resource_name
from infra.rule.answers import CATALOG_ANSWERS, CatalogErrorAnswer
from infra.rule.conditions import with_base
from infra.settings import Settings

STAGE_NAME: Final = "live"
_ACCESS_LOG: Final = {
    "requestId": "$context.requestId",
    "requestTime": "$context.requestTime",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "status": "$context.status",
    "responseLength": "$context.responseLength",
    "latency": "$context.responseLatency",
    "sourceIp": "$context.identity.sourceIp",
    "error": "$context.error.responseType",
}


class CatalogApi(Construct):
    """A private REST API with one proxy route, which only one VPC endpoint may call; the catalog checks the callers.

    Bodies and headers carry credentials, so neither log contains a body, a query or a header.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        function: lambda_.Function,
        keeping: LogKeeping,
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = settings.stage
        self._endpoint = str(settings.gateway_vpc_endpoint)
        self.access_log = keeping.group(self, "AccessLog")
        self.rest_api = self._build_rest_api()
        self._answer_as_the_catalog()
        self._build_routes(function)
        self.domain = self._build_domain(settings)
        if settings.gateway_listener_arn:
            self.rules = self._build_rule(settings)
        CfnOutput(self, "ApiId", value=self.rest_api.rest_api_id)
        CfnOutput(self, "DomainNameArn", value=self.domain.attr_domain_name_arn)

    def _build_rest_api(self) -> apigateway.RestApi:
        api = apigateway.RestApi(
            self,
            "RestApi",
            rest_api_name=resource_name(self._stage, "gateway"),
            endpoint_configuration=apigateway.EndpointConfiguration(types=[apigateway.EndpointType.PRIVATE]),
            policy=only_through(self._endpoint),
            cloud_watch_role=False,
            # Every body is Base64 on its way, so that compressed ones arrive and leave as they are.
            binary_media_types=["*/*"],
            deploy_options=apigateway.StageOptions(
                stage_name=STAGE_NAME,
                data_trace_enabled=False,
                logging_level=apigateway.MethodLoggingLevel.ERROR,
                metrics_enabled=True,
                tracing_enabled=True,
                throttling_rate_limit=1000,  # far beyond what a catalog commits; the account's limit is every API's
                throttling_burst_limit=2000,
                access_log_destination=apigateway.LogGroupLogDestination(self.access_log),
                access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS_LOG)),
            ),
        )
        acknowledge(api, APIG2="The catalog validates requests; the gateway passes on what it does not know.")
        acknowledge(
            api.deployment_stage,
            APIG3="Only the load balancer's VPC endpoint reaches the API; a web firewall belongs to the load balancer.",
        )
        return api

    def _answer_as_the_catalog(self) -> None:
        for name, answer in CATALOG_ANSWERS.items():
            self.rest_api.add_gateway_response(
                name.title().replace("_", ""),
                type=apigateway.ResponseType.of(name),
                status_code=str(answer.status),
                response_headers={header: f"'{value}'" for header, value in answer.headers.items()} or None,
                templates={"application/json": catalog_template(answer)},
            )

    def _build_routes(self, function: lambda_.Function) -> None:
        integration = apigateway.LambdaIntegration(
            function, proxy=True, timeout=Duration.seconds(29), allow_test_invoke=False
        )
        for resource in (self.rest_api.root, self.rest_api.root.add_resource("{proxy+}")):
            method = resource.add_method("ANY", integration, authorization_type=apigateway.AuthorizationType.NONE)
            reason = "Callers authenticate to the catalog with their own tokens, and the gateway forwards those."
            acknowledge(method, APIG4=reason, COG4=reason)

    def _build_domain(self, settings: Settings) -> apigateway.CfnDomainNameV2:
        """Build the private domain by which API Gateway finds the API from the header `Host` (no path is removed)."""
        domain = apigateway.CfnDomainNameV2(
            self,
            "Domain",
            domain_name=settings.gateway_domain_name,
            certificate_arn=settings.gateway_certificate_arn,
            endpoint_configuration=apigateway.CfnDomainNameV2.EndpointConfigurationProperty(types=["PRIVATE"]),
            security_policy="TLS_1_2",
            policy=only_through(self._endpoint).to_json(),
        )
        apigateway.CfnBasePathMappingV2(
            self,
            "Mapping",
            domain_name_arn=domain.attr_domain_name_arn,
            rest_api_id=self.rest_api.rest_api_id,
            stage=self.rest_api.deployment_stage.stage_name,
        )
        apigateway.CfnDomainNameAccessAssociation(
            self,
            "Access",
            domain_name_arn=domain.attr_domain_name_arn,
            access_association_source=self._endpoint,
            access_association_source_type="VPCE",
        )
        return domain

    def _build_rule(self, settings: Settings) -> list[elb.CfnListenerRule]:
        """Build the target group with the VPC endpoint's addresses, and the listener's rules that lead there."""
        group = elb.CfnTargetGroup(
            self,
            "Endpoint",
            target_type="ip",
            protocol="HTTPS",
            port=443,
            vpc_id=settings.gateway_vpc_id,
            targets=[
                elb.CfnTargetGroup.TargetDescriptionProperty(id=address, port=443)
                for address in settings.gateway_endpoint_addresses
            ],
            # The check has no host name, so API Gateway refuses it: an answer is all that it can show.
            health_check_path="/",
            health_check_protocol="HTTPS",
            matcher=elb.CfnTargetGroup.MatcherProperty(http_code="200-499"),
        )
        forward = elb.CfnListenerRule.ActionProperty(type="forward", target_group_arn=group.ref)
        built = []
        for number, rule in enumerate(with_base(settings.gateway_base_path)):
            resource = elb.CfnListenerRule(
                self,
                f"Rule{number}",
                listener_arn=settings.gateway_listener_arn,
                priority=settings.gateway_listener_priority + number,
                actions=[forward],
                conditions=[],
            )
            resource.add_property_override("Conditions", rule["Conditions"])
            built.append(resource)
        return built


def catalog_template(answer: CatalogErrorAnswer) -> str:
    """Return a mapping template for Iceberg's error; messageString is API Gateway's text, quoted as JSON."""
    return answer.body("$context.error.messageString" if answer.message is None else json.dumps(answer.message))
