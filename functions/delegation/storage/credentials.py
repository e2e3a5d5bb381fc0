"""How an object store is reached: keys, endpoint, region. Secrets never show in a repr."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol

from delegation.errors import DelegationError


class CredentialsUnavailable(DelegationError):
    """There is no credential for an object; whoever hands them out derives its own errors from this."""

    code: ClassVar[str] = "CREDENTIALS_UNAVAILABLE"


@dataclass(frozen=True)
class S3Credential:
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


class Vended(Protocol):
    """What was handed out for a table: every credential, and where its store is."""

    @property
    def credentials(self) -> tuple[S3Credential, ...]: ...

    @property
    def s3(self) -> S3Settings: ...


class Credentials(Protocol):
    """Credentials for a table's files, renewed before they expire. Every method raises CredentialsUnavailable."""

    def for_uri(self, uri: str) -> S3Credential:
        """A credential for `uri` that has not expired."""
        ...

    def replace(self, uri: str, refused: S3Credential) -> S3Credential:
        """A credential for `uri` after the store refused `refused` as expired."""
        ...

    def table(self) -> Vended:
        """What was handed out last."""
        ...
