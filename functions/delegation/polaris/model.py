"""What a namespace of Polaris has: tables as loaded, views, and generic tables."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delegation.identifiers import TableIdentifier, encoded, stand_in_uuid
from delegation.storage.credentials import S3Credential, S3Settings

_LONGEST_UUID: Final = 100
"""Characters. Iceberg takes any text for a table's UUID (TableMetadataParser), of any length."""


def comparable_uuid(text: str) -> str:
    """Return a UUID in lower case, as UUIDs are compared and hashed as text; of a text that is none a digest."""
    text = text.lower()
    if len(text) <= _LONGEST_UUID and text.isascii():
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def with_uuid(metadata: Mapping[str, Any], catalog: str, location: str) -> Mapping[str, Any]:
    """Return table metadata with a table-uuid: in format version 1 it is optional."""
    if metadata.get("table-uuid") is None and metadata.get("format-version") == 1:
        return {**metadata, "table-uuid": stand_in_uuid(catalog, location)}
    return metadata


def properties_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of table metadata as texts, as JSON writes them, without nulls: some writers store other
    types."""
    given = metadata.get("properties")
    found = given if isinstance(given, Mapping) else {}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in found.items()
        if value is not None
    }


@dataclass(frozen=True, slots=True)
class GenericTable:
    """A table of another format that Polaris keeps; `base_location` is None if it states none."""

    identifier: TableIdentifier
    base_location: str | None


@dataclass(frozen=True)
class LoadedTable:
    """A LoadTableResult of the Iceberg REST specification; its repr shows no secret. `metadata` has exact integers;
    `credentials` are those of `storage-credentials`, then that of `config` (prefix ""), empty if none were vended.
    `config` may contain secrets."""

    identifier: TableIdentifier
    metadata_location: str
    metadata: Mapping[str, Any] = field(repr=False)
    config: Mapping[str, str] = field(repr=False)
    credentials: tuple[S3Credential, ...] = ()
    etag: str | None = None

    @property
    def table_uuid(self) -> str:
        return comparable_uuid(str(self.metadata["table-uuid"]))

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    @property
    def format_version(self) -> int:
        return int(self.metadata["format-version"])

    @property
    def properties(self) -> Mapping[str, str]:
        return properties_of(self.metadata)

    @property
    def s3(self) -> S3Settings:
        return S3Settings.from_config(self.config)


TABLE: Final = "table"
VIEW: Final = "view"
"""Iceberg REST specification, listViews, loadView, dropView."""
GENERIC_TABLE: Final = "generic table"
"""Apache Polaris, generic-tables-api.yaml."""
NO_SUCH_ENDPOINT: Final = frozenset({400, 404, 405, 406, 501})
"""What servers answer whose API has no views, or no generic tables."""


def entities_path(kind: str, namespace_path: str) -> str:
    """Return the path of a namespace's views or generic tables."""
    return f"{namespace_path}/views" if kind == VIEW else f"polaris/{namespace_path}/generic-tables"


def entity_path(kind: str, namespace_path: str, name: str) -> str:
    """Return the path of a view or a generic table."""
    return f"{entities_path(kind, namespace_path)}/{encoded(name)}"


def name_in(entry: Any) -> str | None:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) and name else None
