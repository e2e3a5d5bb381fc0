"""An expiry of snapshots as JSON: the body that clients send, and a task's `task_payload`, which has the table's state.

Source: Delegation Service proposal, Persistence, and Appendix.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import ConfigDict, Field, model_validator

from delegation.identifiers import TableIdentifier
from delegation.wire.requests import CommonPayload, Properties, ReceivedPart, TableIdentity, refuse
from delegation.wire.tables import TableRequest

OPERATION: Final = "TABLE_EXPIRE_SNAPSHOTS"
_LOADED: Final = ("config", "metadata", "metadata-location", "metadata_location", "storage-credentials")
"""The members of a LoadTableResult: what a caller loaded may be old, and no credentials of callers are wanted."""


class ExpireSnapshotsParameters(ReceivedPart):
    """The table whose snapshots are expired, and which of them are kept (docs/expiry.md); the service loads it."""

    model_config = ConfigDict(json_schema_extra={"not": {"anyOf": [{"required": [name]} for name in _LOADED]}})

    table_identity: TableIdentity
    properties: Properties = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _identity_alone(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and any(name in value for name in _LOADED):
            raise refuse("must have the table's identity alone, without a LoadTableResult: the service loads the table")
        return value


class ExpireSnapshotsPayload(ReceivedPart):
    """The payload of an expiry."""

    common_payload: CommonPayload
    operation_parameters: ExpireSnapshotsParameters


class ExpiryRequest(TableRequest):
    """One expiry of a table's snapshots."""

    @classmethod
    def of_payload(cls, payload: ExpireSnapshotsPayload) -> Self:
        """Return the expiry of a validated request."""
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
        """Return the body to send: the identity alone, since the service decides by the table as it loads it."""
        return self.model_copy(update={"table": None}).document(OPERATION)
