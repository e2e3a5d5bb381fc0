"""The JSON bodies of what is asked for one table by its identity, and of the approval of a plan."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from delegation.identifiers import TableIdentifier
from delegation.wire.requests import (
    CommonPayload,
    Properties,
    ReceivedBody,
    ReceivedPart,
    TableIdentity,
    TableRequest,
    TableUuid,
    refuse,
)

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


EXPIRE_SNAPSHOTS: Final = "TABLE_EXPIRE_SNAPSHOTS"


class ExpireSnapshotsParameters(IdentityParameters):
    """The table whose snapshots are expired, and which of them are kept (docs/expiry.md); the service loads it."""


class ExpireSnapshotsPayload(ReceivedBody):
    """The payload of an expiry."""

    operation_parameters: ExpireSnapshotsParameters


class ExpiryRequest(IdentifiedRequest):
    """One expiry of a table's snapshots."""

    operation: ClassVar[str] = EXPIRE_SNAPSHOTS


ORPHAN_FILES: Final = "ORPHAN_FILES"


class OrphanFilesParameters(IdentityParameters):
    """The table whose orphan files are removed, and which files may be some (docs/orphans.md); the service loads it."""


class OrphanFilesPayload(ReceivedBody):
    """The payload of a removal of orphan files."""

    operation_parameters: OrphanFilesParameters


class OrphanFilesRequest(IdentifiedRequest):
    """One removal of a table's orphan files."""

    operation: ClassVar[str] = ORPHAN_FILES


PLAN_PATTERN: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,9}/[0-9a-f]{1,64}$"


class PlanApproval(BaseModel):
    """Which plan is approved; it is executed as it was made, without what is needed by then."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    plan: Annotated[str, StringConstraints(pattern=PLAN_PATTERN)] = Field(
        description="The id of the plan with which the task ended.",
        examples=["01234567-89ab-cdef-0123-456789abcdef/1/0123456789ab"],
    )
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="The SHA-256 of the plan's index, if only the plan with this one is approved."
    )
    including: tuple[TableUuid, ...] = Field(
        default=(),
        max_length=1_000,
        description="The uuids of foreign tables that the plan reports, whose files are deleted as well.",
    )
