"""Vended storage credentials: selects the one for a file, and renews them before they expire."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from delegation.polaris.answers import CredentialVendingFailed, PolarisUnavailable
from delegation.polaris.model import LoadedTable
from delegation.storage.credentials import S3Credential

# A vended credential also covers these paths, although its `prefix` is only the table's location.
_WRITE_PATHS = ("write.data.path", "write.metadata.path")

REFRESH_MARGIN = timedelta(minutes=5)
RETRY_AFTER_FAILED_REFRESH = timedelta(seconds=30)


def parse_credentials(config: Mapping[str, Any], storage_credentials: Iterable[Any]) -> tuple[S3Credential, ...]:
    """Return a LoadTableResult's S3 credentials: those of `storage-credentials`, then that of `config` (prefix "").
    Polaris 1.7 repeats the first in `config`; it is returned once, because its prefix bounds it. Raises
    CredentialVendingFailed for an expiry that is not a number. Source: Iceberg REST specification, StorageCredential
    and LoadTableResult."""
    sets: list[tuple[str, Mapping[str, Any]]] = [
        (str(entry.get("prefix") or ""), entry["config"])
        for entry in storage_credentials
        if isinstance(entry, Mapping) and isinstance(entry.get("config"), Mapping)
    ]
    credentials = [
        credential for prefix, properties in sets if (credential := _credential(prefix, properties)) is not None
    ]
    general = _credential("", config)
    if general is not None and all(general.access_key_id != credential.access_key_id for credential in credentials):
        credentials.append(general)
    return tuple(credentials)


def select_credential(table: LoadedTable, uri: str) -> S3Credential:
    """Return the credential with the longest prefix of `uri`; on a write path that of the table's location. Raises
    CredentialVendingFailed if none covers it."""
    matching = [credential for credential in table.credentials if is_below(uri, credential.prefix)]
    write_paths = (table.properties.get(name) for name in _WRITE_PATHS)
    if not matching and any(path and is_below(uri, path) for path in write_paths):
        matching = [credential for credential in table.credentials if is_below(table.location, credential.prefix)]
    if not matching:
        reason = "none of the vended credentials covers it" if table.credentials else "Polaris vended no S3 credentials"
        raise CredentialVendingFailed(f"no storage credential for {uri} of {table.identifier}: {reason}")
    return max(matching, key=lambda credential: len(credential.prefix))


def is_below(uri: str, prefix: str) -> bool:
    """Return whether `uri` is `prefix` or below it, by whole path components; s3a and s3n equal s3. "" covers
    everything, and a prefix without a path (`s3`, `s3://`) its scheme, as in Iceberg's S3FileIO."""
    uri, prefix = _as_s3(uri), _as_s3(prefix)
    scheme_only = "://" not in prefix or prefix.endswith("://")
    return uri.startswith(prefix) if scheme_only else (uri + "/").startswith(prefix.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class _CachedTable:
    table: LoadedTable
    refresh_at: datetime | None


class VendedCredentials:
    """The credentials of one table, loaded again before they expire; thread-safe. One thread at a time calls `load`;
    the others use the current credential if valid, and wait otherwise. After PolarisUnavailable a valid credential
    stays in use and the load is retried later; other errors of `load` are raised. A renewal that finds another table
    under the name raises CredentialVendingFailed: its files may be at the same location."""

    def __init__(
        self,
        load: Callable[[], LoadedTable],
        *,
        clock: Callable[[], datetime],
        margin: timedelta = REFRESH_MARGIN,
        loaded: LoadedTable | None = None,
    ) -> None:
        """`loaded` is a table just loaded with credentials; it saves the first load."""
        self._load = load
        self._clock = clock
        self._margin = margin
        self._lock = Lock()
        self._cached = None if loaded is None else _CachedTable(loaded, refresh_at(loaded, clock(), margin))

    def for_uri(self, uri: str) -> S3Credential:
        """Return an unexpired credential for `uri`. Raises CredentialVendingFailed if Polaris vends none."""
        cached = self._cached
        now = self._clock()
        if cached is not None and (cached.refresh_at is None or now < cached.refresh_at):
            return select_credential(cached.table, uri)
        usable = self._usable(uri, now)
        if usable is not None:
            # The credential is valid but due for renewal: one thread renews it, the others use it.
            if not self._lock.acquire(blocking=False):
                return usable
        else:
            self._lock.acquire()
        try:
            if self._cached is cached:
                self._refresh(usable)
        finally:
            self._lock.release()
        return self._checked(uri)

    def replace(self, uri: str, refused: S3Credential) -> S3Credential:
        """Return a credential for `uri` after the store refused `refused`; loads at most once per refused one."""
        with self._lock:
            usable = self._usable(uri, self._clock())
            if usable is None or usable == refused:
                self._refresh(None)
        return self._checked(uri)

    def load(self) -> LoadedTable:
        """Load the table now and return it; its credentials are used from then on."""
        with self._lock:
            table = self._load()
            self._cached = _CachedTable(table, refresh_at(table, self._clock(), self._margin))
        return table

    def table(self) -> LoadedTable:
        """Return the table as last loaded; loads it the first time."""
        if self._cached is None:
            with self._lock:
                if self._cached is None:
                    self._refresh(None)
        cached = self._cached
        assert cached is not None  # noqa: S101 - _refresh sets it or raises
        return cached.table

    def _usable(self, uri: str, now: datetime) -> S3Credential | None:
        if self._cached is None:
            return None
        credential = select_credential(self._cached.table, uri)
        return None if _has_expired(credential, now) else credential

    def _checked(self, uri: str) -> S3Credential:
        credential = select_credential(self.table(), uri)
        if _has_expired(credential, self._clock()):
            raise CredentialVendingFailed(
                f"the credential that Polaris vended for {uri} has already expired. Check the clocks of Polaris and "
                "this machine"
            )
        return credential

    def _refresh(self, usable: S3Credential | None) -> None:
        now = self._clock()
        try:
            table = self._load()
        except PolarisUnavailable:
            if usable is None or self._cached is None:
                raise
            self._cached = _CachedTable(self._cached.table, now + RETRY_AFTER_FAILED_REFRESH)
        else:
            former = None if self._cached is None else self._cached.table
            if former is not None and _uuid(former) not in (None, _uuid(table)):
                raise CredentialVendingFailed(
                    f"another table now has the name {table.identifier}, so its credentials are not used for the files "
                    "of the former table. Send a new request for the current table"
                )
            self._cached = _CachedTable(table, refresh_at(table, now, self._margin))


def refresh_at(table: LoadedTable, now: datetime, margin: timedelta) -> datetime | None:
    """Return when to load again: `margin` before the first expiry, None without one. Polaris caches vended credentials,
    so a new load may return one close to its expiry: it is used for half of its remaining time."""
    expiries = [credential.expires_at for credential in table.credentials if credential.expires_at is not None]
    if not expiries:
        return None
    left = min(expiries) - now
    return now + (left - margin if left > 2 * margin else left / 2)


def _uuid(table: LoadedTable) -> str | None:
    """Return the UUID of a loaded table; optional in format version 1 (Iceberg spec, Table Metadata)."""
    return table.table_uuid if "table-uuid" in table.metadata else None


def _has_expired(credential: S3Credential, now: datetime) -> bool:
    return credential.expires_at is not None and credential.expires_at <= now


def _credential(prefix: str, config: Mapping[str, Any]) -> S3Credential | None:
    key_id, secret = config.get("s3.access-key-id"), config.get("s3.secret-access-key")
    if not key_id or not secret:
        return None
    token = config.get("s3.session-token")
    # Both are milliseconds since the epoch; Polaris 1.4 sends both, 1.7 only the first.
    expiry = config.get("s3.session-token-expires-at-ms") or config.get("expiration-time")
    return S3Credential(
        prefix=prefix,
        access_key_id=str(key_id),
        secret_access_key=str(secret),
        session_token=str(token) if token else None,
        expires_at=_expiry(expiry),
    )


def _expiry(milliseconds: object) -> datetime | None:
    if not milliseconds:
        return None
    try:
        return datetime.fromtimestamp(int(str(milliseconds)) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise CredentialVendingFailed("Polaris vended a credential whose expiry is not in milliseconds") from None


def _as_s3(uri: str) -> str:
    return "s3" + uri[3:] if uri.startswith(("s3a://", "s3n://")) else uri
