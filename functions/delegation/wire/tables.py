"""A request for work on one table as JSON: what every operation sends and stores alike.

Source: Delegation Service proposal, Persistence, and Appendix.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from delegation.identifiers import TableIdentifier
from delegation.timestamps import isoformat

_COUNTS: Final = ("total-data-files", "total-delete-files")


class _LoadedTable(Protocol):
    @property
    def metadata_location(self) -> str: ...
    @property
    def location(self) -> str: ...
    @property
    def table_uuid(self) -> str: ...
    @property
    def format_version(self) -> int: ...


class TableState(BaseModel):
    """The members of a LoadTableResult (Iceberg REST Catalog API) that identify a table and its current metadata."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    metadata_location: str
    location: str
    table_uuid: str = Field(serialization_alias="table-uuid")
    format_version: int = Field(serialization_alias="format-version")

    @classmethod
    def of(cls, table: _LoadedTable) -> Self:
        """Return the state of a loaded table."""
        return cls.model_validate(table)


class TableRequest(BaseModel):
    """Work on one table; a retry must repeat every field, because all of them are part of the payload's hash.

    `table` is None in a request with the table's identity alone; the service then loads the rest.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    realm: str
    identifier: TableIdentifier
    table: TableState | None = None
    table_entity_id: str | None = None
    properties: Mapping[str, str] = Field(default_factory=dict)
    correlation_id: str | None = None
    requested_at: datetime | None = None

    @classmethod
    def of_stored(cls, task_payload: str) -> Self:
        """Parse a stored `task_payload`; raises ValueError, KeyError or TypeError when it is malformed."""
        document = json.loads(task_payload)
        common, parameters = document["common_payload"], document["operation_parameters"]
        identity, metadata = parameters["table_identity"], parameters["metadata"]
        return cls(
            realm=common["realm_identifier"],
            identifier=TableIdentifier(
                identity["catalog_name"], tuple(identity["namespace_levels"]), identity["table_name"]
            ),
            table=TableState(
                metadata_location=parameters["metadata_location"],
                location=metadata["location"],
                table_uuid=metadata["table-uuid"],
                format_version=metadata["format-version"],
            ),
            table_entity_id=identity.get("table_entity_id"),
            properties=parameters["properties"],
            correlation_id=common.get("polaris_correlation_id"),
            requested_at=common.get("request_timestamp_utc"),
        )

    def document(self, operation_type: str) -> dict[str, Any]:
        """Return the request as `common_payload` and `operation_parameters`, without fields that are None."""
        common = {
            "operation_type": str(operation_type),
            "realm_identifier": self.realm,
            "request_timestamp_utc": self.requested_at and isoformat(self.requested_at),
            "polaris_correlation_id": self.correlation_id,
        }
        identity = {
            "catalog_name": self.identifier.catalog,
            "namespace_levels": list(self.identifier.namespace),
            "table_name": self.identifier.name,
            "table_entity_id": self.table_entity_id,
        }
        parameters: dict[str, Any] = {"table_identity": _given(identity), "properties": dict(self.properties)}
        if self.table is not None:
            metadata = self.table.model_dump(by_alias=True)
            parameters["metadata_location"] = metadata.pop("metadata_location")
            parameters["metadata"] = metadata
        return {"common_payload": _given(common), "operation_parameters": parameters}


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def files_of(metadata: Any) -> int | None:
    """Return the files of the current snapshot as its summary states them, 0 without one, None if that is not stated.

    An estimate: other snapshots may reach further files (Iceberg Table Spec, "Snapshots": the summary is optional).
    """
    if not isinstance(metadata, Mapping):
        return None
    current, snapshots = metadata.get("current-snapshot-id"), metadata.get("snapshots")
    if current in (None, -1):
        return 0
    for snapshot in snapshots if isinstance(snapshots, list) else ():
        if isinstance(snapshot, Mapping) and snapshot.get("snapshot-id") == current:
            summary = snapshot.get("summary")
            return _count(summary) if isinstance(summary, Mapping) else None
    return None


def _count(summary: Mapping[str, Any]) -> int | None:
    stated = [str(summary.get(name, 0)) for name in _COUNTS]
    known = _COUNTS[0] in summary and all(count.isdecimal() and len(count) < 19 for count in stated)
    return sum(map(int, stated)) if known else None
