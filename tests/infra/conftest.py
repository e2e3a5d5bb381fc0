"""The app, synthesized once per test process; importing the CDK starts Node, so only fixtures and `node` tests do."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.edge.trust.pki import authority, pem

if TYPE_CHECKING:
    from aws_cdk import Stack
    from aws_cdk.assertions import Template

    from infra.stacks.build import Deployment


TEMPLATES_ALONE = {
    "delegation:package": "none",
    "delegation:client-ca": pem(authority()),
    "delegation:revocation-lists": "lists/ca.crl, s3://pki-lists/people.crl",
}
"""Templates without code that runs, with what is off by default in cdk.json and has resources."""
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
    """The synthesized app with the settings of cdk.json; this fails if cdk-nag has findings."""
    from infra.stacks.build import build

    built = build(TEMPLATES_ALONE, outdir=str(tmp_path_factory.mktemp("cdk.out")))
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
