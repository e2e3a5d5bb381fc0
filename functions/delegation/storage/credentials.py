"""Credentials and connection settings of an object store. Their reprs contain no secrets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from polaris_common.errors import DelegationError


class CredentialsUnavailable(DelegationError):
    """No valid credential covers an object. Base class of the errors of credential vendors."""

    code = "CREDENTIALS_UNAVAILABLE"


@dataclass(frozen=True)
class S3Credential:
    """S3 keys for URIs below `prefix` ("" for all). `expires_at` is in UTC, None if unknown."""

    prefix: str
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Settings of the S3 client for a table; None or False keeps the client's default."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> "S3Settings":
        """Read `s3.endpoint`, `s3.path-style-access` and `client.region` (Iceberg documentation, AWS)."""
        return cls(
            endpoint=config.get("s3.endpoint") or None,
            region=config.get("client.region") or config.get("s3.region") or None,
            path_style=config.get("s3.path-style-access", "").strip().lower() == "true",
        )


class Vended(Protocol):
    """The credentials vended for a table, and the settings of its store."""

    @property
    def credentials(self) -> tuple[S3Credential, ...]: ...

    @property
    def s3(self) -> S3Settings: ...


class Credentials(Protocol):
    """Credentials for a table's files, renewed before they expire. Every method may raise CredentialsUnavailable."""

    def for_uri(self, uri: str) -> S3Credential: ...

    def replace(self, uri: str, refused: S3Credential) -> S3Credential:
        """Return a new credential for `uri` after the store refused `refused` as expired."""
        ...

    def table(self) -> Vended: ...
