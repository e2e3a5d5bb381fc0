"""The settings with which the stacks are synthesised: those of cdk.json, and what this run has instead."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from infra.environment.context import PROPERTIES_KEY, default_properties
from infra.local.identities import SCOPE, TOKEN_AUDIENCE, Identities
from infra.package.parts import Processor
from tests.localstack.replaced import JWKS, POLARIS

STAGE: Final = "localstack"
GRACE: Final = "10s"
"""After this time the sweeper dispatches a task whose dispatch was lost; a minute by default."""
STACKS: Final = tuple(f"PolarisDelegation-{STAGE}-{part}" for part in ("Data", "Network", "Service"))
"""The stacks of the private profile, in the order of their deployment."""


def context(identities: Identities, package: Path, processor: Processor, *, inline_max_files: int) -> dict[str, Any]:
    """Return the context of `cdk synth` that differs from cdk.json."""
    return {
        "delegation:stage": STAGE,
        "delegation:package": str(package),
        "delegation:architecture": str(processor),
        "delegation:domain-name": "delegation.localstack.internal",
        "delegation:caller-cidrs": "10.64.0.0/20",
        "delegation:client-subject": identities.subject,
        "delegation:client-issuer": identities.authority.subject,
        "delegation:operator-subjects": identities.operator_subject,
        "delegation:token-issuer": identities.issuer.issuer,
        "delegation:token-jwks-url": JWKS,
        "delegation:token-audience": TOKEN_AUDIENCE,
        "delegation:token-scope": SCOPE,
        "delegation:polaris-url": POLARIS,
        "delegation:inline-max-files": inline_max_files,
        PROPERTIES_KEY: {**default_properties(), "delegation.dispatch.grace-duration": GRACE},
    }


def processor_of(machine: str = platform.machine()) -> Processor:
    """Return the processor of this machine, on which LocalStack runs the functions."""
    return Processor.ARM64 if machine in {"arm64", "aarch64"} else Processor.X86_64


def addresses(polaris_url: str, jwks_url: str) -> Mapping[str, str]:
    """Return the stand-ins' addresses by those of the synthesised templates."""
    return {POLARIS: polaris_url, JWKS: jwks_url}
