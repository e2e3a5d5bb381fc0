"""Where a deployment's policies are read."""

from pathlib import Path

from pydantic import Field

import delegation
from delegation.environment import EnvironmentSettings
from delegation.polaris.policies import PolicyClient
from delegation.polaris.requests import CatalogRequests
from delegation.upkeep.deployed import PACKAGED, DeployedPolicies, StoredPolicyFile


class PolicyFileEnvironment(EnvironmentSettings):
    """The policy file of a worker; by default that of the package, if it has one."""

    policy_file: Path | None = Field(None, alias="DELEGATION_POLICY_FILE")


def deployed_policies(requests: CatalogRequests) -> DeployedPolicies:
    """Return the policies of the deployment; the file is read when it is first needed."""
    path = PolicyFileEnvironment.read().policy_file
    packaged = Path(delegation.__file__).parents[1] / PACKAGED
    if path is None and packaged.is_file():
        path = packaged
    return DeployedPolicies(PolicyClient(requests), None if path is None else StoredPolicyFile(path))
