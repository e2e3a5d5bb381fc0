"""The names of purges: task types, what their admission is decided by, and the fields of their records."""

import hashlib
import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from delegation.removal.details import PlanDetails
from delegation.tasks.life.lanes import HIGHEST, NORMAL, Traits
from delegation.tasks.life.model import Labels

TASK_TYPE: Final = "TABLE_PURGE"
"""The stored `task_type`; requests may also name it SYNCHRONOUS_TABLE_PURGE or DATA_FILE_PURGE."""

PLAN_TASK_TYPE: Final = "TABLE_PURGE_PLAN"
"""A dry run: it makes a plan, deletes nothing, and has an id of its own."""

PREFIX: Final = "delegation.purge."
"""The beginning of the operator's properties of purges."""

TASK_TYPES: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})

DROP_TASK_TYPE: Final = "TABLE_DROP_WITH_PURGE"
"""The purge of a tombstone, and then the drop of its entry (`gateway.drop`)."""

UPKEEP_TASK_TYPE: Final = "TOMBSTONE_UPKEEP"
"""The recurring task that finishes or clears what a crash left between two steps of a drop."""

DROPPED_TABLE: Final = "dropped-table"
"""The property of a drop's payload with the dotted name that the table had: its table identity is the tombstone's."""

PRIORITY: Final = "priority"
"""The property of a request; a higher one is admitted first."""

PRIORITIES: Final = tuple(str(priority) for priority in (NORMAL, *range(NORMAL), *range(NORMAL + 1, HIGHEST + 1)))
"""Its values, the default first."""


def traits_of(payload: str) -> Traits:
    """Return the traits of a stored purge: its catalog is the tenant; none for a payload that is not of a purge."""
    try:
        parameters = json.loads(payload)["operation_parameters"]
        catalog, location = parameters["table_identity"]["catalog_name"], parameters["metadata"]["location"]
        priority = str(parameters["properties"].get(PRIORITY))
        urgency = int(priority) if priority in PRIORITIES else NORMAL
        return Traits(tenant=str(catalog), bucket=urlsplit(str(location)).netloc, priority=urgency)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Traits()


def labels_of(payload: str) -> Labels:
    """Return the labels of a stored purge: its table's dotted name, its request's correlation id, its realm.

    The table of a drop is the one that lost its name, not the tombstone.
    """
    try:
        document = json.loads(payload)
        identity = document["operation_parameters"]["table_identity"]
        parts = [identity["catalog_name"], *identity["namespace_levels"], identity["table_name"]]
        former = document["operation_parameters"].get("properties", {}).get(DROPPED_TABLE)
        target = former if isinstance(former, str) else ".".join(map(str, parts))
        common = document["common_payload"]
        found = (common.get(name) for name in ("polaris_correlation_id", "realm_identifier"))
        correlation_id, realm = (text if isinstance(text, str) else None for text in found)
        return Labels(target, correlation_id, realm)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Labels()


_S3_ALIASES: Final = ("s3a://", "s3n://")

MOST_STATES: Final = 500
"""The newest ones are kept, to bound a task's record; Iceberg keeps 100 former metadata files by default."""


class PurgeDetails(PlanDetails):
    """The published plan, its progress, and which table and metadata a finished purge deleted.

    `purged_states` are digests of the purged metadata files: a request that states one of them asks for what is done.
    """

    purged_identifier: str | None = None
    purged_metadata_location: str | None = None
    purged_states: tuple[str, ...] = ()


def state_of(metadata_location: str) -> str:
    """Return the digest of a metadata file's URI, the same for the schemes s3, s3a and s3n."""
    path = "s3" + metadata_location[3:] if metadata_location.startswith(_S3_ALIASES) else metadata_location
    return hashlib.sha256(path.encode()).hexdigest()[:16]


def states_of(metadata_files: Sequence[str]) -> tuple[str, ...]:
    """Return the digests of the newest MOST_STATES files; their names begin with a version number."""
    newest = sorted(metadata_files, key=lambda path: path.rpartition("/")[2])[-MOST_STATES:]
    return tuple(state_of(path) for path in newest)
