"""A purge as JSON: the body that clients send, and a task's `task_payload`, which is the same without credentials.

Source: Delegation Service proposal, Persistence, and Appendix.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import AliasChoices, Field, model_validator

from delegation.identifiers import TableIdentifier, stand_in_uuid
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


class PurgePayload(ReceivedBody):
    """The complete payload of a task, required for synchronous execution."""

    operation_parameters: PurgeTableOperationParameters

    def missing(self, *, identity_only: bool) -> tuple[str, ...]:
        """See ReceivedBody.missing: the members of a LoadTableResult are given together, or none where that may be."""
        parameters = self.operation_parameters
        missing = parameters.missing()
        bare = len(missing) == 3 and parameters.storage_credentials is None
        return () if bare and identity_only else tuple(f"operation_parameters.{name}" for name in missing)


class PurgeRequest(TableRequest):
    """One purge."""

    @classmethod
    def of_payload(cls, payload: PurgePayload) -> Self:
        common, parameters = payload.common_payload, payload.operation_parameters
        identity, metadata, location = parameters.table_identity, parameters.metadata, parameters.metadata_location
        table = None
        if metadata is not None and location is not None:
            known = metadata.model_dump()
            if metadata.table_uuid == NO_UUID:
                known["table_uuid"] = stand_in_uuid(identity.catalog_name, location)
            table = TableState(metadata_location=location, **known)
        return cls(
            realm=common.realm_identifier,
            identifier=TableIdentifier(identity.catalog_name, identity.namespace_levels, identity.table_name),
            table=table,
            table_entity_id=identity.table_entity_id,
            properties=parameters.properties,
            correlation_id=common.polaris_correlation_id,
            requested_at=common.request_timestamp_utc,
        )

    def request(self, *, synchronous: bool = False) -> dict[str, Any]:
        """Return the body to send; `config` is empty (Delegation Service proposal, Credential Vending)."""
        operation = _SYNCHRONOUS if synchronous else _ASYNCHRONOUS
        document = self.document(operation)
        if self.table is not None:
            document["operation_parameters"]["config"] = {}
        return document
