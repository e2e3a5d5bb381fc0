"""The gateway in front of the catalog: one function with its role, and a private API; off by default."""

from dataclasses import replace
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from delegation.environment import SETTINGS_OBJECT
from delegation.wiring.gateway.drop import FAILED_METRIC
from infra.constructs.catalog_api import CatalogApi
from infra.constructs.code import Code, StoredSettings, reading
from infra.constructs.functions import DeployedFunction, FunctionNetwork
from infra.constructs.logs import LogKeeping
from infra.constructs.security.nag import acknowledge_below
from infra.constructs.security.permissions import statements
from infra.environment import GATEWAY, METRICS_NAMESPACE, Resources, environment, stored_settings
from infra.naming import metric_dimensions, resource_name
from infra.settings import Settings
from infra.stacks.data import DataStack
from infra.stacks.service import ServiceStack
from infra.variables import fitted

_ERRORS: Final = (
    "The gateway failed or timed out, so clients got 502 or 504 for a drop or a mutation with a key. Read the error in "
    "its log; without the listener's rule the catalog serves them itself."
)
_TOMBSTONES: Final = (
    "The purge of a dropped table was refused or failed beyond its retries; the table is kept as a tombstone. Run "
    "`delegation tombstones list`, correct the cause, then purge or restore it."
)


class GatewayStack(Stack):
    """Can be deleted and deployed again at any time: without the rule that leads to it, it is never called."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        data: DataStack,
        service: ServiceStack,
        keeping: LogKeeping,
    ) -> None:
        super().__init__(scope, construct_id, description="Polaris Delegation Service: gateway in front of the catalog")
        resources = gateway_resources(service.resources, settings)
        stored = StoredSettings(self, "Settings", variables=stored_settings(resources))
        variables = fitted(GATEWAY.name, environment(GATEWAY.name, resources), stored.url)
        allowed = statements(GATEWAY.name, service.grants)
        if SETTINGS_OBJECT in variables:
            allowed += reading(stored.asset, key_arn=settings.bootstrap_key_arn)
        network = FunctionNetwork(settings.gateway_subnet_ids, settings.gateway_security_group_ids)
        built = DeployedFunction(
            self,
            "Gateway",
            function=GATEWAY,
            code=Code(self, "Code", package=settings.package).functions,
            variables=variables,
            allowed=allowed,
            keeping=keeping,
            network=network if network.subnet_ids else None,
        )
        self.function, self.role = built.function, built.role
        bucket = "The service's own bucket; keys begin with a task id, which is unknown at deployment."
        acknowledge_below(self, data.grants.plan_bucket_arn, "/*", bucket)
        self.api = CatalogApi(self, "Api", settings=settings, function=self.function, keeping=keeping)
        self._watch(settings, service.alarm_topic_arn)

    def _watch(self, settings: Settings, topic_arn: str) -> None:
        action = actions.SnsAction(sns.Topic.from_topic_arn(self, "Topic", topic_arn))
        failed = cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=FAILED_METRIC,
            dimensions_map=metric_dimensions(settings.stage),
            statistic="Sum",
        )
        watched = {
            "GatewayErrors": (self.function.metric_errors(), _ERRORS),
            "TombstonesFailed": (failed, _TOMBSTONES),
        }
        for name, (metric, text) in watched.items():
            alarm = cloudwatch.Alarm(
                self,
                name,
                alarm_name=resource_name(settings.stage, name),
                metric=metric.with_(period=Duration.minutes(5)),
                threshold=1,
                evaluation_periods=1,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
                alarm_description=text,
            )
            alarm.add_alarm_action(action)


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
