"""Policies as a catalog returns them, for tests of rules."""

import json
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.polaris.policies import ApplicablePolicy, StoredPolicy
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import PolicyType

TABLE = TableIdentifier("lake", ("sales", "eu"), "orders")
ALL = UpkeepLimits(types=frozenset(PolicyType), least_age_ms=0, least_snapshots=1, least_orphan_age_ms=0)
"""Limits that bound as little as possible."""


def policy(type_: PolicyType, content: str | dict[str, Any], *, inherited: bool = False) -> ApplicablePolicy:
    """Return a policy with a content, a text or the members of the document."""
    text = content if isinstance(content, str) else json.dumps(content)
    return ApplicablePolicy(StoredPolicy(type_.value, "keep", text, 3), ("gov",), inherited)


def expiry(*, enable: Any = True, **config: Any) -> ApplicablePolicy:
    """Return a policy of snapshot expiry."""
    return policy(PolicyType.SNAPSHOT_EXPIRY, {"enable": enable, "config": config})


def orphans(**members: Any) -> ApplicablePolicy:
    """Return an enabled policy of orphan file removal."""
    return policy(PolicyType.ORPHAN_FILE_REMOVAL, {"enable": True, **members})
