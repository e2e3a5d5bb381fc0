"""Request bodies for purging a table (delegation-service.txt, §7 "Full Example" and appendix, TaskPayload)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.timestamps import isoformat

SYNCHRONOUS = "SYNCHRONOUS_TABLE_PURGE"
ASYNCHRONOUS = "TABLE_PURGE"


@dataclass(frozen=True, slots=True)
class Purge:
    """One logical purge; every retry of it repeats all of this unchanged, for the payload is part of its identity."""

    realm: str
    identifier: TableIdentifier
    properties: Mapping[str, str] = field(default_factory=dict)
    correlation_id: str | None = None
    requested_at: datetime | None = None

    def by_identity(self) -> dict[str, Any]:
        """The identity alone: the service looks the rest up. Only the asynchronous endpoint takes it."""
        return self._payload(ASYNCHRONOUS, {})

    def of_loaded(self, table: LoadedTable, *, synchronous: bool) -> dict[str, Any]:
        """The table as the caller loaded it: of its metadata what identifies it, and no credential.

        The service vends its own credentials (delegation-service.txt §9.2), so `config` stays empty.
        """
        loaded = {
            "metadata_location": table.metadata_location,
            "metadata": {
                "location": table.location,
                "table-uuid": table.table_uuid,
                "format-version": table.format_version,
            },
            "config": {},
        }
        return self._payload(SYNCHRONOUS if synchronous else ASYNCHRONOUS, loaded)

    def _payload(self, operation: str, loaded: Mapping[str, Any]) -> dict[str, Any]:
        common = {"operation_type": operation, "realm_identifier": self.realm}
        if self.requested_at is not None:
            common["request_timestamp_utc"] = isoformat(self.requested_at)
        if self.correlation_id is not None:
            common["polaris_correlation_id"] = self.correlation_id
        identity = {
            "catalog_name": self.identifier.catalog,
            "namespace_levels": list(self.identifier.namespace),
            "table_name": self.identifier.name,
        }
        return {
            "common_payload": common,
            "operation_parameters": {"table_identity": identity, **loaded, "properties": dict(self.properties)},
        }
