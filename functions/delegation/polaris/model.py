"""What Polaris says about a table: its name, its metadata, how to reach its files. Secrets never show in a repr."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

NAMESPACE_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    """Where a table is found in Polaris: catalog, namespace levels (at least one), name.

    Raises ValueError for a part that cannot be one segment of a REST path: empty, holding 0x1F (which separates
    namespace levels there), or `.` and `..`, which URL normalisation would turn into another resource.
    """

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        if not self.namespace:
            raise ValueError("a table identifier needs at least one namespace level")
        for part in (self.catalog, *self.namespace, self.name):
            if not part or part in {".", ".."} or NAMESPACE_SEPARATOR in part:
                raise ValueError("a part of a table identifier is empty, a dot segment, or holds the character 0x1F")

    def __str__(self) -> str:
        """Dotted, for people; a level may itself hold a dot, so this is never parsed."""
        return ".".join((self.catalog, *self.namespace, self.name))


@dataclass(frozen=True)
class StorageCredential:
    """One set of S3 keys, good for URIs below `prefix` ("" for any); `expires_at` is aware UTC, None when not told."""

    prefix: str
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How an S3 client has to be built for a table; None or False leaves the client's own default."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> "S3Settings":
        """Read `s3.endpoint`, `s3.path-style-access` and `client.region` (Iceberg's S3FileIO properties)."""
        return cls(
            endpoint=config.get("s3.endpoint") or None,
            region=config.get("client.region") or config.get("s3.region") or None,
            path_style=config.get("s3.path-style-access", "").strip().lower() == "true",
        )


@dataclass(frozen=True)
class LoadedTable:
    """A LoadTableResult of the Iceberg REST specification.

    `metadata` is the parsed table metadata, integers exact whatever their size; `credentials` are those of
    `storage-credentials` and then that of `config` (prefix ""), empty when none were vended. `config` may hold secrets.
    """

    identifier: TableIdentifier
    metadata_location: str
    metadata: Mapping[str, Any] = field(repr=False)
    config: Mapping[str, str] = field(repr=False)
    credentials: tuple[StorageCredential, ...] = ()

    @property
    def table_uuid(self) -> str:
        """Lower case: uuids are compared and hashed as text."""
        return str(self.metadata["table-uuid"]).lower()

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    @property
    def format_version(self) -> int:
        return int(self.metadata["format-version"])

    @property
    def properties(self) -> Mapping[str, str]:
        properties: Mapping[str, str] = self.metadata.get("properties") or {}
        return properties

    @property
    def s3(self) -> S3Settings:
        return S3Settings.from_config(self.config)
