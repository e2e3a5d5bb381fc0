"""The catalog's operations on tables, which raise RestError."""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from infra.local.catalog.access import Access, Caller
from infra.local.catalog.errors import RestError, already_exists
from infra.local.catalog.metadata import JsonObject, apply, check, empty_metadata, new_metadata
from infra.local.catalog.state import CatalogEntry, CatalogState, TableKey, dotted
from infra.local.catalog.storage import CredentialVendor, MetadataFiles, version_of
from infra.local.catalog.warehouse import Warehouse

WRITE_PATHS = ("write.data.path", "write.metadata.path")
CREATE_PROPERTY_LOCATION = "location"


class LocalTables:
    """The tables of one catalog; each operation checks the principal's privileges as Polaris does."""

    def __init__(
        self,
        warehouse: Warehouse,
        state: CatalogState,
        files: MetadataFiles,
        vendor: CredentialVendor,
        access: Access,
    ) -> None:
        self._warehouse = warehouse
        self._state = state
        self._files = files
        self._vendor = vendor
        self._access = access

    def create(self, who: Caller, name: TableKey, request: Mapping[str, Any], *, vend: bool) -> JsonObject:
        """Return LoadTableResult of a new table, or of a staged one, which exists only after its first commit."""
        properties = self._state.namespace(name[0])
        operation = "CREATE_TABLE_STAGED" if request.get("stage-create") else "CREATE_TABLE_DIRECT"
        self._access.require(who, operation + ("_WITH_WRITE_DELEGATION" if vend else ""), self._state.path(name[0]))
        namespace_location = properties.get(CREATE_PROPERTY_LOCATION) or self._under(self._warehouse.location, *name[0])
        location = str(request.get("location") or self._under(namespace_location, name[1])).rstrip("/")
        metadata = new_metadata(request, location, now_ms=_now_ms())
        self._check_locations(who, metadata)
        if request.get("stage-create"):
            if self._state.find(name) is not None:
                raise already_exists(f"Table {dotted(*name)}")
            return self._load_result(name, None, metadata, writable=vend or None)
        metadata_location = self._files.write(metadata, 0)
        try:
            self._state.add(name, CatalogEntry(metadata_location, metadata["table-uuid"]))
        except RestError:
            self._files.delete(metadata_location)
            raise
        return self._load_result(name, metadata_location, metadata, writable=vend or None)

    def register(self, who: Caller, name: TableKey, metadata_location: str, *, vend: bool) -> JsonObject:
        self._access.require(who, "REGISTER_TABLE", self._state.path(name[0]))
        metadata = self._files.read(metadata_location)
        self._check_locations(who, metadata)
        self._state.add(name, CatalogEntry(metadata_location, metadata["table-uuid"]))
        return self._load_result(name, metadata_location, metadata, writable=vend or None)

    def load(self, who: Caller, name: TableKey, *, vend: bool, snapshots: str = "all") -> JsonObject:
        entry = self._state.get(name)
        writable = self._authorize_load(who, name, vend=vend)
        metadata = self._files.read(entry.metadata_location)
        if snapshots == "refs":
            kept = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
            metadata["snapshots"] = [known for known in metadata.get("snapshots", []) if known["snapshot-id"] in kept]
        return self._load_result(name, entry.metadata_location, metadata, writable=writable)

    def _authorize_load(self, who: Caller, name: TableKey, *, vend: bool) -> bool | None:
        """Return whether the credentials may write, None if the load has none; like Polaris, tell nobody otherwise."""
        path = self._state.path(*name)
        if not vend:
            self._access.require(who, "LOAD_TABLE", path)
            return None
        if self._access.allows(who, "LOAD_TABLE_WITH_WRITE_DELEGATION", path):
            return True
        self._access.require(who, "LOAD_TABLE_WITH_READ_DELEGATION", path)
        return False

    def exists(self, who: Caller, name: TableKey) -> None:
        self._access.require(who, "TABLE_EXISTS", self._state.path(*name))

    def credentials(self, who: Caller, name: TableKey) -> JsonObject:
        """Return LoadCredentialsResponse, for clients that refresh credentials."""
        return {"storage-credentials": self.load(who, name, vend=True)["storage-credentials"]}

    def commit(self, who: Caller, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return CommitTableResponse; a concurrent commit causes 409 CommitFailedException and leaves no file."""
        requirements: Sequence[Mapping[str, Any]] = request.get("requirements") or []
        updates: Sequence[Mapping[str, Any]] = request.get("updates") or []
        creates = any(requirement["type"] == "assert-create" for requirement in requirements)
        entry = self._state.find(name) if creates else self._state.get(name)
        if creates:
            self._access.require(who, "UPDATE_TABLE_FOR_STAGED_CREATE", self._state.path(name[0]))
        else:
            self._access.require(who, "UPDATE_TABLE", self._state.path(*name))
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

    def drop(self, who: Caller, name: TableKey, *, purge: bool) -> None:
        """Remove the table's name; like Polaris with its default settings, refuse to purge its files."""
        self._state.get(name)
        self._access.require(who, f"DROP_TABLE_WITH{'' if purge else 'OUT'}_PURGE", self._state.path(*name))
        if purge:
            message = (
                f"Unable to purge entity: {name[1]}. To enable this feature, set the Polaris configuration "
                "DROP_WITH_PURGE_ENABLED or the catalog configuration polaris.config.drop-with-purge.enabled"
            )
            raise RestError(403, "ForbiddenException", message)
        self._state.drop(name)

    def rename(self, who: Caller, source: TableKey, destination: TableKey) -> None:
        # Polaris answers 404 and 409 before it checks privileges.
        self._state.check_rename(source, destination)
        self._access.require(who, "RENAME_TABLE", self._state.path(*source), self._state.path(destination[0]))
        self._state.rename(source, destination)

    def _load_result(
        self, name: TableKey, metadata_location: str | None, metadata: JsonObject, *, writable: bool | None
    ) -> JsonObject:
        """Return a LoadTableResult with credentials that may write or not, or with none if `writable` is None."""
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
        if writable is not None:
            result["storage-credentials"] = [self._vend(metadata, writable=writable)]
        return result

    def _vend(self, metadata: JsonObject, *, writable: bool) -> JsonObject:
        """Return a StorageCredential: its prefix is the location, its policy covers the write paths too."""
        locations = sorted({metadata["location"], *_write_paths(metadata)})
        return {"prefix": metadata["location"], "config": self._vendor.vend(locations, writable=writable)}

    def _check_locations(self, who: Caller, metadata: JsonObject) -> None:
        for location in (metadata["location"], *_write_paths(metadata)):
            if not any(f"{location}/".startswith(allowed.rstrip("/") + "/") for allowed in self._allowed()):
                reason = f"Invalid locations '[{location}]' for {who.name}: not in the list of allowed locations"
                raise RestError(403, "ForbiddenException", reason)

    def _allowed(self) -> tuple[str, ...]:
        return self._warehouse.allowed_locations

    @staticmethod
    def _under(location: str, *names: str) -> str:
        return "/".join((location.rstrip("/"), *names))


def _now_ms() -> int:
    return int(time.time() * 1000)


def _write_paths(metadata: JsonObject) -> list[str]:
    properties = metadata.get("properties") or {}
    return [path.rstrip("/") for name in WRITE_PATHS if (path := properties.get(name))]
