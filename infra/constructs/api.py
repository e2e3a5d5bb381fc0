"""The HTTPS front: a Regional REST API behind a custom domain that requires a client certificate."""

import json
from typing import Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.gateway_responses import add_gateway_responses
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
    "error": "$context.error.responseType",
}


class EdgeApi(Construct):
    """A REST API with mutual TLS, the authorizer on every route, and one proxy route for all paths.

    Bodies and headers carry credentials, so neither log contains a body, a query or a header.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        function: lambda_.Function,
        authorizer: lambda_.Function,
        truststore: s3.IBucket,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, construct_id)
        self.access_log = logs.LogGroup(self, "AccessLog", retention=log_retention, removal_policy=RemovalPolicy.RETAIN)
        self.rest_api = self._build_rest_api(settings)
        self._keep_execution_log(log_retention)
        add_gateway_responses(self.rest_api)
        self._build_routes(function, authorizer)
        self.domain = self._build_domain(settings, truststore)
        CfnOutput(self, "Url", value=f"https://{settings.domain_name}/{BASE_PATH}")
        CfnOutput(self, "DomainTarget", value=self.domain.domain_name_alias_domain_name)

    def _build_rest_api(self, settings: Settings) -> apigateway.RestApi:
        account = self._build_account()
        api = apigateway.RestApi(
            self,
            "RestApi",
            rest_api_name=service_name(settings.stage),
            endpoint_types=[apigateway.EndpointType.REGIONAL],
            disable_execute_api_endpoint=True,  # it would admit callers without a client certificate
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
        api.deployment_stage.node.add_dependency(account)
        acknowledge(api, APIG2="The function validates bodies and names the field that is wrong, which a model cannot.")
        acknowledge(
            api.deployment_stage,
            APIG3="TLS and the authorizer admit one identity only; a web firewall would have no other to refuse.",
        )
        return api

    def _build_account(self) -> apigateway.CfnAccount:
        """Allow API Gateway to write logs; this is one setting per account and region, shared by all stacks."""
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
        account = apigateway.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        account.apply_removal_policy(RemovalPolicy.RETAIN)
        return account

    def _keep_execution_log(self, retention: logs.RetentionDays) -> None:
        log = logs.LogGroup(
            self,
            "ExecutionLog",
            log_group_name=f"API-Gateway-Execution-Logs_{self.rest_api.rest_api_id}/{STAGE_NAME}",
            retention=retention,
            removal_policy=RemovalPolicy.RETAIN,
        )
        self.rest_api.deployment_stage.node.add_dependency(log)

    def _build_routes(self, function: lambda_.Function, authorizer: lambda_.Function) -> None:
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
        for resource in (self.rest_api.root, self.rest_api.root.add_resource("{proxy+}")):
            method = resource.add_method(
                "ANY", integration, authorizer=checks, authorization_type=apigateway.AuthorizationType.CUSTOM
            )
            acknowledge(
                method, COG4="Callers are services with OAuth2 tokens of the catalog's issuer, not Cognito users."
            )

    def _build_domain(self, settings: Settings, truststore: s3.IBucket) -> apigateway.DomainName:
        certificate: acm.ICertificate
        if settings.certificate_arn:
            certificate = acm.Certificate.from_certificate_arn(self, "Certificate", settings.certificate_arn)
        else:
            certificate = acm.Certificate(
                self,
                "Certificate",
                domain_name=settings.domain_name,
                validation=acm.CertificateValidation.from_dns(),
            )
        domain = apigateway.DomainName(
            self,
            "Domain",
            domain_name=settings.domain_name,
            certificate=certificate,
            endpoint_type=apigateway.EndpointType.REGIONAL,
            security_policy=apigateway.SecurityPolicy.TLS_1_2,
            mtls=apigateway.MTLSConfig(
                bucket=truststore, key=settings.truststore_key, version=settings.truststore_version
            ),
        )
        if settings.ownership_certificate_arn:
            resource = domain.node.default_child
            if isinstance(resource, apigateway.CfnDomainName):
                resource.ownership_verification_certificate_arn = settings.ownership_certificate_arn
        domain.add_api_mapping(self.rest_api.deployment_stage, base_path=BASE_PATH)
        return domain
