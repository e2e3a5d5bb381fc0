"""The registry of vended storage keys and their bounds, which the catalog fills and the S3 front enforces.

It exists because the emulated STS does not enforce the session policies of its keys.
"""

import hmac
import threading
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum


class Access(Enum):
    """The access that a request needs; all but OTHER are in the policy of Polaris' vended credentials."""

    READ = "s3:GetObject"
    WRITE = "s3:PutObject"
    DELETE = "s3:DeleteObject"
    LIST = "s3:ListBucket"
    LOCATION = "s3:GetBucketLocation"
    OTHER = "anything else"


@dataclass(frozen=True, slots=True)
class VendedKey:
    """An access key for objects below `prefixes`, (bucket, key prefix ending in "/"), until `expires_at`."""

    access_key_id: str
    session_token: str = field(repr=False)
    prefixes: tuple[tuple[str, str], ...]
    writable: bool
    expires_at: datetime

    def has_token(self, token: str) -> bool:
        return hmac.compare_digest(self.session_token.encode(), token.encode())

    def allows(self, access: Access, bucket: str, key: str) -> bool:
        """Return whether `access` to `key` (for LIST the requested prefix) is within bounds; ignores the expiry."""
        if access is Access.OTHER:
            return False
        if access is Access.LOCATION:
            return any(bucket == own for own, _ in self.prefixes)
        if access in {Access.WRITE, Access.DELETE} and not self.writable:
            return False
        # Listing "table" without the slash would also show "table2"; Polaris' condition is `table/*`.
        return any(bucket == own and key.startswith(prefix) for own, prefix in self.prefixes)


class VendedKeys:
    """The registry; thread-safe. A key that is not in it belongs to an administrator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, VendedKey] = {}

    def add(self, key: VendedKey) -> None:
        with self._lock:
            self._keys[key.access_key_id] = key

    def find(self, access_key_id: str) -> VendedKey | None:
        with self._lock:
            return self._keys.get(access_key_id)
