"""The whole CDK app, built from settings alone without account or network: the same input yields the same templates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import App, Tags, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

from infra.constructs.logs import LogKeeping
from infra.environment.context import default_context, with_stage_file
from infra.network_settings import CustomerKeyUse
from infra.settings import Settings
from infra.stacks.data import DataStack
from infra.stacks.gateway import GatewayStack
from infra.stacks.network import NetworkStack
from infra.stacks.service import ServiceStack


@dataclass(frozen=True)
class Deployment:
    """The app and its stacks; `network` is None without a VPC, `gateway` unless it is switched on."""

    app: App
    data: DataStack
    service: ServiceStack
    network: NetworkStack | None
    gateway: GatewayStack | None


_ASSETS_ARE_NAMED: Final = {"aws:cdk:enable-asset-metadata": True}
"""Templates name a function's asset, which SAM looks for; in cdk.json the CDK command warns of this name."""


def build(context: Mapping[str, Any] | None = None, *, outdir: str | None = None) -> Deployment:
    """Build the app with the context of cdk.json, overridden by `context` and by `cdk -c`.

    Raises pydantic's ValidationError for settings that are missing, wrong or unknown. cdk-nag's rules apply
    (`check`): synthesis fails on a finding that is not acknowledged with a reason.
    """
    given = {**_ASSETS_ARE_NAMED, **default_context(), **(context or {})}
    app = App(context=given, outdir=outdir, analytics_reporting=False)
    settings = Settings.from_context(with_stage_file(app.node.get_all_context(), default_context()))
    check(app)
    Tags.of(app).add("service", "polaris-delegation")
    Tags.of(app).add("stage", settings.stage)
    data = DataStack(app, f"PolarisDelegation-{settings.stage}-Data", settings=settings)
    key = data.key if settings.has_customer_key_for(CustomerKeyUse.LOGS) else None
    keeping = LogKeeping(settings.log_retention_days, key)
    name = f"PolarisDelegation-{settings.stage}"
    network = NetworkStack(app, f"{name}-Network", settings=settings, keeping=keeping) if settings.has_vpc else None
    service = ServiceStack(app, f"{name}-Service", settings=settings, data=data, keeping=keeping, network=network)
    gateway = None
    if settings.gateway:
        gateway = GatewayStack(app, f"{name}-Gateway", settings=settings, data=data, service=service, keeping=keeping)
    return Deployment(app, data, service, network, gateway)


def check(app: App) -> None:
    """Have synthesis apply the rules of cdk-nag's packs AwsSolutions and Serverless."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
