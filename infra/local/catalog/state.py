"""The catalog's namespaces and tables, in memory under one lock."""

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from infra.local.catalog.errors import (
    RestError,
    already_exists,
    bad_request,
    commit_failed,
    no_such_namespace,
    no_such_table,
    no_such_view,
)
from infra.local.catalog.principals.access import CATALOG_ID, ROOT_ID

Namespace = tuple[str, ...]
TableKey = tuple[Namespace, str]
_FIRST_ID = 1_000_000


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table: its current metadata file, its UUID, its location, and all locations that it uses."""

    metadata_location: str
    table_uuid: str
    location: str
    used: frozenset[str]


def dotted(namespace: Namespace, name: str = "") -> str:
    return ".".join((*namespace, name) if name else namespace)


def namespace_not_empty(namespace: Namespace) -> RestError:
    """Return the answer to the drop of a namespace that has something in it."""
    return RestError(409, "NamespaceNotEmptyException", f"Namespace is not empty: {dotted(namespace)}")


class CatalogState:
    """The namespaces and tables; every method is atomic and may raise RestError."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._namespaces: dict[Namespace, dict[str, str]] = {}
        self._tables: dict[TableKey, CatalogEntry] = {}
        # A view and a table cannot share a name; the value is the view's current metadata file.
        self._views: dict[TableKey, str] = {}
        # The id of each namespace (None for the table) and table: a grant belongs to the entity, not to the name.
        self._ids: dict[tuple[Namespace, str | None], int] = {}
        self._next_id = itertools.count(_FIRST_ID)

    def path(self, namespace: Namespace, table: str | None = None, *, is_view: bool = False) -> tuple[int, ...]:
        """Return the ids from the root to a namespace, a table or a view; raise 404 for an unknown one."""
        with self._lock:
            if table is not None and is_view:
                self._require_view((namespace, table))
            elif table is not None:
                self._require_table((namespace, table))
            elif namespace:
                self._require_namespace(namespace)
            levels = [self._ids[namespace[:depth], None] for depth in range(1, len(namespace) + 1)]
            return (ROOT_ID, CATALOG_ID, *levels, *([] if table is None else [self._ids[namespace, table]]))

    def named(self, entity_id: int) -> tuple[Namespace, str | None] | None:
        """Return the namespace and the table of an id, None for one that was dropped."""
        with self._lock:
            return next((name for name, known in self._ids.items() if known == entity_id), None)

    def has_namespace(self, namespace: Namespace) -> bool:
        with self._lock:
            return namespace in self._namespaces

    def create_namespace(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        with self._lock:
            if not namespace or not all(namespace):
                raise bad_request("A namespace needs at least one level, and no level may be empty")
            if namespace in self._namespaces:
                raise already_exists(f"Namespace {dotted(namespace)}")
            if len(namespace) > 1:
                self._require_namespace(namespace[:-1])
            self._namespaces[namespace] = dict(properties)
            self._ids[namespace, None] = next(self._next_id)

    def list_namespaces(self, parent: Namespace) -> list[Namespace]:
        with self._lock:
            if parent:
                self._require_namespace(parent)
            depth = len(parent) + 1
            return sorted(known for known in self._namespaces if len(known) == depth and known[:-1] == parent)

    def namespace(self, namespace: Namespace) -> dict[str, str]:
        with self._lock:
            return dict(self._require_namespace(namespace))

    def update_namespace(self, namespace: Namespace, removals: list[str], updates: Mapping[str, str]) -> list[str]:
        """Return the removals that were not set."""
        with self._lock:
            properties = self._require_namespace(namespace)
            missing = [name for name in removals if name not in properties]
            for name in removals:
                properties.pop(name, None)
            properties.update(updates)
            return missing

    def drop_namespace(self, namespace: Namespace) -> None:
        with self._lock:
            self._require_namespace(namespace)
            children = any(known != namespace and known[: len(namespace)] == namespace for known in self._namespaces)
            if children or any(own == namespace for own, _ in (*self._tables, *self._views)):
                raise namespace_not_empty(namespace)
            del self._namespaces[namespace]
            del self._ids[namespace, None]

    def list_tables(self, namespace: Namespace) -> list[str]:
        with self._lock:
            self._require_namespace(namespace)
            return sorted(name for own, name in self._tables if own == namespace)

    def locations(self, namespace: Namespace) -> list[tuple[str, str]]:
        """Return name and location of each table of the namespace."""
        with self._lock:
            return [(name, entry.location) for (own, name), entry in self._tables.items() if own == namespace]

    def find(self, name: TableKey) -> CatalogEntry | None:
        with self._lock:
            return self._tables.get(name)

    def get(self, name: TableKey) -> CatalogEntry:
        with self._lock:
            return self._require_table(name)

    def add(self, name: TableKey, entry: CatalogEntry) -> None:
        """Add a table; raise 404 if its namespace does not exist, 409 if the name does."""
        with self._lock:
            self._require_namespace(name[0])
            self._require_free(name)
            self._tables[name] = entry
            self._ids[name] = next(self._next_id)

    def swap(self, name: TableKey, old: CatalogEntry, new: CatalogEntry) -> None:
        """Replace the table's entry if it still is `old`; raise 409 CommitFailedException otherwise."""
        with self._lock:
            if self._require_table(name) != old:
                raise commit_failed(f"The table changed during the commit: {dotted(*name)}")
            self._tables[name] = new

    def swap_all(self, changes: Mapping[TableKey, tuple[CatalogEntry, CatalogEntry]]) -> None:
        """Replace several tables' entries, each (old, new), or none of them; raise as `swap` does."""
        with self._lock:
            for name, (old, _) in changes.items():
                if self._require_table(name) != old:
                    raise commit_failed(f"The table changed during the commit: {dotted(*name)}")
            self._tables.update({name: new for name, (_, new) in changes.items()})

    def rename(self, source: TableKey, destination: TableKey) -> None:
        with self._lock:
            self._check_rename(source, destination)
            self._tables[destination] = self._tables.pop(source)
            self._ids[destination] = self._ids.pop(source)

    def check_rename(self, source: TableKey, destination: TableKey) -> None:
        """Raise what `rename` would raise."""
        with self._lock:
            self._check_rename(source, destination)

    def drop(self, name: TableKey) -> None:
        with self._lock:
            self._require_table(name)
            del self._tables[name]
            del self._ids[name]

    def list_views(self, namespace: Namespace) -> list[str]:
        with self._lock:
            self._require_namespace(namespace)
            return sorted(name for own, name in self._views if own == namespace)

    def view(self, name: TableKey) -> str:
        """Return a view's metadata file."""
        with self._lock:
            return self._require_view(name)

    def has_view(self, name: TableKey) -> bool:
        with self._lock:
            return name in self._views

    def add_view(self, name: TableKey, metadata_location: str) -> None:
        """Add a view; raise 404 if its namespace does not exist, 409 if the name does."""
        with self._lock:
            self._require_namespace(name[0])
            self._require_free(name)
            self._views[name] = metadata_location
            self._ids[name] = next(self._next_id)

    def swap_view(self, name: TableKey, old: str, new: str) -> None:
        """Replace the view's metadata file if it still is `old`; raise 409 CommitFailedException otherwise."""
        with self._lock:
            if self._require_view(name) != old:
                raise commit_failed(f"The view changed during the commit: {dotted(*name)}")
            self._views[name] = new

    def check_rename_view(self, source: TableKey, destination: TableKey) -> None:
        """Raise what `rename_view` would raise."""
        with self._lock:
            self._check_rename_view(source, destination)

    def rename_view(self, source: TableKey, destination: TableKey) -> None:
        with self._lock:
            self._check_rename_view(source, destination)
            self._views[destination] = self._views.pop(source)
            self._ids[destination] = self._ids.pop(source)

    def drop_view(self, name: TableKey) -> None:
        with self._lock:
            self._require_view(name)
            del self._views[name]
            del self._ids[name]

    def _check_rename_view(self, source: TableKey, destination: TableKey) -> None:
        self._require_view(source)
        self._require_namespace(destination[0])
        self._require_free(destination)

    def _check_rename(self, source: TableKey, destination: TableKey) -> None:
        self._require_table(source)
        self._require_namespace(destination[0])
        self._require_free(destination)

    def _require_free(self, name: TableKey) -> None:
        if name in self._tables:
            raise already_exists(f"Table {dotted(*name)}")
        if name in self._views:
            raise already_exists(f"View {dotted(*name)}")

    def _require_view(self, name: TableKey) -> str:
        if name not in self._views:
            raise no_such_view(dotted(*name))
        return self._views[name]

    def _require_namespace(self, namespace: Namespace) -> dict[str, str]:
        if namespace not in self._namespaces:
            raise no_such_namespace(dotted(namespace))
        return self._namespaces[namespace]

    def _require_table(self, name: TableKey) -> CatalogEntry:
        # Also if the namespace does not exist: Spark queries `ns.table.files` so and expects NoSuchTableException.
        if name not in self._tables:
            raise no_such_table(dotted(*name))
        return self._tables[name]
