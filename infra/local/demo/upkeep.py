"""The demo's policy: attached in Polaris, found by the recurring pass, and detached again."""

import json
import time
from collections.abc import Callable
from typing import Final

from delegation.cli.errors import CommandError
from delegation.client.client import DelegationClient
from delegation.identifiers import TableIdentifier
from delegation.polaris.policies import PolicyClient, PolicyIdentifier, PolicyTarget
from delegation.removal.expiry.names import TASK_TYPE
from delegation.upkeep.rules.model import PolicyType
from delegation.wire.tasks import TaskRecord

NAME: Final = "keep-newest"
OPTED_OUT: Final = {"delegation.policy.snapshot-expiry.enable": "false"}
"""The property of a table for which no inherited policy counts."""
_CONTENT: Final = {
    "version": "2025-02-03",
    "enable": True,
    "config": {"max_snapshot_age_days": 0, "min_snapshot_to_keep": 1},
}
_POLL_SECONDS: Final = 0.5
SWEEP_SECONDS: Final = 2.0


def trial_properties(catalog: str) -> dict[str, str]:
    """Return the properties of a trial: passes over a catalog every few seconds, and no least age of snapshots."""
    return {
        "delegation.upkeep.types": "snapshot-expiry",
        "delegation.upkeep.include": catalog,
        "delegation.upkeep.least-age": "0",
        "delegation.upkeep.interval": "5s",
        "delegation.purge.reference-refresh-interval": "5s",
        "delegation.dispatch.grace-duration": "5s",
    }


class PolicyWithoutEffect(CommandError):
    """No pass has started what a policy asks for."""

    code = "LOCAL_STACK_UPKEEP"


class DemoPolicy:
    """A policy of Polaris in a namespace and attached to it, with the caller's own privileges there."""

    def __init__(self, policies: PolicyClient, catalog: str, namespace: str) -> None:
        self.identifier = PolicyIdentifier(catalog, (namespace,), NAME)
        self.target = PolicyTarget(catalog, (namespace,))
        self._policies = policies

    def attach(self) -> None:
        """Create and attach it: the newest snapshot of each table stays, and each that a ref names."""
        self._policies.create(self.identifier, PolicyType.SNAPSHOT_EXPIRY.value, json.dumps(_CONTENT))
        self._policies.attach(self.identifier, self.target)

    def detach(self) -> None:
        """Detach it: nothing more is begun for it."""
        self._policies.detach(self.identifier, self.target)


def started_task(
    service: DelegationClient,
    table: TableIdentifier,
    *,
    timeout_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Return the id of the expiry that a pass started for a table; raises PolicyWithoutEffect if none does in time."""
    deadline = clock() + timeout_seconds
    while clock() < deadline:
        for task in service.list(type=TASK_TYPE, table=str(table)):
            return task.task_id
        sleep(_POLL_SECONDS)
    raise PolicyWithoutEffect(
        f"no pass has started an expiry of {table} within {timeout_seconds:.0f} s", "Read run_inline.log of the stack."
    )


def policy_of(view: TaskRecord) -> str | None:
    """Return the dotted name of the policy that asked for an expiry, None for a caller's."""
    asked = json.loads(view.task_payload)["operation_parameters"].get("policy")
    return None if asked is None else str(asked)
