"""The routes of Iceberg's REST specification for namespaces and tables, with Polaris' statuses."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from werkzeug.wrappers import Request, Response

from delegation.gateway.forwarding import duration_text
from infra.local.catalog import errors
from infra.local.catalog.access import AccessControl, CatalogCaller
from infra.local.catalog.entities import CatalogEntities, Namespace, dotted
from infra.local.catalog.layout import BASE_LOCATION, LOCATION, Warehouse, check_names
from infra.local.catalog.policies import ENDPOINTS as POLICY_ENDPOINTS
from infra.local.catalog.tables import LocalTables, LocalViews


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
        self._ends[table_uuid, key] = self._clock() + self.lifetime


def key_of(header: str | None) -> str | None:
    """Return a request's key, None without one; raises RestError for one that is no UUID."""
    if header is None or not header.strip():
        return None
    try:
        return str(UUID(header.strip()))
    except ValueError:
        raise errors.RestError(
            400, "InvalidIdempotencyKey", "Invalid Idempotency-Key header; expected a UUID"
        ) from None


SEPARATOR = "\x1f"
# The endpoints in /v1/config; as in Polaris, the credentials endpoint is not listed.
_METHODS = {
    "namespaces": "GET POST",
    "namespaces/{namespace}": "GET HEAD DELETE",
    "namespaces/{namespace}/properties": "POST",
    "namespaces/{namespace}/tables": "GET POST",
    "namespaces/{namespace}/register": "POST",
    "namespaces/{namespace}/tables/{table}": "GET HEAD POST DELETE",
    "namespaces/{namespace}/tables/{table}/metrics": "POST",
    "tables/rename": "POST",
    "namespaces/{namespace}/views": "GET POST",
    "namespaces/{namespace}/views/{view}": "GET HEAD POST DELETE",
    "views/rename": "POST",
    "transactions/commit": "POST",
}
ENDPOINTS = (
    *(f"{method} /v1/{{prefix}}/{path}" for path, methods in _METHODS.items() for method in methods.split()),
    *POLICY_ENDPOINTS,
)


@dataclass(frozen=True, eq=False)
class CatalogRoutes:
    """Answers requests of Iceberg's REST API; every method may raise RestError."""

    _warehouse: Warehouse
    _entities: CatalogEntities
    _tables: LocalTables
    _views: LocalViews
    _access: AccessControl
    _keys: TableKeys | None

    def answer(self, who: CatalogCaller, request: Request, parts: list[str]) -> Response:
        """Answer a request to `v1/` and `parts`."""
        key = None if self._keys is None else key_of(request.headers.get("Idempotency-Key"))
        if (request.method, parts) == ("GET", ["config"]):
            return errors.json_answer(200, self._config(request.args.get("warehouse")))
        if parts[0] != self._warehouse.name:
            raise _unknown_warehouse(parts[1:])
        match parts[1:]:
            case ["namespaces"]:
                return self._namespaces(who, request)
            case ["namespaces", namespace, *rest]:
                levels = tuple(namespace.split(SEPARATOR))
                if key is not None and request.method == "POST" and rest[:1] == ["tables"] and len(rest) < 3:
                    return self._keyed(who, request, levels, rest, key)
                return self._in_namespace(who, request, levels, rest) if rest else self._namespace(who, request, levels)
            case ["tables" | "views" as kind, "rename"] if request.method == "POST":
                source, destination = (_identifier(errors.body_of(request)[end]) for end in ("source", "destination"))
                (self._tables if kind == "tables" else self._views).rename(who, source, destination)
                return errors.empty(204)
            case ["transactions", "commit"] if request.method == "POST":
                self._tables.commit_all(who, errors.body_of(request)["table-changes"])
                return errors.empty(204)
            case _:
                return errors.no_such_route(request.path)

    def _keyed(self, who: CatalogCaller, request: Request, namespace: Namespace, rest: list[str], key: str) -> Response:
        """Create a table, or commit to one, unless that was done with the key: then return the table."""
        if self._keys is None:
            return self._in_namespace(who, request, namespace, rest)
        body, vend = errors.body_of(request), _vends(request.headers.get("X-Iceberg-Access-Delegation", ""))
        name = (namespace, str(body["name"]) if len(rest) == 1 else rest[1])
        entry = self._entities.find(name)
        if entry is not None and self._keys.has(entry.table_uuid, key):
            operation, parts = ("CREATE_TABLE_DIRECT", (namespace,)) if len(rest) == 1 else ("UPDATE_TABLE", name)
            self._access.require(who, operation, self._entities.path(*parts))
            return _loaded(self._tables.load(who, name, vend=vend))
        answer = self._in_namespace(who, request, namespace, rest)
        made = self._entities.find(name)
        is_staged = any(each["type"] == "assert-create" for each in body.get("requirements") or ())
        if made is not None and made is not entry and not is_staged:
            self._keys.record(made.table_uuid, key)
        return answer

    def _config(self, warehouse: str | None) -> dict[str, Any]:
        if not warehouse:
            raise errors.bad_request("Please specify a warehouse")
        if warehouse != self._warehouse.name:
            raise errors.RestError(404, "NotFoundException", f"Unable to find warehouse {warehouse}")
        return {
            "defaults": {BASE_LOCATION: self._warehouse.location},
            "overrides": {"prefix": self._warehouse.name, "namespace-separator": "%1F"},
            "endpoints": list(ENDPOINTS),
            **({} if self._keys is None else {"idempotency-key-lifetime": duration_text(self._keys.lifetime)}),
        }

    def _namespaces(self, who: CatalogCaller, request: Request) -> Response:
        if request.method == "POST":
            body = errors.body_of(request)
            namespace, properties = tuple(body["namespace"]), body.get("properties") or {}
            check_names(*namespace)
            if self._entities.has_namespace(namespace):
                # Polaris answers 404 and 409 before it checks privileges.
                raise errors.already_exists(f"Namespace {dotted(namespace)}")
            self._access.require(who, "CREATE_NAMESPACE", self._entities.path(namespace[:-1]))
            self._tables.layout.check_namespace(namespace, properties)
            # Each namespace has a location, with a slash at its end.
            location = properties.get(LOCATION) or f"{self._tables.layout.of_namespace(namespace[:-1])}/{namespace[-1]}"
            properties = {**properties, LOCATION: f"{location.rstrip('/')}/"}
            self._entities.create_namespace(namespace, properties)
            return errors.json_answer(200, {"namespace": namespace, "properties": properties})
        if request.method != "GET":
            return errors.method_not_allowed()
        parent = request.args.get("parent", "")
        levels = tuple(parent.split(SEPARATOR)) if parent else ()
        self._access.require(who, "LIST_NAMESPACES", self._entities.path(levels))
        return errors.json_answer(200, {"namespaces": self._entities.list_namespaces(levels)})

    def _namespace(self, who: CatalogCaller, request: Request, namespace: Namespace) -> Response:
        path = self._entities.path(namespace)
        match request.method:
            case "DELETE":
                self._access.require(who, "DROP_NAMESPACE", path)
                self._entities.drop_namespace(namespace)
                return errors.empty(204)
            case "HEAD":
                self._access.require(who, "NAMESPACE_EXISTS", path)
                return errors.empty(204)
            case "GET":
                self._access.require(who, "LOAD_NAMESPACE_METADATA", path)
                return errors.json_answer(
                    200, {"namespace": namespace, "properties": self._entities.namespace(namespace)}
                )
            case _:
                return errors.method_not_allowed()

    def _in_namespace(self, who: CatalogCaller, request: Request, namespace: Namespace, rest: list[str]) -> Response:
        vend = _vends(request.headers.get("X-Iceberg-Access-Delegation", ""))
        match (request.method, rest):
            case ("POST", ["properties"]):
                return self._update_properties(who, namespace, errors.body_of(request))
            case ("GET", ["tables"]):
                self._access.require(who, "LIST_TABLES", self._entities.path(namespace))
                names = self._entities.names(namespace)
                return errors.json_answer(
                    200, {"identifiers": [{"namespace": namespace, "name": name} for name in names]}
                )
            case ("POST", ["tables"]):
                body = errors.body_of(request)
                return _loaded(self._tables.create(who, (namespace, body["name"]), body, vend=vend))
            case ("POST", ["register"]):
                body = errors.body_of(request)
                name = (namespace, body["name"])
                return _loaded(self._tables.register(who, name, body["metadata-location"], vend=vend))
            case (method, ["tables", table, *more]):
                return self._table(who, request, (namespace, table), [method, *more], vend=vend)
            case (method, ["views", *more]):
                return self._view(who, request, namespace, [method, *more])
            case _:
                return errors.no_such_route(request.path)

    def _update_properties(self, who: CatalogCaller, namespace: Namespace, body: Mapping[str, Any]) -> Response:
        self._access.require(who, "UPDATE_NAMESPACE_PROPERTIES", self._entities.path(namespace))
        removals, updates = list(body.get("removals") or []), dict(body.get("updates") or {})
        if removals and updates:
            # Polaris makes two changes, and the second one meets the first: only the updates are applied.
            self._entities.update_namespace(namespace, [], updates)
            raise errors.commit_conflict(f"The namespace {dotted(namespace)} was changed concurrently, please retry")
        missing = self._entities.update_namespace(namespace, removals, updates)
        removed = [name for name in removals if name not in missing]
        return errors.json_answer(200, {"updated": list(updates), "removed": removed, "missing": missing})

    def _view(self, who: CatalogCaller, request: Request, namespace: Namespace, what: list[str]) -> Response:
        match what:
            case ["GET"]:
                names = self._views.list(who, namespace)
                return errors.json_answer(
                    200, {"identifiers": [{"namespace": namespace, "name": name} for name in names]}
                )
            case ["POST"]:
                body = errors.body_of(request)
                return errors.json_answer(200, self._views.create(who, (namespace, body["name"]), body))
            case ["GET", view]:
                return errors.json_answer(200, self._views.load(who, (namespace, view)))
            case ["HEAD", view]:
                self._views.exists(who, (namespace, view))
                return errors.empty(204)
            case ["POST", view]:
                return errors.json_answer(200, self._views.replace(who, (namespace, view), errors.body_of(request)))
            case ["DELETE", view]:
                self._views.drop(who, (namespace, view))
                return errors.empty(204)
            case _:
                return errors.method_not_allowed()

    def _table(
        self, who: CatalogCaller, request: Request, name: tuple[Namespace, str], what: list[str], *, vend: bool
    ) -> Response:
        match what:
            case ["GET"]:
                etag = _etag(self._tables.metadata_location(who, name, vend=vend))
                if request.if_none_match.contains_weak(etag):
                    return _with_etag(errors.empty(304), etag)
                snapshots = request.args.get("snapshots", "all")
                return _loaded(self._tables.load(who, name, vend=vend, snapshots=snapshots))
            case ["HEAD"]:
                self._tables.exists(who, name)
                return errors.empty(204)
            case ["POST"]:
                return errors.json_answer(200, self._tables.commit(who, name, errors.body_of(request)))
            case ["DELETE"]:
                # pyiceberg sends "True" or "False".
                purge = request.args.get("purgeRequested", "false").lower() == "true"
                self._tables.drop(who, name, purge=purge)
                return errors.empty(204)
            case ["GET", "credentials"]:
                return errors.json_answer(200, self._tables.credentials(who, name))
            case ["POST", "metrics"]:
                self._tables.report(who, name, errors.body_of(request))
                return errors.empty(204)
            case _:
                return errors.method_not_allowed()


def _loaded(result: Mapping[str, Any]) -> Response:
    """Return a LoadTableResult with the ETag of its metadata file, which a staged table does not have."""
    response, location = errors.json_answer(200, result), result.get("metadata-location")
    return response if location is None else _with_etag(response, _etag(location))


def _etag(metadata_location: str) -> str:
    return hashlib.sha256(metadata_location.encode()).hexdigest()


def _with_etag(response: Response, etag: str) -> Response:
    response.set_etag(etag, weak=True)
    return response


def _vends(modes: str) -> bool:
    """Return whether the header X-Iceberg-Access-Delegation asks for credentials; unknown modes are ignored."""
    known = {mode.strip() for mode in modes.split(",")}
    if "vended-credentials" in known or modes.strip().lower() == "true":
        return True
    if "remote-signing" in known:
        raise errors.invalid_argument("Unsupported access delegation mode: remote-signing")
    return False


def _unknown_warehouse(parts: list[str]) -> errors.RestError:
    """Return the answer to a path in an unknown catalog, in which no namespace and no table is found either."""
    match parts:
        case ["namespaces", namespace, "tables", table, *_]:
            return errors.no_such_table(".".join((*namespace.split(SEPARATOR), table)))
        case ["namespaces", namespace, *_]:
            return errors.no_such_namespace(".".join(namespace.split(SEPARATOR)))
        case _:
            return errors.RestError(404, "NotFoundException", "Unable to find warehouse")


def _identifier(value: Mapping[str, Any]) -> tuple[Namespace, str]:
    return tuple(value["namespace"]), str(value["name"])
