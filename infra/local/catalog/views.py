"""The catalog's views (Iceberg View Spec; Iceberg REST specification, ViewUpdate)."""

from collections.abc import Mapping
from typing import Any

from infra.local.catalog.entities import VIEW, CatalogEntities, Namespace, TableKey, dotted
from infra.local.catalog.errors import already_exists, purge_not_enabled
from infra.local.catalog.layout import ALLOW_PURGE, PURGE_VIEWS, TableLayout, Warehouse, check_names
from infra.local.catalog.metadata import JsonObject, MetadataFiles, committed_view, version_of
from infra.local.catalog.principals.access import AccessControl, CatalogCaller
from polaris_persistence.iceberg.updates.change import LAST_ADDED

_SUMMARY = {"iceberg-version": "Apache Iceberg 1.11.0"}


class LocalViews:
    """The views of one catalog; each operation checks the principal's privileges as Polaris does."""

    def __init__(
        self,
        warehouse: Warehouse,
        entities: CatalogEntities,
        files: MetadataFiles,
        layout: TableLayout,
        access: AccessControl,
    ) -> None:
        self._warehouse = warehouse
        self._entities = entities
        self._files = files
        self._layout = layout
        self._access = access

    def list(self, who: CatalogCaller, namespace: Namespace) -> list[str]:
        self._access.require(who, "LIST_VIEWS", self._entities.path(namespace))
        return self._entities.names(namespace, VIEW)

    def create(self, who: CatalogCaller, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return LoadViewResult of a new view."""
        check_names(*name[0], name[1])
        self._access.require(who, "CREATE_VIEW", self._entities.path(name[0]))
        if self._entities.has_view(name):
            raise already_exists(f"View {dotted(*name)}")
        if self._entities.find(name) is not None:
            raise already_exists(f"Table {dotted(*name)}")
        location = str(request.get("location") or f"{self._layout.of_namespace(name[0])}/{name[1]}").rstrip("/")
        now_ms = self._warehouse.now_ms()
        # Polaris builds the first version anew: it has the server's time, and the server's release as summary.
        own = {"timestamp-ms": now_ms, "summary": dict(_SUMMARY), "schema-id": LAST_ADDED}
        metadata = committed_view(
            None,
            [],
            [
                {"action": "set-location", "location": location},
                {"action": "set-properties", "updates": dict(request.get("properties") or {})},
                {"action": "add-schema", "schema": request["schema"]},
                {"action": "add-view-version", "view-version": {**request["view-version"], **own}},
                {"action": "set-current-view-version", "view-version-id": LAST_ADDED},
            ],
            now_ms=now_ms,
        )
        written = self._files.next(metadata, 0)
        self._files.write_for(lambda: self._entities.add_view(name, written), metadata, written)
        return _load_result(metadata, written)

    def load(self, who: CatalogCaller, name: TableKey) -> JsonObject:
        location = self._entities.view(name)
        self._access.require(who, "LOAD_VIEW", self._entities.path(*name, kind=VIEW))
        return _load_result(self._files.read(location), location)

    def exists(self, who: CatalogCaller, name: TableKey) -> None:
        self._entities.view(name)
        self._access.require(who, "VIEW_EXISTS", self._entities.path(*name, kind=VIEW))

    def replace(self, who: CatalogCaller, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return LoadViewResult after a commit; a concurrent one causes 409 CommitFailedException."""
        location = self._entities.view(name)
        self._access.require(who, "REPLACE_VIEW", self._entities.path(*name, kind=VIEW))
        base = self._files.read(location)
        metadata = committed_view(
            base,
            request.get("requirements") or [],
            request.get("updates") or [],
            now_ms=self._warehouse.now_ms(),
        )
        if metadata == base:
            return _load_result(base, location)
        written = self._files.next(metadata, version_of(location) + 1)
        self._files.write_for(lambda: self._entities.swap_view(name, location, written), metadata, written)
        return _load_result(metadata, written)

    def drop(self, who: CatalogCaller, name: TableKey) -> None:
        """Remove a view; like Polaris, refuse it where its metadata would have to be deleted and may not."""
        self._entities.view(name)
        self._access.require(who, "DROP_VIEW", self._entities.path(*name, kind=VIEW))
        if self._warehouse.flag(PURGE_VIEWS, default=True) and not self._warehouse.flag(ALLOW_PURGE):
            raise purge_not_enabled(name[1])
        self._entities.drop(name, VIEW)

    def rename(self, who: CatalogCaller, source: TableKey, destination: TableKey) -> None:
        check_names(*destination[0], destination[1])
        self._entities.check_rename(source, destination, VIEW)
        path = self._entities.path(*source, kind=VIEW)
        self._access.require(who, "RENAME_VIEW", path, self._entities.path(destination[0]))
        self._entities.rename(source, destination, VIEW)


def _load_result(metadata: JsonObject, location: str) -> JsonObject:
    return {"metadata-location": location, "metadata": metadata, "config": {}}
