"""The requests of delegation-service.txt's appendix; members that are not named here are allowed and dropped.

What a caller sends in `config` and `storage-credentials` is secret: held as SecretStr, shown nowhere, never stored.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

MAX_NAME_LENGTH: Final = 1024
MAX_URI_LENGTH: Final = 4096
MAX_NAMESPACE_LEVELS: Final = 64
MAX_IDENTITY_BYTES: Final = 16 * 1024
MAX_PROPERTIES_BYTES: Final = 32 * 1024
"""Identity and properties are stored with every version of a task; a DynamoDB item takes 400 KB."""
MAX_CONFIG_ENTRIES: Final = 1000
MAX_STORAGE_CREDENTIALS: Final = 1000
T = TypeVar("T")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/.+", re.ASCII | re.DOTALL)
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(?P<offset>[Zz]|[+-]\d{2}:\d{2})?", re.ASCII
)


class OperationType(StrEnum):
    """Names of one operation: the appendix's, the full example's and the task schema's (§7) for the same purge."""

    SYNCHRONOUS_TABLE_PURGE = "SYNCHRONOUS_TABLE_PURGE"
    TABLE_PURGE = "TABLE_PURGE"
    DATA_FILE_PURGE = "DATA_FILE_PURGE"


def _refuse(reason: str) -> PydanticCustomError:
    """An error whose text is `reason` and nothing of the input; braces in it are not placeholders."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


def _must(hold: Callable[[str], object], reason: str) -> AfterValidator:
    def checked(value: str) -> str:
        if not hold(value):
            raise _refuse(reason)
        return value

    return AfterValidator(checked)


def _uuid(value: str) -> str:
    lower = value.lower()
    if not _UUID.fullmatch(lower):
        raise _refuse("must be a UUID in its 36-character form")
    return lower


def _operation(value: object) -> object:
    if isinstance(value, str) and value in OperationType.__members__:
        return OperationType(value)
    raise _refuse(f"must be one of {', '.join(OperationType)}")


def _timestamp(value: object) -> object:
    """RFC 3339 text only: pydantic alone would take numbers and guess their unit."""
    if value is None:
        return None
    form = _TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if form is None or not isinstance(value, str):
        raise _refuse("must be an RFC 3339 date-time, such as 2025-06-11T16:21:00Z")
    if form["offset"] is None:
        raise _refuse("must name its offset from UTC, such as Z")
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _refuse("is no moment of the calendar") from None


def _within(value: T, limit_bytes: int, *texts: str) -> T:
    # Lone surrogates are refused with the document; here they only must not raise.
    if sum(len(text.encode(errors="surrogatepass")) for text in texts) > limit_bytes:
        raise _refuse(f"must not be larger than {limit_bytes} bytes in all")
    return value


_CLEAN: Final = _must(
    lambda value: all(unicodedata.category(character) != "Cc" for character in value),
    "must not hold control characters",
)
_FILLED: Final = _must(str.strip, "must not be empty")
# Names become one segment of a Polaris path each; clients and proxies resolve dot segments (RFC 3986 §5.2.4).
_SEGMENT: Final = _must(lambda value: value not in {".", ".."}, "must not be a dot segment")
_ABSOLUTE: Final = _must(_URI.fullmatch, "must be an absolute URI, such as s3://bucket/key")
Text = Annotated[StrictStr, Field(min_length=1, max_length=MAX_NAME_LENGTH), _CLEAN]
FilledText = Annotated[Text, _FILLED]
PathSegment = Annotated[FilledText, _SEGMENT]
Uri = Annotated[StrictStr, Field(min_length=1, max_length=MAX_URI_LENGTH), _CLEAN, _ABSOLUTE]
TableUuid = Annotated[StrictStr, AfterValidator(_uuid)]
PropertyValue = Annotated[StrictStr, Field(max_length=MAX_NAME_LENGTH), _CLEAN]
Properties = Annotated[
    dict[PathSegment, PropertyValue],
    AfterValidator(lambda value: _within(value, MAX_PROPERTIES_BYTES, *value.keys(), *value.values())),
]
Secrets = Annotated[dict[StrictStr, SecretStr], Field(max_length=MAX_CONFIG_ENTRIES)]
RequestTimestamp = Annotated[datetime | None, BeforeValidator(_timestamp)]


class _Received(BaseModel):
    """Part of a request. Errors never quote the input."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, populate_by_name=False)


class CommonPayload(_Received):
    """What all operations have in common."""

    operation_type: Annotated[OperationType, BeforeValidator(_operation)]
    request_timestamp_utc: RequestTimestamp = None
    realm_identifier: FilledText
    polaris_correlation_id: FilledText | None = None


class TableIdentity(_Received):
    """Which table. `table_entity_id` is opaque: recorded, never verified, for the REST API does not give it."""

    table_entity_id: FilledText | None = None
    catalog_name: PathSegment
    namespace_levels: Annotated[tuple[PathSegment, ...], Field(min_length=1, max_length=MAX_NAMESPACE_LEVELS)]
    table_name: PathSegment

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _within(self, MAX_IDENTITY_BYTES, self.catalog_name, *self.namespace_levels, self.table_name)


class TableMetadata(_Received):
    """What is kept of the Iceberg table metadata; schemas, snapshots and the rest are accepted and dropped."""

    location: Uri
    table_uuid: TableUuid = Field(alias="table-uuid")
    format_version: Annotated[StrictInt, Field(ge=1, le=2**31 - 1)] = Field(alias="format-version")


class StorageCredential(_Received):
    """One entry of LoadTableResult's `storage-credentials` (Iceberg REST specification)."""

    prefix: Annotated[StrictStr, Field(max_length=MAX_URI_LENGTH), _CLEAN]
    config: Secrets


class PurgeTableOperationParameters(_Received):
    """A LoadTableResult beside the table's identity (appendix), or the identity alone (§7, full example).

    `metadata_location`, `metadata` and `config` come together or not at all; credentials without them are incomplete.
    """

    table_identity: TableIdentity
    metadata_location: Uri | None = Field(
        default=None, validation_alias=AliasChoices("metadata_location", "metadata-location")
    )
    metadata: TableMetadata | None = None
    config: Secrets | None = None
    storage_credentials: Annotated[tuple[StorageCredential, ...], Field(max_length=MAX_STORAGE_CREDENTIALS)] | None = (
        Field(default=None, alias="storage-credentials")
    )
    properties: Properties = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "metadata_location" in value and "metadata-location" in value:
            raise _refuse("has both metadata_location and metadata-location")
        return value

    def missing(self) -> tuple[str, ...]:
        """The members that the full form needs and that are absent."""
        needed = {"metadata_location": self.metadata_location, "metadata": self.metadata, "config": self.config}
        return tuple(name for name, value in needed.items() if value is None)


class TaskPayload(_Received):
    """The complete body of `POST /v1/tasks` and `POST /v1/tasks/execute/synchronous`."""

    common_payload: CommonPayload
    operation_parameters: PurgeTableOperationParameters
