"""The gateway in front of the catalog: one function with its role, and a private API; off by default."""

from dataclasses import replace

from aws_cdk import Stack
from constructs import Construct

from infra.constructs.api import CatalogApi
from infra.constructs.code import Code, stored_object
from infra.constructs.functions import DeployedFunction, FunctionNetwork
from infra.constructs.logs import LogKeeping
from infra.constructs.monitoring import build_alarm
from infra.constructs.security.nag import acknowledge_below
from infra.environment.functions import GATEWAY
from infra.environment.resources import VARIABLES, Resources, stored_settings
from infra.operations.alarms import GATEWAY_ALARMS, AwsSource
from infra.settings import Settings
from infra.stacks.data import DataStack
from infra.stacks.service import ServiceStack


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
        stored = stored_object(self, stored_settings(resources))
        network = FunctionNetwork(settings.gateway_subnet_ids, settings.gateway_security_group_ids)
        code = Code(self, "Code", package=settings.package, processor=settings.architecture).functions
        parts = replace(service.parts, code=code, resources=resources, stored=stored)
        built = DeployedFunction(self, "Gateway", GATEWAY, parts, network=network if network.subnet_ids else None)
        self.function, self.role = built.function, built.role
        bucket = "The service's own bucket; keys begin with a task id, which is unknown at deployment."
        acknowledge_below(self, data.grants.plan_bucket_arn, "/*", bucket)
        self.api = CatalogApi(self, "Api", settings=settings, function=self.function, keeping=keeping)
        sources = {AwsSource.GATEWAY_ERRORS: self.function.metric_errors}
        for rule in GATEWAY_ALARMS:
            build_alarm(self, rule, settings, service.alarm_topic_arn, sources)


def gateway_resources(service: Resources, settings: Settings) -> Resources:
    """Return the service's resources with the catalog's address beside the rule, and its callers' tokens."""
    named = {name: getattr(settings, name) for name in VARIABLES if name.startswith("gateway_")}
    tokens = ("token_issuer", "token_jwks_url", "token_public_key", "token_audience")
    named |= {name: getattr(settings, f"gateway_{name}") for name in tokens}
    return service.replaced(polaris_url=settings.gateway_polaris_url, **named)
