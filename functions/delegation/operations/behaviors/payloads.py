"""What is read of the stored payload of work on one table without its models: its admission, and its labels."""

import json
from dataclasses import replace
from urllib.parse import urlsplit

from delegation.tasks.life.admission.lanes import Traits
from delegation.tasks.life.model import Labels


def table_traits(payload: str, known: Traits) -> Traits:
    """Return `known` with the catalog of a stored payload as the tenant, and the bucket of its table's location.

    What a policy asks for is in the background: no task of a caller waits for it.
    """
    try:
        parameters = json.loads(payload)["operation_parameters"]
        catalog, location = parameters["table_identity"]["catalog_name"], parameters["metadata"]["location"]
        is_background = known.is_background or "policy" in parameters
        return replace(known, tenant=str(catalog), bucket=urlsplit(str(location)).netloc, is_background=is_background)
    except (ValueError, KeyError, TypeError, AttributeError):
        return known


def table_place(payload: str) -> tuple[str, str] | None:
    """Return the uuid and the location of the table of a stored payload, None for a payload without a table."""
    try:
        metadata = json.loads(payload)["operation_parameters"]["metadata"]
        return str(metadata["table-uuid"]).lower(), str(metadata["location"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def table_labels(payload: str) -> Labels:
    """Return the labels of a stored payload: its table's dotted name, its request's correlation id, its realm."""
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
