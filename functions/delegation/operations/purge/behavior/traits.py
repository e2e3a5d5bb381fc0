"""For whom and on which bucket a purge works: what its admission is decided by."""

import json
from urllib.parse import urlsplit

from delegation.tasks.life.lanes import Traits


def traits_of(payload: str) -> Traits:
    """Return the traits of a stored purge: its catalog is the tenant; none for a payload that is not of a purge.

    How large the table is, is not known before its manifest lists are read.
    """
    try:
        parameters = json.loads(payload)["operation_parameters"]
        catalog, location = parameters["table_identity"]["catalog_name"], parameters["metadata"]["location"]
        return Traits(tenant=str(catalog), bucket=urlsplit(str(location)).netloc)
    except (ValueError, KeyError, TypeError):
        return Traits()
