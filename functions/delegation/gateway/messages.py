"""Requests and answers of the Iceberg REST API as bytes, forwarded unchanged, and the seam to the catalog."""

import json
from dataclasses import dataclass, field
from typing import Any, Protocol

Headers = tuple[tuple[str, str], ...]
"""Names and values in the order received; a name may occur more than once, in any case."""


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """A request to the catalog. `path` is percent-encoded as received, relative to the catalog's base, without a
    leading slash: `v1/…`. `query` is raw, without its question mark."""

    method: str
    path: str
    query: str = ""
    headers: Headers = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        """Return the header's first value, None without one."""
        return _first(self.headers, name)


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    status: int
    headers: Headers = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        """Return the header's first value, None without one."""
        return _first(self.headers, name)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def document(self) -> dict[str, Any] | None:
        """The body's JSON object, None for any other body."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def _first(headers: Headers, name: str) -> str | None:
    wanted = name.lower()
    for known, value in headers:
        if known.lower() == wanted:
            return value
    return None


class Upstream(Protocol):
    """Sends a request to the catalog at an address that bypasses the gateway's rule."""

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """Send once, without hop-by-hop headers (RFC 9110, 7.6.1), and return the answer unchanged. `timeout` is in
        seconds. Raises CatalogUnavailable if nothing was sent, CatalogOutcomeUnknown if it may have been."""
