"""The catalog's operations on tables, which raise RestError."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from infra.local.catalog.errors import RestError, already_exists, forbidden
from infra.local.catalog.metadata import JsonObject, apply, check, empty_metadata, new_metadata
from infra.local.catalog.principals import LocalPrincipal, Principals, Privilege
from infra.local.catalog.state import CatalogEntry, CatalogState, TableKey, dotted
from infra.local.catalog.storage import CredentialVendor, MetadataFiles, version_of

WRITE_PATHS = ("write.data.path", "write.metadata.path")
CREATE_PROPERTY_LOCATION = "location"


@dataclass(frozen=True, slots=True)
class Warehouse:
    """One catalog: its name (also the prefix of its paths), its tables' location, and its clients' S3 settings."""

    name: str
    location: str
    s3_endpoint: str
    region: str
    allowed_locations: tuple[str, ...]


class LocalTables:
    """The tables of one catalog; each operation checks the principal's privileges as Polaris does."""

    def __init__(
        self,
        warehouse: Warehouse,
        state: CatalogState,
        files: MetadataFiles,
        vendor: CredentialVendor,
        principals: Principals,
    ) -> None:
        self._warehouse = warehouse
        self._state = state
        self._files = files
        self._vendor = vendor
        self._principals = principals

    def create(self, who: LocalPrincipal, name: TableKey, request: Mapping[str, Any], *, vend: bool) -> JsonObject:
        """Return LoadTableResult of a new table, or of a staged one, which exists only after its first commit."""
        properties = self._state.namespace(name[0])
        self._principals.require(who, "CREATE_TABLE_DIRECT", Privilege.TABLE_CREATE)
        namespace_location = properties.get(CREATE_PROPERTY_LOCATION) or self._under(self._warehouse.location, *name[0])
        location = str(request.get("location") or self._under(namespace_location, name[1])).rstrip("/")
        metadata = new_metadata(request, location, now_ms=_now_ms())
        self._check_locations(who, metadata)
        if request.get("stage-create"):
            if self._state.find(name) is not None:
                raise already_exists(f"Table {dotted(*name)}")
            return self._load_result(who, name, None, metadata, vend=vend)
        metadata_location = self._files.write(metadata, 0)
        try:
            self._state.add(name, CatalogEntry(metadata_location, metadata["table-uuid"]))
        except RestError:
            self._files.delete(metadata_location)
            raise
        return self._load_result(who, name, metadata_location, metadata, vend=vend)

    def register(self, who: LocalPrincipal, name: TableKey, metadata_location: str, *, vend: bool) -> JsonObject:
        self._state.namespace(name[0])
        self._principals.require(who, "REGISTER_TABLE", Privilege.TABLE_CREATE)
        metadata = self._files.read(metadata_location)
        self._check_locations(who, metadata)
        self._state.add(name, CatalogEntry(metadata_location, metadata["table-uuid"]))
        return self._load_result(who, name, metadata_location, metadata, vend=vend)

    def load(self, who: LocalPrincipal, name: TableKey, *, vend: bool, snapshots: str = "all") -> JsonObject:
        entry = self._state.get(name)
        self._principals.require(who, "LOAD_TABLE", Privilege.TABLE_READ_PROPERTIES)
        metadata = self._files.read(entry.metadata_location)
        if snapshots == "refs":
            kept = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
            metadata["snapshots"] = [known for known in metadata.get("snapshots", []) if known["snapshot-id"] in kept]
        return self._load_result(who, name, entry.metadata_location, metadata, vend=vend)

    def exists(self, who: LocalPrincipal, name: TableKey) -> None:
        self.load(who, name, vend=False)

    def credentials(self, who: LocalPrincipal, name: TableKey) -> JsonObject:
        """Return LoadCredentialsResponse, for clients that refresh credentials."""
        return {"storage-credentials": self.load(who, name, vend=True)["storage-credentials"]}

    def commit(self, who: LocalPrincipal, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return CommitTableResponse; a concurrent commit causes 409 CommitFailedException and leaves no file."""
        requirements: Sequence[Mapping[str, Any]] = request.get("requirements") or []
        updates: Sequence[Mapping[str, Any]] = request.get("updates") or []
        creates = any(requirement["type"] == "assert-create" for requirement in requirements)
        entry = self._state.find(name) if creates else self._state.get(name)
        needed = Privilege.TABLE_CREATE if creates else Privilege.TABLE_WRITE_DATA
        self._principals.require(who, "UPDATE_TABLE", needed)
        base = self._files.read(entry.metadata_location) if entry else None
        check(requirements, base)
        staged = base if base is not None else empty_metadata(self._under(self._warehouse.location, *name[0], name[1]))
        previous = entry.metadata_location if entry else None
        metadata = apply(updates, staged, now_ms=_now_ms(), previous_location=previous)
        self._check_locations(who, metadata)
        written = self._files.write(metadata, version_of(previous) + 1 if previous else 0)
        committed = CatalogEntry(written, metadata["table-uuid"])
        try:
            if entry is None:
                self._state.add(name, committed)
            else:
                self._state.swap(name, entry, committed)
        except RestError:
            self._files.delete(written)
            raise
        return {"metadata-location": written, "metadata": metadata}

    def drop(self, who: LocalPrincipal, name: TableKey, *, purge: bool) -> None:
        """Remove the table's name; like Polaris with its default settings, refuse to purge its files."""
        self._state.get(name)
        self._principals.require(who, "DROP_TABLE_WITHOUT_PURGE", Privilege.TABLE_DROP)
        if purge:
            self._principals.require(who, "DROP_TABLE_WITH_PURGE", Privilege.TABLE_WRITE_DATA)
            message = (
                f"Unable to purge entity: {name[1]}. To enable this feature, set the Polaris configuration "
                "DROP_WITH_PURGE_ENABLED or the catalog configuration polaris.config.drop-with-purge.enabled"
            )
            raise RestError(403, "ForbiddenException", message)
        self._state.drop(name)

    def rename(self, who: LocalPrincipal, source: TableKey, destination: TableKey) -> None:
        # Polaris answers 404 and 409 before it checks privileges.
        self._state.check_rename(source, destination)
        self._principals.require(who, "RENAME_TABLE", Privilege.TABLE_DROP)
        self._principals.require(who, "RENAME_TABLE", Privilege.TABLE_CREATE)
        self._state.rename(source, destination)

    def _load_result(
        self, who: LocalPrincipal, name: TableKey, metadata_location: str | None, metadata: JsonObject, *, vend: bool
    ) -> JsonObject:
        namespace = "%1F".join(quote(level, safe="") for level in name[0])
        refresh = (
            f"v1/{quote(self._warehouse.name)}/namespaces/{namespace}/tables/{quote(name[1], safe='')}/credentials"
        )
        config = {
            "s3.endpoint": self._warehouse.s3_endpoint,
            "s3.path-style-access": "true",
            "client.region": self._warehouse.region,
            "client.refresh-credentials-endpoint": refresh,
        }
        result: JsonObject = {"metadata": metadata, "config": config, "storage-credentials": []}
        if metadata_location is not None:
            result["metadata-location"] = metadata_location
        if vend:
            result["storage-credentials"] = [self._vend(who, name, metadata)]
        return result

    def _vend(self, who: LocalPrincipal, name: TableKey, metadata: JsonObject) -> JsonObject:
        """Return a StorageCredential: its prefix is the location, its policy covers the write paths too."""
        # Like Polaris, return read-only keys to a principal that may not write.
        writable = self._principals.has(who, Privilege.TABLE_WRITE_DATA)
        if not writable and not self._principals.has(who, Privilege.TABLE_READ_DATA):
            raise forbidden(who.name, f"LOAD_TABLE_WITH_READ_DELEGATION on {dotted(*name)}")
        locations = sorted({metadata["location"], *_write_paths(metadata)})
        return {"prefix": metadata["location"], "config": self._vendor.vend(locations, writable=writable)}

    def _check_locations(self, who: LocalPrincipal, metadata: JsonObject) -> None:
        for location in (metadata["location"], *_write_paths(metadata)):
            if not any(f"{location}/".startswith(allowed.rstrip("/") + "/") for allowed in self._allowed()):
                reason = f"Invalid locations '[{location}]' for {who.name}: not in the list of allowed locations"
                raise RestError(403, "ForbiddenException", reason)

    def _allowed(self) -> tuple[str, ...]:
        return (self._warehouse.location, *self._warehouse.allowed_locations)

    @staticmethod
    def _under(location: str, *names: str) -> str:
        return "/".join((location.rstrip("/"), *names))


def _now_ms() -> int:
    return int(time.time() * 1000)


def _write_paths(metadata: JsonObject) -> list[str]:
    properties = metadata.get("properties") or {}
    return [path.rstrip("/") for name in WRITE_PATHS if (path := properties.get(name))]
