"""The REST APIs: the service's own, private or Regional, and the private one before the gateway with its rule."""

import json
from collections.abc import Mapping
from typing import Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.logs import LogKeeping
from infra.constructs.network import domains
from infra.constructs.network.vpc import HTTPS
from infra.constructs.security.nag import acknowledge, acknowledge_finding
from infra.constructs.stores import Buckets
from infra.environment.resources import resource_name, service_name
from infra.gateway_answers import ANSWERS, CATALOG_ANSWERS, CatalogErrorAnswer, GatewayAnswer
from infra.rule.conditions import with_base
from infra.settings import Settings


def template(answer: GatewayAnswer | CatalogErrorAnswer) -> str:
    """Return a mapping template for an answer; messageString is API Gateway's text, quoted as JSON."""
    return answer.body("$context.error.messageString" if answer.message is None else json.dumps(answer.message))


def add_responses(
    api: apigateway.RestApi, answers: Mapping[str, GatewayAnswer] | Mapping[str, CatalogErrorAnswer]
) -> None:
    """Set every answer that the gateway may return without invoking the function."""
    for name, answer in answers.items():
        api.add_gateway_response(
            name.title().replace("_", ""),
            type=apigateway.ResponseType.of(name),
            status_code=None if answer.status is None else str(answer.status),
            response_headers={header: f"'{value}'" for header, value in answer.headers.items()} or None,
            templates={"application/json": template(answer)},
        )


STAGE_NAME: Final = "live"
_LOGGED: Final = {
    "requestId": "$context.requestId",
    "requestTime": "$context.requestTime",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "status": "$context.status",
    "responseLength": "$context.responseLength",
    "latency": "$context.responseLatency",
    "sourceIp": "$context.identity.sourceIp",
    "clientSubject": "$context.identity.clientCert.subjectDN",
    "clientSerial": "$context.identity.clientCert.serialNumber",
    "vpcEndpoint": "$context.identity.vpceId",
    "error": "$context.error.responseType",
}
_OF_CLIENTS: Final = ("clientSubject", "clientSerial", "vpcEndpoint")
"""What only the service's own API logs: its callers have certificates."""


def _stage(log: logs.ILogGroup, fields: Mapping[str, str], *, rate: int) -> apigateway.StageOptions:
    """Return the stage: throttled at `rate` requests a second, and no log has a body, a query or a header."""
    return apigateway.StageOptions(
        stage_name=STAGE_NAME,
        data_trace_enabled=False,
        logging_level=apigateway.MethodLoggingLevel.ERROR,
        metrics_enabled=True,
        tracing_enabled=True,
        throttling_rate_limit=rate,
        throttling_burst_limit=2 * rate,
        access_log_destination=apigateway.LogGroupLogDestination(log),
        access_log_format=apigateway.AccessLogFormat.custom(json.dumps(fields)),
    )


class EdgeApi(Construct):
    """A REST API with the authorizer on every route, one proxy route for all paths, and a front with mutual TLS.

    Bodies and headers carry credentials, so neither log contains a body, a query or a header.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        function: lambda_.IFunction,
        authorizer: lambda_.IFunction,
        buckets: Buckets,
        keeping: LogKeeping,
        network: domains.PrivateNetwork | None,
    ) -> None:
        """`network` is that of the private profile; without it the API is Regional."""
        super().__init__(scope, construct_id)
        self.access_log = keeping.group(self, "AccessLog")
        self.rest_api = self._build_rest_api(settings, network)
        name = f"API-Gateway-Execution-Logs_{self.rest_api.rest_api_id}/{STAGE_NAME}"
        self.rest_api.deployment_stage.node.add_dependency(keeping.group(self, "ExecutionLog", name=name))
        add_responses(self.rest_api, ANSWERS)
        self._build_routes(function, authorizer, private=network is not None)
        self.front: domains.RegionalFront | domains.PrivateFront
        if network is None:
            self.front = domains.RegionalFront(
                self, "Front", settings=settings, api=self.rest_api, truststore=buckets.truststore
            )
        else:
            self.front = domains.PrivateFront(
                self, "Front", settings=settings, api=self.rest_api, network=network, buckets=buckets
            )
        CfnOutput(self, "Url", value=f"https://{settings.domain_name}/{domains.BASE_PATH}")

    def _build_rest_api(self, settings: Settings, network: domains.PrivateNetwork | None) -> apigateway.RestApi:
        api = apigateway.RestApi(
            self,
            "RestApi",
            rest_api_name=service_name(settings.stage),
            endpoint_configuration=self._endpoint(network),
            policy=None if network is None else domains.only_through(network.endpoint.id),
            # It would admit callers without a client certificate. A private API has no public one: only the load
            # balancer reaches its endpoint, and forwards the domain's own host alone.
            disable_execute_api_endpoint=None if network is not None else True,
            cloud_watch_role=False,
            deploy_options=_stage(self.access_log, _LOGGED, rate=100),
        )
        if settings.account_log_role == "create":
            api.deployment_stage.node.add_dependency(self._build_account())
        acknowledge(api, APIG2="The function validates bodies and names the field that is wrong, which a model cannot.")
        if network is not None:
            acknowledge(
                api.deployment_stage,
                APIG3="Security groups admit only Polaris' addresses, so a web firewall would have nothing to refuse.",
            )
        return api

    def _endpoint(self, network: domains.PrivateNetwork | None) -> apigateway.EndpointConfiguration:
        if network is None:
            return apigateway.EndpointConfiguration(types=[apigateway.EndpointType.REGIONAL])
        endpoint = ec2.InterfaceVpcEndpoint.from_interface_vpc_endpoint_attributes(
            self, "Endpoint", vpc_endpoint_id=network.endpoint.id, port=HTTPS
        )
        return apigateway.EndpointConfiguration(types=[apigateway.EndpointType.PRIVATE], vpc_endpoints=[endpoint])

    def _build_account(self) -> apigateway.CfnAccount:
        """Allow API Gateway to write logs; this is one setting per account and region, shared by all stacks.

        Role and setting stay for the other stacks when this one is deleted, also after a first deployment that failed.
        """
        role = iam.Role(
            self,
            "LogRole",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonAPIGatewayPushToCloudWatchLogs")
            ],
        )
        acknowledge_finding(
            role,
            "IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs]",
            "API Gateway refuses the account setting unless the role has the permissions of exactly this policy.",
        )
        role.apply_removal_policy(RemovalPolicy.RETAIN)
        account = apigateway.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        account.apply_removal_policy(RemovalPolicy.RETAIN)
        return account

    def _build_routes(self, function: lambda_.IFunction, authorizer: lambda_.IFunction, *, private: bool) -> None:
        checks = apigateway.RequestAuthorizer(
            self,
            "Authorizer",
            handler=authorizer,
            # None: with the header as source API Gateway would refuse a request without token before the authorizer.
            identity_sources=[],
            # The cache key is the token alone, so a cached answer would admit any certificate of the CA.
            results_cache_ttl=Duration.seconds(0),
        )
        integration = apigateway.LambdaIntegration(
            function, proxy=True, timeout=Duration.seconds(29), allow_test_invoke=False
        )
        # The Regional domain maps the prefix to the API; a private one cannot, so there the paths have it.
        base = self.rest_api.root.resource_for_path(domains.BASE_PATH) if private else self.rest_api.root
        for resource in (base, base.add_resource("{proxy+}")):
            method = resource.add_method(
                "ANY", integration, authorizer=checks, authorization_type=apigateway.AuthorizationType.CUSTOM
            )
            acknowledge(
                method, COG4="Callers are services with OAuth2 tokens of the catalog's issuer, not Cognito users."
            )


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
        add_responses(self.rest_api, CATALOG_ANSWERS)
        self._build_routes(function)
        self.domain, _ = domains.private_domain(
            self,
            name=str(settings.gateway_domain_name),
            certificate_arn=str(settings.gateway_certificate_arn),
            api=self.rest_api,
            endpoint_id=self._endpoint,
        )
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
            policy=domains.only_through(self._endpoint),
            cloud_watch_role=False,
            # Every body is Base64 on its way, so that compressed ones arrive and leave as they are.
            binary_media_types=["*/*"],
            # Far beyond what a catalog commits; the account's limit is every API's.
            deploy_options=_stage(
                self.access_log, {name: of for name, of in _LOGGED.items() if name not in _OF_CLIENTS}, rate=1000
            ),
        )
        acknowledge(api, APIG2="The catalog validates requests; the gateway forwards requests that it does not know.")
        acknowledge(
            api.deployment_stage,
            APIG3="Only the load balancer's VPC endpoint reaches the API; a web firewall belongs to the load balancer.",
        )
        return api

    def _build_routes(self, function: lambda_.Function) -> None:
        integration = apigateway.LambdaIntegration(
            function, proxy=True, timeout=Duration.seconds(29), allow_test_invoke=False
        )
        for resource in (self.rest_api.root, self.rest_api.root.add_resource("{proxy+}")):
            method = resource.add_method("ANY", integration, authorization_type=apigateway.AuthorizationType.NONE)
            reason = "Callers authenticate to the catalog with their own tokens, and the gateway forwards those."
            acknowledge(method, APIG4=reason, COG4=reason)

    def _build_rule(self, settings: Settings) -> list[elb.CfnListenerRule]:
        """Build the target group with the VPC endpoint's addresses, and the listener's rules that lead there."""
        # The check has no host name, so API Gateway refuses it: an answer is all that it can show.
        group = domains.endpoint_targets(
            self, settings.gateway_vpc_id, settings.gateway_endpoint_addresses, healthy="200-499"
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
