"""The scope of an idempotency key: who sent it, and to which method of which resource."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from delegation.idempotency.canonical import canonical_json


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a key; `caller` is the client's name, not its certificate, which is replaced."""

    caller: str
    realm_id: str
    method: str
    resource_path: str
    idempotency_key: str

    @property
    def id(self) -> str:
        """The key of the record: a SHA-256 of the scope."""
        parts = [self.caller, self.realm_id, self.method, self.resource_path, self.idempotency_key]
        return hashlib.sha256(canonical_json(parts)).hexdigest()


_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_NOT_ESCAPED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""The unreserved characters of RFC 3986, Section 2.3."""


def normalized_path(path: str) -> str:
    """Return a URL's path such that equal resources have equal text (RFC 3986, Section 6.2.2), without a query.

    Escapes of unreserved characters are decoded and the others get upper-case digits; `.`, `..` and empty segments
    are removed, and so is a slash at the end. `%2F` stays escaped, because it is a part of a name.
    """
    kept: list[str] = []
    for segment in _ESCAPE.sub(_escape, path.partition("?")[0]).split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    return "/" + "/".join(kept)


def _escape(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _NOT_ESCAPED else match[0].upper()
