"""The gateway in front of the catalog: one function with its role, and a private API; off by default."""

from dataclasses import replace

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.catalog_api import CatalogApi
from infra.constructs.code import Code
from infra.constructs.functions import DeployedFunction, FunctionNetwork
from infra.constructs.security.nag import acknowledge_below
from infra.constructs.security.permissions import statements
from infra.constructs.security.retention import retention
from infra.environment import GATEWAY, Resources, environment
from infra.naming import resource_name
from infra.operations.alarms import GATEWAY_ERRORS
from infra.settings import Settings
from infra.stacks.data import DataStack
from infra.stacks.service import ServiceStack


class GatewayStack(Stack):
    """Can be deleted and deployed again at any time: without the rule that leads to it, it is never called."""

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings, data: DataStack, service: ServiceStack
    ) -> None:
        super().__init__(scope, construct_id, description="Polaris Delegation Service: gateway in front of the catalog")
        keep = retention(settings.log_retention_days)
        network = FunctionNetwork(settings.gateway_subnet_ids, settings.gateway_security_group_ids)
        built = DeployedFunction(
            self,
            "Gateway",
            function=GATEWAY,
            code=Code(self, "Code", package=settings.package).functions,
            variables=environment(GATEWAY.name, gateway_resources(service.resources, settings)),
            allowed=statements(GATEWAY.name, service.grants),
            log_retention=keep,
            network=network if network.subnet_ids else None,
        )
        self.function, self.role = built.function, built.role
        bucket = "The service's own bucket; keys begin with a task id, which is unknown at deployment."
        acknowledge_below(self, data.grants.plan_bucket_arn, "/*", bucket)
        self.api = CatalogApi(self, "Api", settings=settings, function=self.function, log_retention=keep)
        self._watch(settings)

    def _watch(self, settings: Settings) -> None:
        rule, topic = GATEWAY_ERRORS, settings.alarm_topic_arn
        alarm = cloudwatch.Alarm(
            self,
            rule.name,
            alarm_name=resource_name(settings.stage, rule.name),
            metric=self.function.metric_errors(period=Duration.minutes(5), statistic=rule.statistic),
            alarm_description=rule.description(settings.runbook_url),
            threshold=rule.threshold,
            evaluation_periods=rule.periods,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        if topic is not None:
            alarm.add_alarm_action(actions.SnsAction(sns.Topic.from_topic_arn(self, "Topic", topic)))


def gateway_resources(service: Resources, settings: Settings) -> Resources:
    """Return the service's resources with the catalog's address beside the rule, and its callers' tokens."""
    return replace(
        service,
        polaris_url=settings.gateway_polaris_url,
        gateway_base_path=settings.gateway_base_path,
        token_issuer=settings.gateway_token_issuer,
        token_jwks_url=settings.gateway_token_jwks_url,
        token_public_key=settings.gateway_token_public_key,
        token_audience=settings.gateway_token_audience,
    )
