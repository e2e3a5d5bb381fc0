"""The REST API: private or Regional, with the authorizer on every route and the front of its network profile."""

import json
from typing import Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.buckets import Buckets
from infra.constructs.gateway_responses import add_gateway_responses
from infra.constructs.logs import LogKeeping
from infra.constructs.network.domains import PrivateFront, PrivateNetwork, RegionalFront, only_through
from infra.constructs.network.groups import HTTPS
from infra.constructs.security.nag import acknowledge, acknowledge_finding
from infra.naming import service_name
from infra.settings import Settings

BASE_PATH: Final = "delegation-service/api"
"""The prefix of the API's paths (Delegation Service proposal, Appendix, `servers`)."""
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
    "clientSubject": "$context.identity.clientCert.subjectDN",
    "clientSerial": "$context.identity.clientCert.serialNumber",
    "vpcEndpoint": "$context.identity.vpceId",
    "error": "$context.error.responseType",
}


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
        network: PrivateNetwork | None,
    ) -> None:
        """`network` is that of the private profile; without it the API is Regional."""
        super().__init__(scope, construct_id)
        self.access_log = keeping.group(self, "AccessLog")
        self.rest_api = self._build_rest_api(settings, network)
        self._keep_execution_log(keeping)
        add_gateway_responses(self.rest_api)
        self._build_routes(function, authorizer, private=network is not None)
        self.front = self._build_front(settings, buckets, network)
        CfnOutput(self, "Url", value=f"https://{settings.domain_name}/{BASE_PATH}")

    def _build_rest_api(self, settings: Settings, network: PrivateNetwork | None) -> apigateway.RestApi:
        api = apigateway.RestApi(
            self,
            "RestApi",
            rest_api_name=service_name(settings.stage),
            endpoint_configuration=self._endpoint(network),
            policy=None if network is None else only_through(network.endpoint.id),
            # It would admit callers without a client certificate. A private API has no public one: only the load
            # balancer reaches its endpoint, and forwards the domain's own host alone.
            disable_execute_api_endpoint=None if network is not None else True,
            cloud_watch_role=False,
            deploy_options=apigateway.StageOptions(
                stage_name=STAGE_NAME,
                data_trace_enabled=False,
                logging_level=apigateway.MethodLoggingLevel.ERROR,
                metrics_enabled=True,
                tracing_enabled=True,
                throttling_rate_limit=100,
                throttling_burst_limit=200,
                access_log_destination=apigateway.LogGroupLogDestination(self.access_log),
                access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS_LOG)),
            ),
        )
        if settings.account_log_role == "create":
            api.deployment_stage.node.add_dependency(self._build_account())
        acknowledge(api, APIG2="The function validates bodies and names the field that is wrong, which a model cannot.")
        if network is not None:
            acknowledge(
                api.deployment_stage,
                APIG3="Security groups admit Polaris' own addresses alone; a firewall would have no others to refuse.",
            )
        return api

    def _endpoint(self, network: PrivateNetwork | None) -> apigateway.EndpointConfiguration:
        if network is None:
            return apigateway.EndpointConfiguration(types=[apigateway.EndpointType.REGIONAL])
        endpoint = ec2.InterfaceVpcEndpoint.from_interface_vpc_endpoint_attributes(
            self, "Endpoint", vpc_endpoint_id=network.endpoint.id, port=HTTPS
        )
        return apigateway.EndpointConfiguration(types=[apigateway.EndpointType.PRIVATE], vpc_endpoints=[endpoint])

    def _build_front(
        self, settings: Settings, buckets: Buckets, network: PrivateNetwork | None
    ) -> RegionalFront | PrivateFront:
        if network is None:
            return RegionalFront(
                self,
                "Front",
                settings=settings,
                api=self.rest_api,
                truststore=buckets.truststore,
                base_path=BASE_PATH,
            )
        return PrivateFront(
            self,
            "Front",
            settings=settings,
            api=self.rest_api,
            network=network,
            truststore=buckets.truststore,
            access_log=buckets.access_log,
            base_path=BASE_PATH,
        )

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

    def _keep_execution_log(self, keeping: LogKeeping) -> None:
        name = f"API-Gateway-Execution-Logs_{self.rest_api.rest_api_id}/{STAGE_NAME}"
        log = keeping.group(self, "ExecutionLog", name=name)
        self.rest_api.deployment_stage.node.add_dependency(log)

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
        base = self.rest_api.root.resource_for_path(BASE_PATH) if private else self.rest_api.root
        for resource in (base, base.add_resource("{proxy+}")):
            method = resource.add_method(
                "ANY", integration, authorizer=checks, authorization_type=apigateway.AuthorizationType.CUSTOM
            )
            acknowledge(
                method, COG4="Callers are services with OAuth2 tokens of the catalog's issuer, not Cognito users."
            )
