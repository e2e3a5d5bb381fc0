"""What a purge's admission is decided by: for whom and on which bucket it works, its urgency, its size; its labels."""

import json
from typing import Final
from urllib.parse import urlsplit

from delegation.operations.purge.behavior.names import DROPPED_TABLE
from delegation.tasks.life.admission.lanes import HIGHEST, NORMAL, Traits
from delegation.tasks.life.model import Labels

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
