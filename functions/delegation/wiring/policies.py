"""Where a deployment's policies come from, and what bounds them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import Field

import delegation
from delegation.environment import EnvironmentSettings
from delegation.polaris.policies import PolicyClient
from delegation.polaris.requests import CatalogRequests
from delegation.upkeep.policy_file import PACKAGED, DeployedPolicies, PolicyFileInvalid, StoredPolicyFile

_SHOWN: Final = (
    "delegation.upkeep.",
    "delegation.expiry.",
    "delegation.orphan-files.locations",
    "delegation.compaction.",
    "delegation.rewrite-manifests.",
)
"""The prefixes of the properties that `UpkeepLimits` and `UpkeepSettings` read."""


class PolicyFileEnvironment(EnvironmentSettings):
    """The policy file of a worker; by default that of the package, if it has one."""

    policy_file: Path | None = Field(None, alias="DELEGATION_POLICY_FILE")


def deployed_policies(requests: CatalogRequests) -> DeployedPolicies:
    """Return the policies of the deployment; the file is read on first use."""
    return DeployedPolicies(PolicyClient(requests), _policy_file())


def shown_settings(properties: Mapping[str, str]) -> Mapping[str, Any]:
    file = _policy_file()
    shown = {"properties": {name: value for name, value in properties.items() if name.startswith(_SHOWN)}}
    try:
        return {**shown, "policy_file": file and sorted(file().catalogs), "error_code": None}
    except PolicyFileInvalid as error:
        return {**shown, "policy_file": [], "error_code": error.code}


def _policy_file() -> StoredPolicyFile | None:
    path = PolicyFileEnvironment.read().policy_file
    packaged = Path(delegation.__file__).parents[1] / PACKAGED
    if path is None and packaged.is_file():
        path = packaged
    return None if path is None else StoredPolicyFile(path)
