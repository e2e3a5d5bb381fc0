"""The requests of the API (Delegation Service proposal, Persistence, and Appendix), and their idempotency keys. Unknown
members are refused, because one may be a misspelling that keeps files; those of Iceberg's documents are accepted. The
models' descriptions become the API's document (infra.api_schemas). Values of `config` and `storage-credentials` are
SecretStr, and never logged or stored."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Protocol, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StrictInt,
    StrictStr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from delegation.identifiers import TableIdentifier
from delegation.timestamps import isoformat
from delegation.wire.responses import UUID_PATTERN, component, described

KEY_PATTERN: Final = r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$"
LONGEST_KEY: Final = 255
KEY_RULE: Final = f"1 to {LONGEST_KEY} characters matching {KEY_PATTERN}"
_KEY: Final = re.compile(KEY_PATTERN, re.ASCII)


def is_key(text: str) -> bool:
    return len(text) <= LONGEST_KEY and _KEY.fullmatch(text) is not None


MAX_NAME_LENGTH: Final = 1024
MAX_URI_LENGTH: Final = 4096
MAX_NAMESPACE_LEVELS: Final = 64
MAX_IDENTITY_BYTES: Final = 16 * 1024
MAX_PROPERTIES_BYTES: Final = 32 * 1024
"""Identity and properties are stored with every version of a task, in a DynamoDB item of at most 400 KB."""
MAX_CONFIG_ENTRIES: Final = 1000
MAX_STORAGE_CREDENTIALS: Final = 1000
FIRST_YEAR: Final = 1970
NO_UUID: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the uuid of a table of format version 1 without one."""
LAST_YEAR: Final = 2999
"""Outside these years nobody set the time: it is a zero value, such as year 1 in Go and .NET."""
OPERATIONS: Final = "operations"
"""The key, in a validation's context, of the operations that the service knows."""
T = TypeVar("T")
_COUNTS: Final = ("total-data-files", "total-delete-files")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/.+", re.ASCII | re.DOTALL)
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(?P<offset>[Zz]|[+-]\d{2}:\d{2})?", re.ASCII
)


def refuse(reason: str) -> PydanticCustomError:
    """Return an error whose text is `reason`, without the input; braces in it are no placeholders."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


def _must(hold: Callable[[str], object], reason: str) -> AfterValidator:
    def checked(value: str) -> str:
        if not hold(value):
            raise refuse(reason)
        return value

    return AfterValidator(checked)


def _uuid(value: str) -> str:
    lower = value.lower()
    if not _UUID.fullmatch(lower):
        raise refuse("must be a UUID in its 36-character form")
    return lower


def _operation(value: object, info: ValidationInfo) -> object:
    """Check a name against those in the validation's context (OPERATIONS); without a context any name is valid."""
    known: Sequence[str] | None = (info.context or {}).get(OPERATIONS)
    if isinstance(value, str) and (known is None or value in known):
        return value
    raise refuse(f"must be one of {', '.join(known or ())}")


def _timestamp(value: object) -> object:
    """Parse RFC 3339 text; pydantic alone would also accept numbers and guess their unit."""
    if value is None:
        return None
    form = _TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if form is None or not isinstance(value, str):
        raise refuse("must be an RFC 3339 date-time, such as 2025-06-11T16:21:00Z")
    if form["offset"] is None:
        raise refuse("must have an offset from UTC, such as Z")
    try:
        moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise refuse("must be a valid date and time") from None
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise refuse(f"must be a time from {FIRST_YEAR} to {LAST_YEAR}. Leave the member out if the time is unknown")
    return moment


def _whole(value: object) -> object:
    """Return 2 for 2.0, which JSON Schema counts as an integer (2020-12, Validation, Section 6.1.1)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _within(value: T, limit_bytes: int, *texts: str) -> T:
    # Lone surrogates, which cannot be encoded, are refused with the document, not here.
    if sum(len(text.encode(errors="surrogatepass")) for text in texts) > limit_bytes:
        raise refuse(f"must not be larger than {limit_bytes} bytes in total")
    return value


_CONTROL: Final = r"\u0000-\u001F\u007F-\u009F"
_BLANK: Final = rf"{_CONTROL} \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000"
_FILLED_PATTERN: Final = rf"^[^{_CONTROL}]*[^{_BLANK}][^{_CONTROL}]*$"
"""A text without control characters that is not blank (ECMA 262, the dialect of JSON Schema patterns)."""
_CLEAN_PATTERN: Final = rf"^[^{_CONTROL}]*$"
_URI_PATTERN: Final = rf"^[A-Za-z][A-Za-z0-9+.\-]*:/[^{_CONTROL}]+$"
_TIMESTAMP_PATTERN: Final = (
    r"^(19[7-9][0-9]|2[0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"[Tt]([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,9})?([Zz]|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)

_CLEAN: Final = _must(
    lambda value: all(unicodedata.category(character) != "Cc" for character in value),
    "must not contain control characters",
)
_FILLED: Final = _must(str.strip, "must not be empty")
# A name becomes one segment of a Polaris path; clients and proxies remove dot segments (RFC 3986, Section 5.2.4).
_SEGMENT: Final = _must(lambda value: value not in {".", ".."}, "must not be a dot segment")
_ABSOLUTE: Final = _must(_URI.fullmatch, "must be an absolute URI, such as s3://bucket/key")
Text = Annotated[StrictStr, Field(min_length=1, max_length=MAX_NAME_LENGTH), _CLEAN]
FilledText = Annotated[Text, _FILLED, described(pattern=_FILLED_PATTERN)]
PathSegment = Annotated[
    FilledText,
    _SEGMENT,
    component(
        "Name", "A name without control characters that is not blank, `.` or `..`.", **{"not": {"enum": [".", ".."]}}
    ),
]
Uri = Annotated[
    StrictStr,
    Field(min_length=1, max_length=MAX_URI_LENGTH),
    _CLEAN,
    _ABSOLUTE,
    component("Location", "An absolute URI, such as s3://bucket/key.", format="uri", pattern=_URI_PATTERN),
]
TableUuid = Annotated[StrictStr, AfterValidator(_uuid), described(format="uuid", pattern=UUID_PATTERN)]
PropertyValue = Annotated[StrictStr, Field(max_length=MAX_NAME_LENGTH), _CLEAN, described(pattern=_CLEAN_PATTERN)]
Properties = Annotated[
    dict[PathSegment, PropertyValue],
    AfterValidator(lambda value: _within(value, MAX_PROPERTIES_BYTES, *value.keys(), *value.values())),
    component(
        "PropertiesMap",
        "Options of the operation. The listed members are those of all operations. The first value is the default, "
        "unless the operator set another. Names in camel case, such as `dryRun`, are also accepted. Any other name, an "
        "option of another operation, and an invalid value get 400. A value that the operator's settings do not allow "
        "gets 403 (`PROPERTY_NOT_ALLOWED`).",
    ),
]
Secrets = Annotated[dict[StrictStr, SecretStr], Field(max_length=MAX_CONFIG_ENTRIES)]
RequestTimestamp = Annotated[datetime | None, BeforeValidator(_timestamp), described(pattern=_TIMESTAMP_PATTERN)]


class ReceivedPart(BaseModel):
    """Base of a request's parts; errors never quote the input."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, populate_by_name=False)


class CommonPayload(ReceivedPart):
    """The members that all operations share."""

    operation_type: Annotated[StrictStr, BeforeValidator(_operation)] = Field(
        description="The operation; the first three names are synonyms."
    )
    request_timestamp_utc: RequestTimestamp = Field(
        default=None,
        description="The time at which the catalog started the request, with an offset from UTC. Years other than 1970 "
        "to 2999 get 400. If the time is unknown, leave the member out.",
    )
    realm_identifier: FilledText = Field(description="The realm that the deployment serves.")
    polaris_correlation_id: FilledText | None = Field(
        default=None, description="An id that correlates the logs of the catalog and the service."
    )


class ReceivedBody(ReceivedPart):
    """Base of a request's bodies, which also have `operation_parameters` with `properties`."""

    common_payload: CommonPayload

    def missing(self, *, identity_only: bool) -> tuple[str, ...]:  # noqa: ARG002 - some bodies lack more than others
        """Return what a valid body lacks, as paths; `identity_only` accepts one that only names its object."""
        return ()


class TableIdentity(ReceivedPart):
    """The table's name in the catalog, at most 16 KiB in total."""

    table_entity_id: FilledText | None = Field(
        default=None,
        description="The catalog's id of the table. Stored but not verified, because Polaris' REST API returns no ids.",
    )
    catalog_name: PathSegment
    namespace_levels: Annotated[tuple[PathSegment, ...], Field(min_length=1, max_length=MAX_NAMESPACE_LEVELS)]
    table_name: PathSegment

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return _within(self, MAX_IDENTITY_BYTES, self.catalog_name, *self.namespace_levels, self.table_name)

    @property
    def identifier(self) -> TableIdentifier:
        return TableIdentifier(self.catalog_name, self.namespace_levels, self.table_name)


class TableMetadata(ReceivedPart):
    """Iceberg table metadata. Other members are accepted but not stored."""

    model_config = ConfigDict(extra="ignore")

    location: Uri
    table_uuid: TableUuid = Field(alias="table-uuid")
    format_version: Annotated[StrictInt, Field(ge=1, le=2**31 - 1), BeforeValidator(_whole)] = Field(
        alias="format-version"
    )

    @model_validator(mode="before")
    @classmethod
    def _identified(cls, value: Any) -> Any:
        """Mark a table of format version 1 without uuid, which is optional there."""
        if isinstance(value, Mapping) and value.get("format-version") == 1 and value.get("table-uuid") is None:
            return {**value, "table-uuid": NO_UUID}
        return value


class StorageCredential(ReceivedPart):
    """One entry of LoadTableResult's `storage-credentials` (Iceberg REST Catalog API)."""

    model_config = ConfigDict(extra="ignore")

    prefix: Annotated[StrictStr, Field(max_length=MAX_URI_LENGTH), _CLEAN, described(pattern=_CLEAN_PATTERN)]
    config: Secrets


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
        return cls.model_validate(table)


class TableRequest(BaseModel):
    """Work on one table. A retry must repeat every field, because all of them are part of the payload's hash.

    `table` is None in a request with only the table's identity; the service then loads the rest.
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
        """Parse a stored `task_payload`. Raises ValueError, KeyError or TypeError if it is malformed."""
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
    """Return the current snapshot's number of files from its summary, 0 without a snapshot, None if not stated. An
    estimate: other snapshots may have more (Iceberg Table Spec, "Snapshots": the summary is optional)."""
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
