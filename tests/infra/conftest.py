"""The app, synthesized once per test process; importing the CDK starts Node, so only fixtures and `node` tests do."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infra.environment.context import PROPERTIES_KEY, default_context
from tests.unit.edge.trust.pki import authority, pem

if TYPE_CHECKING:
    from aws_cdk import Stack
    from aws_cdk.assertions import Template

    from infra.stacks.build import Deployment


TEMPLATES_ALONE = {
    "aws:cdk:disable-asset-staging": True,
    "delegation:package": "none",
    "delegation:client-ca": pem(authority()),
    "delegation:revocation-lists": "lists/ca.crl, s3://pki-lists/people.crl",
}
"""Templates without code that runs and without a copy of the sources, with what is off by default in cdk.json."""
WITH_ASSETS = {**TEMPLATES_ALONE, "aws:cdk:disable-asset-staging": False}
REGIONAL = {
    **TEMPLATES_ALONE,
    "delegation:network": "regional",
    "delegation:caller-cidrs": "",
    "delegation:stage": "dev",
    "delegation:hosted-zone-id": "Z0123456789",
    "delegation:account-log-role": "existing",
    "delegation:kms-key-arn": "arn:aws:kms:eu-central-1:123456789012:key/1234abcd",
    "delegation:bootstrap-key-arn": "arn:aws:kms:eu-central-1:123456789012:key/5678abcd",
    "delegation:customer-key-for": "queues,logs,topics",
    "delegation:reserved-concurrency": "run_inline=20",
}
"""The other profile, and another stage, with the settings that the first has not."""


GATEWAY_ENDPOINT = "vpce-0a1b2c3d4e5f60718"
WITH_GATEWAY = {
    "delegation:gateway": True,
    "delegation:gateway-polaris-url": "http://polaris.internal:8181/api/catalog",
    "delegation:gateway-vpc-endpoint": GATEWAY_ENDPOINT,
    "delegation:gateway-domain-name": "polaris.lake.io",
    "delegation:gateway-certificate-arn": "arn:aws:acm:eu-central-1:123456789012:certificate/1",
    "delegation:gateway-listener-arn": "arn:aws:elasticloadbalancing:eu-central-1:123456789012:listener/app/a/b/c",
    "delegation:gateway-listener-priority": "100",
    "delegation:gateway-base-path": "/catalog",
    "delegation:gateway-timeout-seconds": 20,
    "delegation:gateway-namespace-separator": "%2E",
    "delegation:gateway-purge-requests": "refuse",
    "delegation:gateway-vpc-id": "vpc-0a1b2c3d",
    "delegation:gateway-endpoint-addresses": "10.0.1.7, 10.0.2.7",
    "delegation:gateway-subnet-ids": "subnet-0123456789abcdef1,subnet-0123456789abcdef2",
    "delegation:gateway-security-group-ids": "sg-0123456789abcdef0",
    "delegation:gateway-token-jwks-url": "https://issuer.lake.io/jwks.json",
}
EVERYTHING = {
    **TEMPLATES_ALONE,
    **WITH_GATEWAY,
    PROPERTIES_KEY: {
        **default_context()[PROPERTIES_KEY],
        "delegation.notifications.events": "true",
        "delegation.orphan-files.roles": "lake=arn:aws:iam::123456789012:role/lake/quarantine",
        "delegation.notifications.callback.catalog": "https://catalog.acme.org/hooks",
    },
    "delegation:event-bus": "ends",
    "delegation:polaris-secret-rotation-days": 30,
    "delegation:emr-queue-minutes": 720,
    "delegation:probe-secret-arn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:probe-AbCdEf",
    "delegation:customer-key-for": "queues,logs,topics",
    "delegation:bootstrap-key-arn": "arn:aws:kms:eu-central-1:123456789012:key/5678abcd-0000-4000-8000-000000000000",
}
"""Whatever is off by default is on: the deployment with all roles, and with all that they can be allowed."""


@dataclass(frozen=True)
class SynthesizedStack:
    """A stack, with its template as `aws_cdk.assertions.Template` and as plain data."""

    stack: "Stack"
    template: "Template"
    document: dict[str, Any]

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return all resources of a type by logical id."""
        found = {name: body for name, body in self.document["Resources"].items() if body["Type"] == kind}
        assert found, f"the template has no {kind}"
        return found

    def one(self, kind: str, **properties: object) -> dict[str, Any]:
        """Return the only resource of a type with these properties."""
        found = [
            body
            for body in self.resources(kind).values()
            if all(body["Properties"].get(name) == value for name, value in properties.items())
        ]
        assert len(found) == 1, f"{len(found)} of {kind} have {properties}"
        return found[0]


@pytest.fixture(scope="session")
def node() -> str:
    """The path of Node, which the CDK needs; the test is skipped without it."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("Node.js is not installed; the infrastructure tests need Node 20 or newer")
    return path


@pytest.fixture(scope="session")
def deployment(node: str, tmp_path_factory: pytest.TempPathFactory) -> "Deployment":
    """The synthesized app with the settings of cdk.json and its assets; this fails if cdk-nag has findings."""
    from infra.stacks.build import build

    built = build(WITH_ASSETS, outdir=str(tmp_path_factory.mktemp("cdk.out")))
    built.app.synth()
    return built


@pytest.fixture(scope="session")
def regional(node: str, tmp_path_factory: pytest.TempPathFactory) -> "Deployment":
    """The synthesized app of the regional profile; this fails if cdk-nag has findings."""
    from infra.stacks.build import build

    built = build(REGIONAL, outdir=str(tmp_path_factory.mktemp("cdk.out")))
    built.app.synth()
    return built


@pytest.fixture(scope="session")
def everything(node: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SynthesizedStack]:
    """The stacks of the app with everything on, by `data`, `network`, `service` and `gateway`, checked by cdk-nag."""
    from aws_cdk.assertions import Template

    from infra.stacks.build import build

    built = build(EVERYTHING, outdir=str(tmp_path_factory.mktemp("everything")))
    built.app.synth()
    found = {}
    for name in ("data", "network", "service", "gateway"):
        stack = getattr(built, name)
        assert stack is not None, name
        template = Template.from_stack(stack)
        found[name] = SynthesizedStack(stack, template, template.to_json())
    return found


@pytest.fixture(scope="session")
def synthesized() -> Callable[["Stack"], SynthesizedStack]:
    """Returns a stack of a deployment with its template."""
    from aws_cdk.assertions import Template

    def of(stack: "Stack") -> SynthesizedStack:
        template = Template.from_stack(stack)
        return SynthesizedStack(stack, template, template.to_json())

    return of


@pytest.fixture(scope="session")
def data(deployment: "Deployment", synthesized: Callable[["Stack"], SynthesizedStack]) -> SynthesizedStack:
    """The data stack."""
    return synthesized(deployment.data)


@pytest.fixture(scope="session")
def service(deployment: "Deployment", synthesized: Callable[["Stack"], SynthesizedStack]) -> SynthesizedStack:
    """The service stack."""
    return synthesized(deployment.service)


@pytest.fixture(scope="session")
def network(deployment: "Deployment", synthesized: Callable[["Stack"], SynthesizedStack]) -> SynthesizedStack:
    """The network stack."""
    assert deployment.network is not None
    return synthesized(deployment.network)


@pytest.fixture(scope="session")
def regional_service(regional: "Deployment", synthesized: Callable[["Stack"], SynthesizedStack]) -> SynthesizedStack:
    """The service stack of the regional profile."""
    return synthesized(regional.service)


@pytest.fixture(scope="session")
def outdir(deployment: "Deployment") -> Path:
    """The folder of templates and assets."""
    return Path(deployment.app.outdir)
