"""A request that has a table's identity alone, because the service decides by the table as it loads it."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol, Self

from pydantic import ConfigDict, Field, model_validator

from delegation.identifiers import TableIdentifier
from delegation.wire.requests import CommonPayload, Properties, ReceivedPart, TableIdentity, TableRequest, refuse

_LOADED: Final = ("config", "metadata", "metadata-location", "metadata_location", "storage-credentials")
"""The members of a LoadTableResult: what a caller loaded may be old, and no credentials of callers are wanted."""
IDENTITY_ALONE: Final = ConfigDict(json_schema_extra={"not": {"anyOf": [{"required": [name]} for name in _LOADED]}})


class IdentityParameters(ReceivedPart):
    """A table's identity, and the options of what is asked for."""

    model_config = IDENTITY_ALONE

    table_identity: TableIdentity
    properties: Properties = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _identity_alone(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and any(name in value for name in _LOADED):
            raise refuse("must have the table's identity alone, without a LoadTableResult: the service loads the table")
        return value


class IdentifiedPayload(Protocol):
    """A body with such parameters."""

    @property
    def common_payload(self) -> CommonPayload: ...

    @property
    def operation_parameters(self) -> IdentityParameters: ...


class IdentifiedRequest(TableRequest):
    """A request for the `operation` on one table."""

    operation: ClassVar[str]

    @classmethod
    def of_payload(cls, payload: IdentifiedPayload) -> Self:
        """Return what a validated body asks for."""
        common, parameters = payload.common_payload, payload.operation_parameters
        identity = parameters.table_identity
        return cls(
            realm=common.realm_identifier,
            identifier=TableIdentifier(identity.catalog_name, identity.namespace_levels, identity.table_name),
            table_entity_id=identity.table_entity_id,
            properties=parameters.properties,
            correlation_id=common.polaris_correlation_id,
            requested_at=common.request_timestamp_utc,
        )

    def request(self) -> dict[str, Any]:
        """Return the body to send: the identity alone."""
        return self.model_copy(update={"table": None}).document(self.operation)
