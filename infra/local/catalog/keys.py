"""Idempotency-Keys as Polaris keeps them where they are switched on: for creating a table and committing to one.

Source: Apache Polaris of 2026-08-21, IdempotencyKeyFilter, EntityIdempotency and IcebergCatalogHandler. A key is
recorded on the table that a request made or changed; nothing but the key is compared.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from infra.local.catalog.errors import RestError


class TableKeys:
    """The keys of tables, by the tables' UUIDs."""

    def __init__(self, lifetime: timedelta, clock: Callable[[], datetime]) -> None:
        self.lifetime = lifetime
        self._clock = clock
        self._ends: dict[tuple[str, str], datetime] = {}

    def has(self, table_uuid: str, key: str) -> bool:
        """Whether a key is recorded on a table, and not forgotten."""
        return self._ends.get((table_uuid, key), self._clock()) > self._clock()

    def record(self, table_uuid: str, key: str) -> None:
        """Record a key on a table."""
        self._ends[table_uuid, key] = self._clock() + self.lifetime


def key_of(header: str | None) -> str | None:
    """Return a request's key, None without one; raises RestError for one that is no UUID."""
    if header is None or not header.strip():
        return None
    try:
        return str(UUID(header.strip()))
    except ValueError:
        raise RestError(400, "InvalidIdempotencyKey", "Invalid Idempotency-Key header; expected a UUID") from None
