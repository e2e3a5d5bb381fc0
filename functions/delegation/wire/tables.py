"""The JSON requests for one table: purges, expiries, removals of orphan files, approvals of their plans.

A task's `task_payload` is the body that clients send, without credentials. Source: Delegation Service proposal,
Persistence, and Appendix.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from delegation.identifiers import stand_in_uuid
from delegation.wire.requests import (
    MAX_STORAGE_CREDENTIALS,
    NO_UUID,
    Properties,
    ReceivedBody,
    ReceivedPart,
    Secrets,
    StorageCredential,
    TableIdentity,
    TableMetadata,
    TableRequest,
    TableState,
    TableUuid,
    Uri,
    refuse,
)

_LOADED: Final = ("config", "metadata", "metadata-location", "metadata_location", "storage-credentials")
"""The members of a LoadTableResult, which are dropped: they may be old, and callers' credentials are not wanted."""
IDENTITY_ALONE: Final = ConfigDict(json_schema_extra={"not": {"anyOf": [{"required": [name]} for name in _LOADED]}})


class IdentityParameters(ReceivedPart):
    """A table's identity, and the options of the operation."""

    model_config = IDENTITY_ALONE

    table: ClassVar[None] = None
    table_identity: TableIdentity
    properties: Properties = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _identity_alone(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and any(name in value for name in _LOADED):
            raise refuse("must have the table's identity alone, without a LoadTableResult. The service loads the table")
        return value


EXPIRE_SNAPSHOTS: Final = "TABLE_EXPIRE_SNAPSHOTS"


class ExpireSnapshotsParameters(IdentityParameters):
    """The table whose snapshots to expire, and options (docs/expiry.md). The service loads the table."""


class ExpireSnapshotsPayload(ReceivedBody):
    """The payload of an expiry."""

    operation_parameters: ExpireSnapshotsParameters


ORPHAN_FILES: Final = "ORPHAN_FILES"


class OrphanFilesParameters(IdentityParameters):
    """The table whose orphan files to remove, and options (docs/orphans.md). The service loads the table."""


class OrphanFilesPayload(ReceivedBody):
    """The payload of a removal of orphan files."""

    operation_parameters: OrphanFilesParameters


PLAN_PATTERN: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,9}/[0-9a-f]{1,64}$"


class PlanApproval(BaseModel):
    """The plan to approve. The service executes it unchanged, but keeps files that are needed by then."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    plan: Annotated[str, StringConstraints(pattern=PLAN_PATTERN)] = Field(
        description="The id of the task's last plan.",
        examples=["01234567-89ab-cdef-0123-456789abcdef/1/0123456789ab"],
    )
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None,
        description=("The SHA-256 of the plan's index. If given, the approval is valid only for this exact plan."),
    )
    including: tuple[TableUuid, ...] = Field(
        default=(),
        max_length=1_000,
        description="The UUIDs of foreign tables that the plan reports. The approval includes their files.",
    )


_SYNCHRONOUS: Final = "SYNCHRONOUS_TABLE_PURGE"
_ASYNCHRONOUS: Final = "TABLE_PURGE"
OPERATIONS: Final = (_SYNCHRONOUS, _ASYNCHRONOUS, "DATA_FILE_PURGE")
"""The operation's names in the Delegation Service proposal's Appendix, example and Persistence."""


class PurgeTableOperationParameters(ReceivedPart):
    """The table's identity and its LoadTableResult (Iceberg REST specification).

    Give `metadata_location`, `metadata` and `config` together; `storage-credentials` requires them. For an asynchronous
    task, the identity is sufficient.
    """

    table_identity: TableIdentity
    metadata_location: Uri | None = Field(
        default=None, validation_alias=AliasChoices("metadata_location", "metadata-location")
    )
    metadata: TableMetadata | None = None
    config: Secrets | None = Field(
        default=None,
        description="Settings and temporary credentials, which are never stored, logged or returned. The service "
        "requests its own.",
    )
    storage_credentials: Annotated[tuple[StorageCredential, ...], Field(max_length=MAX_STORAGE_CREDENTIALS)] | None = (
        Field(
            default=None,
            alias="storage-credentials",
            description="Credentials by prefix, which are never stored, logged or returned.",
        )
    )
    properties: Properties = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "metadata_location" in value and "metadata-location" in value:
            raise refuse("must have either metadata_location or metadata-location, not both")
        return value

    @property
    def table(self) -> TableState | None:
        """The table's state, None if only its identity is given."""
        if self.metadata is None or self.metadata_location is None:
            return None
        known = self.metadata.model_dump()
        if self.metadata.table_uuid == NO_UUID:
            known["table_uuid"] = stand_in_uuid(self.table_identity.catalog_name, self.metadata_location)
        return TableState(metadata_location=self.metadata_location, **known)

    def missing(self) -> tuple[str, ...]:
        needed = {"metadata_location": self.metadata_location, "metadata": self.metadata, "config": self.config}
        return tuple(name for name, value in needed.items() if value is None)


class PurgePayload(ReceivedBody):
    """The complete payload of a task, required for synchronous execution."""

    operation_parameters: PurgeTableOperationParameters

    def missing(self, *, identity_only: bool) -> tuple[str, ...]:
        """Return missing members. Those of a LoadTableResult are given together or, if allowed, not at all."""
        parameters = self.operation_parameters
        missing = parameters.missing()
        bare = len(missing) == 3 and parameters.storage_credentials is None
        return () if bare and identity_only else tuple(f"operation_parameters.{name}" for name in missing)


class PurgeRequest(TableRequest):
    """One purge."""

    def request(self, *, synchronous: bool = False) -> dict[str, Any]:
        """Return the body to send; `config` is empty (Delegation Service proposal, Credential Vending)."""
        operation = _SYNCHRONOUS if synchronous else _ASYNCHRONOUS
        document = self.document(operation)
        if self.table is not None:
            document["operation_parameters"]["config"] = {}
        return document
