"""The catalog's views (Iceberg View Spec; Iceberg REST specification, ViewUpdate)."""

import copy
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from infra.local.catalog.errors import RestError, already_exists, bad_request, commit_failed, purge_not_enabled
from infra.local.catalog.layout import TableLayout, check_names
from infra.local.catalog.metadata import LAST_ADDED, JsonObject
from infra.local.catalog.principals.access import AccessControl, CatalogCaller
from infra.local.catalog.state import CatalogState, Namespace, TableKey, dotted
from infra.local.catalog.storage import MetadataFiles, version_of
from infra.local.catalog.warehouse import ALLOW_PURGE, PURGE_VIEWS, Warehouse

_SUMMARY = {"iceberg-version": "Apache Iceberg 1.11.0"}


class LocalViews:
    """The views of one catalog; each operation checks the principal's privileges as Polaris does."""

    def __init__(
        self,
        warehouse: Warehouse,
        state: CatalogState,
        files: MetadataFiles,
        layout: TableLayout,
        access: AccessControl,
    ) -> None:
        self._warehouse = warehouse
        self._state = state
        self._files = files
        self._layout = layout
        self._access = access

    def list(self, who: CatalogCaller, namespace: Namespace) -> list[str]:
        """Return the names of a namespace's views."""
        self._access.require(who, "LIST_VIEWS", self._state.path(namespace))
        return self._state.list_views(namespace)

    def create(self, who: CatalogCaller, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return LoadViewResult of a new view."""
        check_names(*name[0], name[1])
        self._access.require(who, "CREATE_VIEW", self._state.path(name[0]))
        if self._state.has_view(name):
            raise already_exists(f"View {dotted(*name)}")
        if self._state.find(name) is not None:
            raise already_exists(f"Table {dotted(*name)}")
        location = str(request.get("location") or f"{self._layout.of_namespace(name[0])}/{name[1]}").rstrip("/")
        metadata: JsonObject = {
            "view-uuid": str(uuid.uuid4()),
            "format-version": 1,
            "location": location,
            "schemas": [],
            "versions": [],
            "version-log": [],
            "properties": dict(request.get("properties") or {}),
        }
        _add_schema(metadata, {"schema": request["schema"]})
        now_ms = self._warehouse.now_ms()
        # Polaris builds the first version anew: it has the server's time, and the server's release as summary.
        own = {"timestamp-ms": now_ms, "summary": dict(_SUMMARY), "schema-id": LAST_ADDED}
        _add_version(metadata, {"view-version": {**request["view-version"], **own}})
        _set_current(metadata, {"view-version-id": LAST_ADDED}, now_ms)
        written = self._files.next(metadata, 0)
        self._files.write(metadata, written)
        self._undone_unless(written, lambda: self._state.add_view(name, written))
        return _load_result(metadata, written)

    def load(self, who: CatalogCaller, name: TableKey) -> JsonObject:
        """Return LoadViewResult."""
        location = self._state.view(name)
        self._access.require(who, "LOAD_VIEW", self._state.path(*name, is_view=True))
        return _load_result(self._files.read(location), location)

    def exists(self, who: CatalogCaller, name: TableKey) -> None:
        """Raise RestError unless the view exists."""
        self._state.view(name)
        self._access.require(who, "VIEW_EXISTS", self._state.path(*name, is_view=True))

    def replace(self, who: CatalogCaller, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return LoadViewResult after a commit; a concurrent one causes 409 CommitFailedException."""
        location = self._state.view(name)
        self._access.require(who, "REPLACE_VIEW", self._state.path(*name, is_view=True))
        base = self._files.read(location)
        for requirement in request.get("requirements") or []:
            if requirement["type"] != "assert-view-uuid":
                raise bad_request(f"Unknown requirement: {requirement['type']}")
            if base["view-uuid"].lower() != requirement["uuid"].lower():
                raise commit_failed("Requirement failed: view UUID does not match")
        metadata = copy.deepcopy(base)
        for update in request.get("updates") or []:
            action = str(update.get("action"))
            if action == "set-current-view-version":
                _set_current(metadata, update, self._warehouse.now_ms())
            else:
                _one(action)(metadata, update)
        written = self._files.next(metadata, version_of(location) + 1)
        self._files.write(metadata, written)
        self._undone_unless(written, lambda: self._state.swap_view(name, location, written))
        return _load_result(metadata, written)

    def drop(self, who: CatalogCaller, name: TableKey) -> None:
        """Remove a view; like Polaris, refuse it where its metadata would have to be deleted and may not."""
        self._state.view(name)
        self._access.require(who, "DROP_VIEW", self._state.path(*name, is_view=True))
        if self._warehouse.flag(PURGE_VIEWS, default=True) and not self._warehouse.flag(ALLOW_PURGE):
            raise purge_not_enabled(name[1])
        self._state.drop_view(name)

    def rename(self, who: CatalogCaller, source: TableKey, destination: TableKey) -> None:
        """Rename a view."""
        check_names(*destination[0], destination[1])
        self._state.check_rename_view(source, destination)
        path = self._state.path(*source, is_view=True)
        self._access.require(who, "RENAME_VIEW", path, self._state.path(destination[0]))
        self._state.rename_view(source, destination)

    def _undone_unless(self, written: str, step: Callable[[], None]) -> None:
        try:
            step()
        except RestError:
            self._files.delete(written)
            raise


def _load_result(metadata: JsonObject, location: str) -> JsonObject:
    return {"metadata-location": location, "metadata": metadata, "config": {}}


def _add_schema(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    content = {name: part for name, part in update["schema"].items() if name != "schema-id"}
    for known in metadata["schemas"]:
        if {name: part for name, part in known.items() if name != "schema-id"} == content:
            metadata["schemas"].remove(known)
            metadata["schemas"].append(known)
            return
    taken = [known["schema-id"] for known in metadata["schemas"]]
    metadata["schemas"].append({**content, "schema-id": max(taken, default=-1) + 1})


def _add_version(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    version = dict(update["view-version"])
    if version.get("schema-id", LAST_ADDED) == LAST_ADDED:
        version["schema-id"] = metadata["schemas"][-1]["schema-id"]
    taken = [known["version-id"] for known in metadata["versions"]]
    if version["version-id"] in taken:
        version["version-id"] = max(taken) + 1
    metadata["versions"].append(version)


def _one(action: str) -> Callable[[JsonObject, Mapping[str, Any]], None]:
    found = _UPDATES.get(action)
    if found is None:
        raise bad_request(f"Unknown update: {action}")
    return found


def _set_current(metadata: JsonObject, update: Mapping[str, Any], now_ms: int) -> None:
    wanted = update["view-version-id"]
    chosen = metadata["versions"][-1]["version-id"] if wanted == LAST_ADDED else wanted
    if chosen not in [version["version-id"] for version in metadata["versions"]]:
        raise bad_request(f"Cannot set current version to unknown version with id: {chosen}")
    metadata["current-version-id"] = chosen
    metadata["version-log"].append({"version-id": chosen, "timestamp-ms": now_ms})
    metadata["schemas"].sort(key=lambda schema: int(schema["schema-id"]))


def _assign_uuid(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    if metadata["view-uuid"] != update["uuid"]:
        raise bad_request("Cannot reassign uuid")


def _set_location(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    metadata["location"] = update["location"].rstrip("/")


def _set_properties(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    metadata["properties"].update(update["updates"])


def _remove_properties(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    for name in update["removals"]:
        metadata["properties"].pop(name, None)


def _upgrade(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    if update["format-version"] != metadata["format-version"]:
        raise bad_request("Unsupported format version")


_UPDATES: dict[str, Callable[[JsonObject, Mapping[str, Any]], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "add-schema": _add_schema,
    "add-view-version": _add_version,
}
