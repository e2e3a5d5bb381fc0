"""The catalog's flags and storage, and where a table's files may lie: checked at create, register, commit and load.

Without the flag `…allow.unstructured.table.location` a new table lies in its namespace's location and an existing one
stays in its own; without `…allow.overlapping.table.location` it shares its location with no table and no namespace
beside it. Source: Apache Polaris 1.7.0, LocalIcebergCatalog, LocationRestrictions, EntityNameValidator.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from infra.local.catalog.access import Entity
from infra.local.catalog.entities import CatalogEntities, Namespace, TableKey, dotted
from infra.local.catalog.errors import RestError, bad_request, invalid_argument

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
        with self._lock:
            return self._entity.properties.get(name, str(default)).lower() == "true"

    def now_ms(self) -> int:
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


WRITE_PATHS = ("write.data.path", "write.metadata.path")
LOCATION = "location"
_FORBIDDEN = frozenset('/\\:*?"<>|#+`')
_LAST_ASCII_CONTROL = 0x1F
_DELETE, _LAST_CONTROL = 0x7F, 0x9F


def check_names(*names: str) -> None:
    """Raise RestError 400 for a name that Polaris does not accept for a new namespace level or table."""
    for name in names:
        if not name:
            raise invalid_argument("Entity name must not be empty")
        if name in {".", ".."}:
            raise invalid_argument("Entity name must not be '.' or '..'")
        for character in name:
            code = ord(character)
            if code <= _LAST_ASCII_CONTROL or _DELETE <= code <= _LAST_CONTROL:
                raise invalid_argument(f"Entity name must not contain control characters (U+{code:04X}): {name!a}")
            if character in _FORBIDDEN:
                raise invalid_argument(f"Entity name must not contain '{character}': {name}")
        if name != name.strip():
            raise invalid_argument(f"Entity name must not have leading or trailing whitespace: {name}")


def is_below(location: str, parent: str) -> bool:
    """Return whether `location` is `parent` or below it; s3a equals s3."""
    return _slashed(location).startswith(_slashed(parent))


def used_by(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return the table's location and its write paths, without those below another of them."""
    properties = metadata.get("properties") or {}
    used = {metadata[LOCATION], *(path.rstrip("/") for name in WRITE_PATHS if (path := properties.get(name)))}
    kept: list[str] = []
    # The shorter first: of two spellings of one place, one is kept.
    for candidate in sorted(used, key=lambda location: (len(_slashed(location)), location)):
        if not any(is_below(candidate, other) for other in kept):
            kept.append(candidate)
    return frozenset(kept)


class TableLayout:
    """The rules of one catalog; every method raises RestError 403 for a location that they do not allow."""

    def __init__(self, warehouse: Warehouse, entities: CatalogEntities) -> None:
        self._warehouse = warehouse
        self._entities = entities

    def of_namespace(self, namespace: Namespace) -> str:
        """Return the namespace's location: its property, or its name below its parent's."""
        if not namespace:
            return self._warehouse.location
        given = self._entities.namespace(namespace).get(LOCATION)
        return given.rstrip("/") if given else f"{self.of_namespace(namespace[:-1])}/{namespace[-1]}"

    def check_namespace(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Raise RestError 400 for a location of a new namespace that is not the default one."""
        given, expected = properties.get(LOCATION), f"{self.of_namespace(namespace[:-1])}/{namespace[-1]}"
        if given is not None and _slashed(given) != _slashed(expected):
            raise invalid_argument(
                f"Namespace {namespace[-1]} has a custom location, which is not enabled. "
                f"Expected location: [{expected}/]. Got location: [{given}]"
            )

    def check_place(self, name: TableKey, metadata_location: str) -> None:
        """Check where the metadata file of a table lies that is to be registered."""
        self._restrict(name, {metadata_location}, self.of_namespace(name[0]))

    def check_new(self, name: TableKey, metadata: Mapping[str, Any], metadata_location: str) -> None:
        used = used_by(metadata)
        self._restrict(name, used | _named_by(metadata) | {metadata_location}, self.of_namespace(name[0]))
        self._check_neighbours(name, used)
        _check_metadata_file(metadata, metadata_location)

    def check_commit(
        self, name: TableKey, base: Mapping[str, Any], metadata: Mapping[str, Any], metadata_location: str
    ) -> None:
        """Check a commit to a table; its present location bounds it, also when it moves."""
        used = used_by(metadata)
        moved = used != used_by(base)
        named = _named_by(metadata) | {metadata_location}
        self._restrict(name, named | used if moved else named, str(base[LOCATION]))
        if moved:
            self._check_neighbours(name, used)
            _check_metadata_file(metadata, metadata_location)

    def check_load(self, name: TableKey, metadata: Mapping[str, Any]) -> None:
        """Check a table at every load: a write path outside of its location was accepted at its creation."""
        try:
            self._restrict(name, used_by(metadata), str(metadata[LOCATION]))
        except RestError as error:
            reason = f"Table '{dotted(*name)}' has locations outside the catalog's current allowed locations: {error}"
            raise RestError(403, "ForbiddenException", reason) from None

    def _restrict(self, name: TableKey, locations: Iterable[str], parent: str) -> None:
        bounds = [self._warehouse.allowed_locations]
        if not self._warehouse.flag(ALLOW_UNSTRUCTURED):
            bounds.append((parent,))
        listed = sorted(locations)
        for location in listed:
            for allowed in bounds:
                if not any(is_below(location, area) for area in allowed):
                    reason = (
                        f"Invalid locations '[{', '.join(listed)}]' for identifier '{dotted(*name)}': "
                        f"{location} is not in the list of allowed locations: [{', '.join(allowed)}]"
                    )
                    raise RestError(403, "ForbiddenException", reason)

    def _check_neighbours(self, name: TableKey, locations: Iterable[str]) -> None:
        if self._warehouse.flag(ALLOW_OVERLAP):
            return
        namespace, own = name
        beside = [location for table, location in self._entities.locations(namespace) if table != own]
        beside += [self.of_namespace(child) for child in self._entities.list_namespaces(namespace) if child[-1] != own]
        for location in locations:
            for other in beside:
                if is_below(location, other) or is_below(other, location):
                    reason = (
                        f"Unable to create entity at location '{location}' because it conflicts with existing table or "
                        f"namespace at location '{other}'"
                    )
                    raise RestError(403, "ForbiddenException", reason)


def _named_by(metadata: Mapping[str, Any]) -> set[str]:
    """Return the files that the metadata names directly and that Polaris checks."""
    named = [snapshot.get("manifest-list") for snapshot in metadata.get("snapshots") or ()]
    for kind in ("statistics", "partition-statistics"):
        named += [part.get("statistics-path") for part in metadata.get(kind) or ()]
    return {path for path in named if path}


def _check_metadata_file(metadata: Mapping[str, Any], metadata_location: str) -> None:
    if not is_below(metadata_location, metadata[LOCATION]):
        raise bad_request(
            f"Metadata location {metadata_location} is not allowed outside of table location {metadata[LOCATION]}"
        )


def _slashed(location: str) -> str:
    scheme, separator, rest = location.partition("://")
    same = "s3" if scheme in {"s3a", "s3n"} else scheme
    return f"{same}{separator}{rest.rstrip('/')}/"
