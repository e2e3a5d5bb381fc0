"""A purge as a JSON document: the request body that clients send, and the `task_payload` that a task stores.

Both have the form of TaskPayload (delegation-service.txt, §7 and appendix) without any credential.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from delegation.identifiers import TableIdentifier
from delegation.timestamps import isoformat
from delegation.wire.requests import OperationType, TaskPayload


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
    """The members of a LoadTableResult (Iceberg REST specification) that identify a table and its current commit."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    metadata_location: str
    location: str
    table_uuid: str
    format_version: int

    @classmethod
    def of(cls, table: _LoadedTable) -> Self:
        """The state of a table as the catalog returned it."""
        return cls.model_validate(table)


class PurgeRequest(BaseModel):
    """One logical purge; a retry of it repeats every field, because all of them are part of the payload's hash.

    `table` is None in a request that names the table by its identity alone: the service loads the rest.
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
    def of_payload(cls, payload: TaskPayload) -> Self:
        """Read a validated request."""
        common, parameters = payload.common_payload, payload.operation_parameters
        identity, metadata, location = parameters.table_identity, parameters.metadata, parameters.metadata_location
        table = None
        if metadata is not None and location is not None:
            table = TableState(metadata_location=location, **metadata.model_dump())
        return cls(
            realm=common.realm_identifier,
            identifier=TableIdentifier(identity.catalog_name, identity.namespace_levels, identity.table_name),
            table=table,
            table_entity_id=identity.table_entity_id,
            properties=parameters.properties,
            correlation_id=common.polaris_correlation_id,
            requested_at=common.request_timestamp_utc,
        )

    @classmethod
    def of_stored(cls, task_payload: str) -> Self:
        """Read a stored `task_payload`; raises ValueError, KeyError or TypeError for a text of another form."""
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

    def request(self, *, synchronous: bool = False) -> dict[str, Any]:
        """The body to send. `config` is empty, for the service vends its own credentials (§9.2)."""
        operation = OperationType.SYNCHRONOUS_TABLE_PURGE if synchronous else OperationType.TABLE_PURGE
        document = self.document(operation)
        if self.table is not None:
            document["operation_parameters"]["config"] = {}
        return document

    def document(self, operation_type: str) -> dict[str, Any]:
        """The purge as `common_payload` and `operation_parameters`; fields that are None are left out."""
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
        if (table := self.table) is not None:
            parameters["metadata_location"] = table.metadata_location
            parameters["metadata"] = {
                "location": table.location,
                "table-uuid": table.table_uuid,
                "format-version": table.format_version,
            }
        return {"common_payload": _given(common), "operation_parameters": parameters}


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
