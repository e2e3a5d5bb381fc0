"""The catalog's namespaces, tables and views, and the rules between them; kept in a CatalogState."""

from collections.abc import Mapping
from typing import Any, Final

from infra.local.catalog import errors
from infra.local.catalog.access import CATALOG_ID, ROOT_ID
from infra.local.catalog.state import CatalogState, Key, Records, atomic
from polaris_persistence.objects.objects import PersistedModel

Namespace = tuple[str, ...]
TableKey = tuple[Namespace, str]
NAMESPACE: Final = "namespace"
TABLE: Final = "table"
VIEW: Final = "view"
POLICY: Final = "policy"


class CatalogEntity(PersistedModel):
    """What has a name; no other entity ever gets its id, because a grant belongs to the entity and not to the name."""

    id: int = 0


class CatalogNamespace(CatalogEntity):
    properties: dict[str, Any]


class CatalogEntry(CatalogEntity):
    """A table: its current metadata file, its UUID, its location, and all locations that it uses."""

    metadata_location: str
    table_uuid: str
    location: str
    used: tuple[str, ...]


class CatalogView(CatalogEntity):
    metadata_location: str


def dotted(namespace: Namespace, name: str = "") -> str:
    return ".".join((*namespace, name) if name else namespace)


def in_namespace(kind: str, namespace: Namespace, *name: str) -> Key:
    """Return the key of an entity in a namespace, or the prefix of all of a kind there."""
    # The depth first: what lies in a namespace below begins with other elements.
    return (kind, str(len(namespace)), *namespace, *name)


def _name_of(key: Key) -> tuple[Namespace, str]:
    depth = int(key[1])
    return key[2 : 2 + depth], key[2 + depth]


def _of_namespace(namespace: Namespace) -> Key:
    return in_namespace(NAMESPACE, namespace[:-1], namespace[-1])


class CatalogEntities:
    """The namespaces, tables and views; every method is atomic and may raise RestError."""

    def __init__(self, state: CatalogState) -> None:
        self._state = state

    @atomic
    def path(
        self, records: Records, namespace: Namespace, table: str | None = None, *, kind: str = TABLE
    ) -> tuple[int, ...]:
        """Return the ids from the root to a namespace, a table or a view; raise 404 for an unknown one."""
        last: tuple[int, ...] = ()
        if table is not None:
            last = (_require(records, (namespace, table), kind).id,)
        levels = [_require_namespace(records, namespace[:depth]).id for depth in range(1, len(namespace) + 1)]
        return (ROOT_ID, CATALOG_ID, *levels, *last)

    @atomic
    def named(self, records: Records, entity_id: int) -> tuple[Namespace, str | None] | None:
        """Return the namespace and the table or view of an id, None for one that was dropped."""
        models: dict[str, type[CatalogEntity]] = {NAMESPACE: CatalogNamespace, TABLE: CatalogEntry, VIEW: CatalogView}
        for kind, model in models.items():
            for key in records.keys((kind,)):
                record = records.get(key, model)
                if record is not None and record.id == entity_id:
                    namespace, name = _name_of(key)
                    return ((*namespace, name), None) if kind == NAMESPACE else (namespace, name)
        return None

    @atomic
    def has_namespace(self, records: Records, namespace: Namespace) -> bool:
        return _find_namespace(records, namespace) is not None

    @atomic
    def create_namespace(self, records: Records, namespace: Namespace, properties: Mapping[str, str]) -> None:
        if not namespace or not all(namespace):
            raise errors.bad_request("A namespace needs at least one level, and no level may be empty")
        if _find_namespace(records, namespace) is not None:
            raise errors.already_exists(f"Namespace {dotted(namespace)}")
        if len(namespace) > 1:
            _require_namespace(records, namespace[:-1])
        new = CatalogNamespace(id=records.new_id(), properties=dict(properties))
        records.put(_of_namespace(namespace), new)

    @atomic
    def list_namespaces(self, records: Records, parent: Namespace) -> list[Namespace]:
        if parent:
            _require_namespace(records, parent)
        return [(*parent, name) for name in _names(records, NAMESPACE, parent)]

    @atomic
    def namespace(self, records: Records, namespace: Namespace) -> dict[str, str]:
        return dict(_require_namespace(records, namespace).properties)

    @atomic
    def update_namespace(
        self, records: Records, namespace: Namespace, removals: list[str], updates: Mapping[str, str]
    ) -> list[str]:
        """Return the removals that were not set."""
        stored = _require_namespace(records, namespace)
        kept = {name: value for name, value in stored.properties.items() if name not in removals}
        records.put(_of_namespace(namespace), stored.model_copy(update={"properties": {**kept, **updates}}))
        return [name for name in removals if name not in stored.properties]

    @atomic
    def drop_namespace(self, records: Records, namespace: Namespace) -> None:
        _require_namespace(records, namespace)
        if any(_names(records, kind, namespace) for kind in (NAMESPACE, TABLE, VIEW, POLICY)):
            raise errors.RestError(409, "NamespaceNotEmptyException", f"Namespace is not empty: {dotted(namespace)}")
        records.remove(_of_namespace(namespace))

    @atomic
    def names(self, records: Records, namespace: Namespace, kind: str = TABLE) -> list[str]:
        _require_namespace(records, namespace)
        return _names(records, kind, namespace)

    @atomic
    def locations(self, records: Records, namespace: Namespace) -> list[tuple[str, str]]:
        """Return name and location of each table of the namespace."""
        names = _names(records, TABLE, namespace)
        return [(name, _require_table(records, (namespace, name)).location) for name in names]

    @atomic
    def find(self, records: Records, name: TableKey) -> CatalogEntry | None:
        return records.get(in_namespace(TABLE, *name), CatalogEntry)

    @atomic
    def get(self, records: Records, name: TableKey) -> CatalogEntry:
        return _require_table(records, name)

    @atomic
    def add(self, records: Records, name: TableKey, entry: CatalogEntry) -> None:
        """Add a table; raise 404 if its namespace does not exist, 409 if the name does."""
        _require_place(records, name)
        records.put(in_namespace(TABLE, *name), entry.model_copy(update={"id": records.new_id()}))

    def swap(self, name: TableKey, old: CatalogEntry, new: CatalogEntry) -> None:
        """Replace the table's entry if it still is `old`; raise 409 CommitFailedException otherwise."""
        self.swap_all({name: (old, new)})

    @atomic
    def swap_all(self, records: Records, changes: Mapping[TableKey, tuple[CatalogEntry, CatalogEntry]]) -> None:
        """Replace several tables' entries, each (old, new), or none of them; raise as `swap` does."""
        for name, (old, new) in changes.items():
            if _require_table(records, name) != old:
                raise errors.commit_failed(f"The table changed during the commit: {dotted(*name)}")
            records.put(in_namespace(TABLE, *name), new.model_copy(update={"id": old.id}))

    @atomic
    def rename(self, records: Records, source: TableKey, destination: TableKey, kind: str = TABLE) -> None:
        entry = _check_rename(records, source, destination, kind)
        records.remove(in_namespace(kind, *source))
        records.put(in_namespace(kind, *destination), entry)

    @atomic
    def check_rename(self, records: Records, source: TableKey, destination: TableKey, kind: str = TABLE) -> None:
        """Raise what `rename` would raise."""
        _check_rename(records, source, destination, kind)

    @atomic
    def drop(self, records: Records, name: TableKey, kind: str = TABLE) -> None:
        _require(records, name, kind)
        records.remove(in_namespace(kind, *name))

    @atomic
    def view(self, records: Records, name: TableKey) -> str:
        return _require_view(records, name).metadata_location

    @atomic
    def has_view(self, records: Records, name: TableKey) -> bool:
        return records.get(in_namespace(VIEW, *name), CatalogView) is not None

    @atomic
    def add_view(self, records: Records, name: TableKey, metadata_location: str) -> None:
        """Add a view; raise 404 if its namespace does not exist, 409 if the name does."""
        _require_place(records, name)
        new = CatalogView(id=records.new_id(), metadata_location=metadata_location)
        records.put(in_namespace(VIEW, *name), new)

    @atomic
    def swap_view(self, records: Records, name: TableKey, old: str, new: str) -> None:
        """Replace the view's metadata file if it still is `old`; raise 409 CommitFailedException otherwise."""
        view = _require_view(records, name)
        if view.metadata_location != old:
            raise errors.commit_failed(f"The view changed during the commit: {dotted(*name)}")
        records.put(in_namespace(VIEW, *name), view.model_copy(update={"metadata_location": new}))


def _check_rename(records: Records, source: TableKey, destination: TableKey, kind: str) -> CatalogEntry | CatalogView:
    entry = _require(records, source, kind)
    _require_place(records, destination)
    return entry


def _require(records: Records, name: TableKey, kind: str) -> CatalogEntry | CatalogView:
    return (_require_view if kind == VIEW else _require_table)(records, name)


def _require_place(records: Records, name: TableKey) -> None:
    _require_namespace(records, name[0])
    if records.get(in_namespace(TABLE, *name), CatalogEntry) is not None:
        raise errors.already_exists(f"Table {dotted(*name)}")
    if records.get(in_namespace(VIEW, *name), CatalogView) is not None:
        raise errors.already_exists(f"View {dotted(*name)}")


def _names(records: Records, kind: str, namespace: Namespace) -> list[str]:
    return [key[-1] for key in records.keys(in_namespace(kind, namespace))]


def _find_namespace(records: Records, namespace: Namespace) -> CatalogNamespace | None:
    return records.get(_of_namespace(namespace), CatalogNamespace) if namespace else None


def _require_namespace(records: Records, namespace: Namespace) -> CatalogNamespace:
    entity = _find_namespace(records, namespace)
    if entity is None:
        raise errors.no_such_namespace(dotted(namespace))
    return entity


def _require_view(records: Records, name: TableKey) -> CatalogView:
    view = records.get(in_namespace(VIEW, *name), CatalogView)
    if view is None:
        raise errors.no_such_view(dotted(*name))
    return view


def _require_table(records: Records, name: TableKey) -> CatalogEntry:
    # Also if the namespace does not exist: Spark queries `ns.table.files` so and expects NoSuchTableException.
    table = records.get(in_namespace(TABLE, *name), CatalogEntry)
    if table is None:
        raise errors.no_such_table(dotted(*name))
    return table
