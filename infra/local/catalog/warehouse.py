"""The catalog itself: its name, its properties with Polaris' flags, and its storage configuration."""

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from infra.local.catalog.errors import RestError
from infra.local.catalog.principals.access import Entity

BASE_LOCATION = "default-base-location"
ALLOW_OVERLAP = "polaris.config.allow.overlapping.table.location"
ALLOW_UNSTRUCTURED = "polaris.config.allow.unstructured.table.location"
ALLOW_PURGE = "polaris.config.drop-with-purge.enabled"
PURGE_VIEWS = "polaris.config.purge-view-metadata-on-drop"
"""On by default in Polaris, unlike the others: then a view is dropped only where ALLOW_PURGE is on."""


class Warehouse:
    """One catalog; its tables are below `location` or `allowed_locations`. Thread-safe."""

    def __init__(
        self,
        entity: Entity,
        *,
        location: str,
        s3_endpoint: str,
        region: str,
        allowed_locations: Iterable[str],
        clock: Callable[[], datetime],
    ) -> None:
        self.name = entity.name
        self.newer = False
        self.s3_endpoint = s3_endpoint
        self.region = region
        self._entity = entity
        self._clock = clock
        self._lock = threading.Lock()
        entity.properties = {**entity.properties, BASE_LOCATION: location}
        self._storage: dict[str, Any] = {
            "storageType": "S3",
            "allowedLocations": [location, *allowed_locations],
            "region": region,
            "endpoint": s3_endpoint,
            "pathStyleAccess": True,
            "stsUnavailable": False,
        }

    @property
    def location(self) -> str:
        """The location below which tables lie by default."""
        with self._lock:
            return self._entity.properties[BASE_LOCATION].rstrip("/")

    @property
    def allowed_locations(self) -> tuple[str, ...]:
        """The locations below which every file of a table must lie."""
        with self._lock:
            return tuple(self._storage["allowedLocations"])

    @property
    def vends(self) -> bool:
        """Whether the storage has an STS that issues credentials."""
        with self._lock:
            return not self._storage.get("stsUnavailable")

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a flag among the properties."""
        with self._lock:
            return self._entity.properties.get(name, str(default)).lower() == "true"

    def now_ms(self) -> int:
        """Return the catalog's time in milliseconds."""
        return int(self._clock().timestamp() * 1000)

    def body(self) -> dict[str, Any]:
        """Return the Catalog of the management API."""
        with self._lock:
            return {"type": "INTERNAL", **self._entity.body(), "storageConfigInfo": dict(self._storage)}

    def replace_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the properties, except the base location unless it is given."""
        self.update(self._entity.version, properties, None)

    def update(
        self, version: int | None, properties: Mapping[str, str] | None, storage: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Replace what is given; raise RestError 409 unless `version` is the current one."""
        with self._lock:
            if version != self._entity.version:
                current = self._entity.version
                reason = f"Failed to update Catalog; currentEntityVersion '{current}', expected '{version}'"
                raise RestError(409, "CommitConflictException", reason)
            if properties is not None:
                base = self._entity.properties[BASE_LOCATION]
                self._entity.properties = {BASE_LOCATION: base, **properties}
            if storage is not None:
                self._storage = {"allowedLocations": self._storage["allowedLocations"], **storage}
            self._entity.version += 1
            self._entity.updated_ms = int(self._clock().timestamp() * 1000)
        return self.body()
