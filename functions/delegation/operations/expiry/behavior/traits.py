"""What an expiry's admission is decided by, and its labels: of the stored payload, read without the models."""

import json
from typing import Final
from urllib.parse import urlsplit

from delegation.operations.expiry.behavior.kinds import UPKEEP_PRIORITY
from delegation.tasks.life.admission.lanes import Traits
from delegation.tasks.life.model import Labels

_UNKNOWN: Final = Traits(priority=UPKEEP_PRIORITY)


def traits_of(payload: str) -> Traits:
    """Return the traits of a stored expiry: its catalog is the tenant, its priority is that of upkeep.

    What a policy asks for is in the background: no task of a caller waits for it.
    """
    try:
        parameters = json.loads(payload)["operation_parameters"]
        catalog, location = parameters["table_identity"]["catalog_name"], parameters["metadata"]["location"]
        return Traits(
            tenant=str(catalog),
            bucket=urlsplit(str(location)).netloc,
            priority=UPKEEP_PRIORITY,
            is_background="policy" in parameters,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return _UNKNOWN


def labels_of(payload: str) -> Labels:
    """Return the labels of a stored expiry: its table's dotted name, its request's correlation id, its realm."""
    try:
        document = json.loads(payload)
        identity = document["operation_parameters"]["table_identity"]
        parts = [identity["catalog_name"], *identity["namespace_levels"], identity["table_name"]]
        common = document["common_payload"]
        found = (common.get(name) for name in ("polaris_correlation_id", "realm_identifier"))
        correlation_id, realm = (text if isinstance(text, str) else None for text in found)
        return Labels(".".join(map(str, parts)), correlation_id, realm)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Labels()
