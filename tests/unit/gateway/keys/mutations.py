"""One request for each mutation of the catalog, what must be there before it, and what shows its effect."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from delegation.gateway.messages import CatalogAnswer, CatalogRequest, Upstream, error_answer, json_answer
from tests.unit.gateway.keys.stand_in import VEND, KeyedCatalog

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 7, "name": "id", "required": False, "type": "long"}]}
VIEW_VERSION = {
    "version-id": 1,
    "timestamp-ms": 1_763_812_800_123,
    "schema-id": 0,
    "summary": {"engine-name": "spark"},
    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    "default-namespace": ["ns"],
}
SELECT_2 = [{"type": "sql", "sql": "SELECT 2", "dialect": "spark"}]
SNAPSHOT = {
    "snapshot-id": 6_000_000_000_000_000_001,
    "sequence-number": 1,
    "timestamp-ms": 1_700_000_000_000,
    "manifest-list": "s3://lake/tables/ns/t/metadata/snap-1.avro",
    "summary": {"operation": "append"},
}


@dataclass(frozen=True)
class Case:
    """`effects` returns how often the mutation was applied, from the catalog's state.

    `shows`: the state shows that it was applied; `proves`: the state proves that it was not.
    """

    name: str
    request: Callable[[KeyedCatalog], CatalogRequest]
    prepare: Callable[[KeyedCatalog], None]
    effects: Callable[[KeyedCatalog], int]
    statuses: frozenset[int] = frozenset({200, 204})
    shows: bool = True
    proves: bool = False

    def __str__(self) -> str:
        return self.name


def exists(world: KeyedCatalog, path: str) -> bool:
    return world.direct("HEAD", path).is_success


def there(path: str) -> Callable[[KeyedCatalog], int]:
    return lambda world: int(exists(world, path))


def gone(path: str) -> Callable[[KeyedCatalog], int]:
    return lambda world: int(not exists(world, path))


def nothing(_world: KeyedCatalog) -> None:
    """Prepare nothing."""


def metadata(world: KeyedCatalog, name: str = "t") -> dict[str, Any]:
    return world.document(f"namespaces/ns/tables/{name}")["metadata"]


def namespace(world: KeyedCatalog) -> None:
    assert world.direct("POST", "namespaces", {"namespace": ["ns"], "properties": {"a": "1", "gone": "1"}}).is_success


def table(world: KeyedCatalog, name: str = "t") -> None:
    if not exists(world, "namespaces/ns"):
        namespace(world)
    assert world.direct("POST", "namespaces/ns/tables", {"name": name, "schema": SCHEMA}).is_success


def two_tables(world: KeyedCatalog) -> None:
    table(world)
    table(world, "u")


def view(world: KeyedCatalog) -> None:
    namespace(world)
    assert world.direct("POST", "namespaces/ns/views", view_request()).is_success


class RegistersViews:
    """The catalog, which also registers views (Iceberg REST Catalog API, registerView); Polaris 1.7 does not."""

    def __init__(self, catalog: Upstream) -> None:
        self._catalog = catalog
        self.views: dict[str, dict[str, Any]] = {}

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """See Upstream.send."""
        found = self.views.get(request.path)
        if request.path.endswith("/register-view"):
            body = json.loads(request.body)
            path = f"{request.path.removesuffix('register-view')}views/{body['name']}"
            if path in self.views:
                return error_answer(409, "AlreadyExistsException", "View already exists")
            found = {"metadata-location": body["metadata-location"], "metadata": {"view-uuid": "u"}}
            self.views[path] = found
        elif found is None:
            return self._catalog.send(request, timeout=timeout)
        return CatalogAnswer(204) if request.method == "HEAD" else json_answer(200, found)


class UnregistersTables:
    """The catalog, which also unregisters tables (Iceberg REST Catalog API, unregisterTable); Polaris does not."""

    def __init__(self, catalog: Upstream) -> None:
        self._catalog = catalog

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """See Upstream.send."""
        table, _, last = request.path.rpartition("/")
        if last != "unregister":
            return self._catalog.send(request, timeout=timeout)
        found = self._catalog.send(replace(request, method="GET", path=table, body=b""), timeout=timeout)
        if not found.is_success:
            return found
        self._catalog.send(replace(request, method="DELETE", path=table, body=b""), timeout=timeout)
        document = json.loads(found.body)
        return json_answer(200, {name: document[name] for name in ("metadata-location", "metadata")})


def catalog_that_unregisters_tables(world: KeyedCatalog) -> None:
    table(world)
    world.upstream = UnregistersTables(world.upstream)


def catalog_that_registers_views(world: KeyedCatalog) -> None:
    namespace(world)
    world.upstream = RegistersViews(world.upstream)


def dropped_table(world: KeyedCatalog) -> None:
    table(world)
    world.registered = world.document("namespaces/ns/tables/t")["metadata-location"]
    assert world.direct("DELETE", "namespaces/ns/tables/t").is_success


def view_request() -> dict[str, Any]:
    return {"name": "v", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}


def commit_request(world: KeyedCatalog, name: str = "t", *updates: Any) -> dict[str, Any]:
    """A commit with what every client asserts of a table that exists."""
    found = metadata(world, name)
    current = found["current-snapshot-id"]
    added = {**SNAPSHOT, "snapshot-id": SNAPSHOT["snapshot-id"] + (name != "t")}
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": added["snapshot-id"]}
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": found["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None if current == -1 else current},
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": found["last-column-id"]},
        ],
        "updates": list(updates) or [{"action": "add-snapshot", "snapshot": added}, ref],
    }


def staged(world: KeyedCatalog) -> None:
    namespace(world)
    body = {"name": "t", "schema": SCHEMA, "stage-create": True}
    world.staged = json.loads(world.direct("POST", "namespaces/ns/tables", body).body)["metadata"]


def staged_commit(world: KeyedCatalog) -> dict[str, Any]:
    made = world.staged
    updates = [
        {"action": "assign-uuid", "uuid": made["table-uuid"]},
        {"action": "set-location", "location": made["location"]},
        {"action": "add-schema", "schema": made["schemas"][0], "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    return {"requirements": [{"type": "assert-create"}], "updates": updates}


def versions(world: KeyedCatalog, name: str = "t") -> int:
    """Commits to a table since its creation."""
    return len(metadata(world, name).get("metadata-log", []))


RENAME = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "new"}}
RENAME_VIEW = {"source": {"namespace": ["ns"], "name": "v"}, "destination": {"namespace": ["ns"], "name": "new"}}
ADD_COLUMN = {
    "type": "struct",
    "schema-id": 1,
    "fields": [
        *({**each, "id": 1} for each in SCHEMA["fields"]),
        {"id": 2, "name": "b", "required": False, "type": "int"},
    ],
}
KEY = {"Idempotency_Key": "0191c0de-0000-7000-8000-000000000001"}


def sent(
    method: str, path: str, body: Any = None, query: str = "", **headers: str
) -> Callable[[KeyedCatalog], CatalogRequest]:
    def made(world: KeyedCatalog) -> CatalogRequest:
        content = body(world) if callable(body) else body
        return world.request(method, path, content, query=query, **KEY, **headers)

    return made


TABLES, TABLE, VIEW = "namespaces/ns/tables", "namespaces/ns/tables/t", "namespaces/ns/views/v"


def registration(world: KeyedCatalog) -> dict[str, Any]:
    return {"name": "t", "metadata-location": world.registered}


def schema_change(world: KeyedCatalog) -> dict[str, Any]:
    added = {"action": "add-schema", "schema": ADD_COLUMN, "last-column-id": 2}
    current = {"action": "set-current-schema", "schema-id": -1}
    return commit_request(world, "t", added, current, {"action": "set-properties", "updates": {"x": "y"}})


def two_commits(world: KeyedCatalog) -> dict[str, Any]:
    second = commit_request(world, "u", {"action": "set-properties", "updates": {"x": "y"}})
    changes = {"t": commit_request(world), "u": second}
    return {"table-changes": [{"identifier": {"namespace": ["ns"], "name": name}, **changes[name]} for name in changes]}


def view_replacement(world: KeyedCatalog) -> dict[str, Any]:
    uuid = world.document(VIEW)["metadata"]["view-uuid"]
    version = {**VIEW_VERSION, "version-id": 2, "timestamp-ms": 9, "representations": SELECT_2}
    return {
        "requirements": [{"type": "assert-view-uuid", "uuid": uuid}],
        "updates": [
            {"action": "add-view-version", "view-version": version},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }


CREATE = {"name": "t", "schema": SCHEMA}
CASES = [
    Case(
        "create namespace",
        sent("POST", "namespaces", {"namespace": ["ns"], "properties": {"p": "1"}}),
        nothing,
        there("namespaces/ns"),
    ),
    Case("drop namespace", sent("DELETE", "namespaces/ns"), namespace, gone("namespaces/ns")),
    Case(
        "set properties",
        sent("POST", "namespaces/ns/properties", {"updates": {"a": "2"}}),
        namespace,
        lambda world: int(world.document("namespaces/ns")["properties"]["a"] == "2"),
    ),
    Case(
        "remove properties",
        sent("POST", "namespaces/ns/properties", {"removals": ["gone", "never"]}),
        namespace,
        lambda world: int("gone" not in world.document("namespaces/ns")["properties"]),
    ),
    Case("create table", sent("POST", TABLES, {**CREATE, "properties": {"p": "1"}}, **VEND), namespace, there(TABLE)),
    Case(
        "staged create",
        sent("POST", TABLES, {**CREATE, "stage-create": True}, **VEND),
        namespace,
        gone(TABLE),
        proves=True,
    ),
    Case("commit of a staged table", sent("POST", TABLE, staged_commit), staged, there(TABLE)),
    Case("register", sent("POST", "namespaces/ns/register", registration, **VEND), dropped_table, there(TABLE)),
    Case(
        "register view",
        sent("POST", "namespaces/ns/register-view", {"name": "v", "metadata-location": "s3://lake/v/metadata/1.json"}),
        catalog_that_registers_views,
        lambda world: len(world.upstream.views),
    ),
    Case("append", sent("POST", TABLE, commit_request), table, versions, proves=True),
    Case("schema change", sent("POST", TABLE, schema_change), table, versions, proves=True),
    Case(
        "commit transaction",
        sent("POST", "transactions/commit", two_commits),
        two_tables,
        lambda world: max(versions(world), versions(world, "u")),
        proves=True,
    ),
    Case("drop table", sent("DELETE", TABLE, query="purgeRequested=false"), table, gone(TABLE), shows=False),
    Case(
        "unregister table",
        sent("POST", f"{TABLE}/unregister"),
        catalog_that_unregisters_tables,
        gone(TABLE),
        shows=False,
    ),
    Case("rename table", sent("POST", "tables/rename", RENAME), table, there("namespaces/ns/tables/new")),
    Case("create view", sent("POST", "namespaces/ns/views", view_request()), namespace, there(VIEW)),
    Case(
        "replace view",
        sent("POST", VIEW, view_replacement),
        view,
        lambda world: len(world.document(VIEW)["metadata"]["versions"]) - 1,
        proves=True,
    ),
    Case("drop view", sent("DELETE", VIEW), view, gone(VIEW), shows=False),
    Case("rename view", sent("POST", "views/rename", RENAME_VIEW), view, there("namespaces/ns/views/new")),
]
