"""The whole CDK app, built from settings alone without account or network: the same input yields the same templates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import App, Tags, Validations
from cdk_nag import AwsSolutionsChecks

from infra.environment import default_context
from infra.settings import Settings
from infra.stacks.data import DataStack
from infra.stacks.gateway import GatewayStack
from infra.stacks.service import ServiceStack


@dataclass(frozen=True)
class Deployment:
    """The app and its stacks; `gateway` is None unless it is switched on."""

    app: App
    data: DataStack
    service: ServiceStack
    gateway: GatewayStack | None


def build(context: Mapping[str, Any] | None = None, *, outdir: str | None = None) -> Deployment:
    """Build the app with the context of cdk.json, overridden by `context` and by `cdk -c`.

    Raises pydantic's ValidationError for settings that are missing, wrong or unknown. cdk-nag's AwsSolutions rules
    apply: synthesis fails on a finding that is not acknowledged with a reason.
    """
    app = App(context={**default_context(), **(context or {})}, outdir=outdir, analytics_reporting=False)
    settings = Settings.from_context(app.node.get_all_context())
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    Tags.of(app).add("service", "polaris-delegation")
    Tags.of(app).add("stage", settings.stage)
    data = DataStack(app, f"PolarisDelegation-{settings.stage}-Data", settings=settings)
    service = ServiceStack(app, f"PolarisDelegation-{settings.stage}-Service", settings=settings, data=data)
    gateway = None
    if settings.gateway:
        name = f"PolarisDelegation-{settings.stage}-Gateway"
        gateway = GatewayStack(app, name, settings=settings, data=data, service=service)
    return Deployment(app, data, service, gateway)
