"""A purge as JSON: the body that clients send, and a task's `task_payload`, which is the same without credentials.

Source: Delegation Service proposal, Persistence, and Appendix.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Protocol, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from delegation.identifiers import TableIdentifier
from delegation.timestamps import isoformat
from delegation.wire.requests import (
    MAX_STORAGE_CREDENTIALS,
    CommonPayload,
    Properties,
    ReceivedPart,
    Secrets,
    StorageCredential,
    TableIdentity,
    TableMetadata,
    Uri,
    refuse,
)

_SYNCHRONOUS: Final = "SYNCHRONOUS_TABLE_PURGE"
_ASYNCHRONOUS: Final = "TABLE_PURGE"
OPERATIONS: Final = (_SYNCHRONOUS, _ASYNCHRONOUS, "DATA_FILE_PURGE")
"""The names of the one operation in the Delegation Service proposal's Appendix, example and Persistence."""


class PurgeTableOperationParameters(ReceivedPart):
    """The table's identity and its LoadTableResult (Iceberg REST specification).

    `metadata_location`, `metadata` and `config` must be given together; `storage-credentials` require them. For an
    asynchronous task the identity is sufficient.
    """

    table_identity: TableIdentity
    metadata_location: Uri | None = Field(
        default=None, validation_alias=AliasChoices("metadata_location", "metadata-location")
    )
    metadata: TableMetadata | None = None
    config: Secrets | None = Field(
        default=None,
        description="Settings and temporary credentials; never stored, logged or returned. The service requests its "
        "own.",
    )
    storage_credentials: Annotated[tuple[StorageCredential, ...], Field(max_length=MAX_STORAGE_CREDENTIALS)] | None = (
        Field(
            default=None,
            alias="storage-credentials",
            description="Credentials by prefix; never stored, logged or returned.",
        )
    )
    properties: Properties = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "metadata_location" in value and "metadata-location" in value:
            raise refuse("must have one of metadata_location and metadata-location")
        return value

    def missing(self) -> tuple[str, ...]:
        """Return the missing members of a LoadTableResult."""
        needed = {"metadata_location": self.metadata_location, "metadata": self.metadata, "config": self.config}
        return tuple(name for name, value in needed.items() if value is None)


class PurgePayload(ReceivedPart):
    """The complete payload of a task, required for synchronous execution."""

    common_payload: CommonPayload
    operation_parameters: PurgeTableOperationParameters


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


class PurgeRequest(BaseModel):
    """One purge; a retry must repeat every field, because all of them are part of the payload's hash.

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
    def of_payload(cls, payload: PurgePayload) -> Self:
        """Return the purge of a validated request."""
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

    def request(self, *, synchronous: bool = False) -> dict[str, Any]:
        """Return the body to send; `config` is empty (Delegation Service proposal, Credential Vending)."""
        operation = _SYNCHRONOUS if synchronous else _ASYNCHRONOUS
        document = self.document(operation)
        if self.table is not None:
            document["operation_parameters"]["config"] = {}
        return document

    def document(self, operation_type: str) -> dict[str, Any]:
        """Return the purge as `common_payload` and `operation_parameters`, without fields that are None."""
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
