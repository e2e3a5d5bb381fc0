"""The catalog's HTTP server: routes of the Iceberg REST specification under `/api/catalog`, as in Polaris."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote_plus

from werkzeug.wrappers import Request, Response

from delegation.timestamps import utc_now
from infra.local.catalog.errors import RestError, bad_request
from infra.local.catalog.principals import LocalPrincipal, Principals, Privilege
from infra.local.catalog.state import CatalogState, Namespace
from infra.local.catalog.storage import CredentialVendor, MetadataFiles
from infra.local.catalog.tables import LocalTables, Warehouse
from infra.local.processes.wsgi import WsgiServer
from infra.local.s3.vended_keys import VendedKeys

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sts import STSClient

BASE_PATH = "/api/catalog"
SEPARATOR = "\x1f"
# The endpoints in /v1/config; as in Polaris, the credentials endpoint is not listed.
ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
)


class LocalCatalog:
    """One catalog named `name`, in memory; its tables are stored below `location` (an existing bucket) by default.

    `s3` and `sts` are clients of the emulated AWS with administrator's keys. Clients of the catalog get `s3_endpoint`,
    the S3 front that shares `keys`. Tests grant and revoke privileges through `principals`.
    """

    def __init__(
        self,
        *,
        name: str,
        location: str,
        s3: "S3Client",
        sts: "STSClient",
        keys: VendedKeys,
        s3_endpoint: str,
        region: str,
        principals: Iterable[LocalPrincipal],
        realm: str = "POLARIS",
        allowed_locations: Iterable[str] = (),
        token_lifetime: timedelta = timedelta(hours=1),
        credential_lifetime: timedelta = timedelta(hours=1),
        port: int = 0,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.name = name
        self._realm = realm
        self.principals = Principals(principals, clock=clock, token_lifetime=token_lifetime)
        self._state = CatalogState()
        warehouse = Warehouse(name, location.rstrip("/"), s3_endpoint, region, tuple(allowed_locations))
        vendor = CredentialVendor(sts, keys, clock=clock, lifetime=credential_lifetime)
        self._tables = LocalTables(warehouse, self._state, MetadataFiles(s3), vendor, self.principals)
        self._location = warehouse.location
        self._server = WsgiServer(self, port=port)

    @property
    def url(self) -> str:
        """The `uri` for Iceberg clients."""
        return self._server.url + BASE_PATH

    def start(self) -> Self:
        self._server.start()
        return self

    def stop(self) -> None:
        self._server.stop()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        try:
            response = self._answer(request)
        except RestError as error:
            response = _json(error.status, error.body())
        except (KeyError, TypeError, ValueError) as error:
            # The body does not conform to the specification; the error's text names the field.
            response = _json(400, bad_request(f"Malformed request: {type(error).__name__} {error}").body())
        if request_id := request.headers.get("X-Request-ID"):
            response.headers["X-Request-ID"] = request_id
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        # The raw path, because decoding makes a slash in a name look like one between names.
        path = str(request.environ["REQUEST_URI"]).partition("?")[0]
        version, *parts = [unquote_plus(part) for part in path.removeprefix(f"{BASE_PATH}/").split("/")]
        if version != "v1" or not parts or not path.startswith(f"{BASE_PATH}/"):
            return _not_found(path)
        if request.headers.get("Polaris-Realm", self._realm) != self._realm:
            raise RestError(404, "MissingOrInvalidRealm", "Missing or invalid realm")
        if (request.method, parts) == ("POST", ["oauth", "tokens"]):
            return _json(*self.principals.token(_token_form(request)))
        who = self.principals.of_token((request.headers.get("Authorization") or "").removeprefix("Bearer "))
        if who is None:
            return Response(b"", 401, {"WWW-Authenticate": "Bearer"})
        if (request.method, parts) == ("GET", ["config"]):
            return _json(200, self._config(request.args.get("warehouse")))
        if parts[0] != self.name:
            raise RestError(404, "NotFoundException", f"Unable to find warehouse {parts[0]}")
        match parts[1:]:
            case ["namespaces"]:
                return self._namespaces(who, request)
            case ["namespaces", namespace, *rest]:
                levels = tuple(namespace.split(SEPARATOR))
                return self._in_namespace(who, request, levels, rest) if rest else self._namespace(who, request, levels)
            case ["tables", "rename"] if request.method == "POST":
                source, destination = (_identifier(_body(request)[end]) for end in ("source", "destination"))
                self._tables.rename(who, source, destination)
                return Response(b"", 204)
            case _:
                return _not_found(path)

    def _config(self, warehouse: str | None) -> dict[str, Any]:
        if not warehouse:
            raise bad_request("Please specify a warehouse")
        if warehouse != self.name:
            raise RestError(404, "NotFoundException", f"Unable to find warehouse {warehouse}")
        return {
            "defaults": {"default-base-location": self._location},
            "overrides": {"prefix": self.name, "namespace-separator": "%1F"},
            "endpoints": list(ENDPOINTS),
        }

    def _namespaces(self, who: LocalPrincipal, request: Request) -> Response:
        if request.method == "POST":
            self.principals.require(who, "CREATE_NAMESPACE", Privilege.NAMESPACE_CREATE)
            body = _body(request)
            namespace, properties = tuple(body["namespace"]), body.get("properties") or {}
            self._state.create_namespace(namespace, properties)
            return _json(200, {"namespace": namespace, "properties": properties})
        if request.method != "GET":
            return _method_not_allowed()
        self.principals.require(who, "LIST_NAMESPACES", Privilege.NAMESPACE_LIST)
        parent = request.args.get("parent", "")
        found = self._state.list_namespaces(tuple(parent.split(SEPARATOR)) if parent else ())
        return _json(200, {"namespaces": found})

    def _namespace(self, who: LocalPrincipal, request: Request, namespace: Namespace) -> Response:
        properties = self._state.namespace(namespace)
        if request.method == "DELETE":
            self.principals.require(who, "DROP_NAMESPACE", Privilege.NAMESPACE_DROP)
            self._state.drop_namespace(namespace)
            return Response(b"", 204)
        self.principals.require(who, "LOAD_NAMESPACE_METADATA", Privilege.NAMESPACE_LIST)
        if request.method == "HEAD":
            return Response(b"", 204)
        if request.method == "GET":
            return _json(200, {"namespace": namespace, "properties": properties})
        return _method_not_allowed()

    def _in_namespace(self, who: LocalPrincipal, request: Request, namespace: Namespace, rest: list[str]) -> Response:
        vend = "vended-credentials" in request.headers.get("X-Iceberg-Access-Delegation", "")
        match (request.method, rest):
            case ("POST", ["properties"]):
                return self._update_properties(who, namespace, _body(request))
            case ("GET", ["tables"]):
                names = self._state.list_tables(namespace)
                self.principals.require(who, "LIST_TABLES", Privilege.TABLE_LIST)
                return _json(200, {"identifiers": [{"namespace": namespace, "name": name} for name in names]})
            case ("POST", ["tables"]):
                body = _body(request)
                return _json(200, self._tables.create(who, (namespace, body["name"]), body, vend=vend))
            case ("POST", ["register"]):
                body = _body(request)
                name = (namespace, body["name"])
                return _json(200, self._tables.register(who, name, body["metadata-location"], vend=vend))
            case (method, ["tables", table, *more]):
                return self._table(who, request, (namespace, table), [method, *more], vend=vend)
            case _:
                return _not_found(request.path)

    def _update_properties(self, who: LocalPrincipal, namespace: Namespace, body: Mapping[str, Any]) -> Response:
        self.principals.require(who, "UPDATE_NAMESPACE_PROPERTIES", Privilege.NAMESPACE_WRITE_PROPERTIES)
        removals, updates = list(body.get("removals") or []), dict(body.get("updates") or {})
        missing = self._state.update_namespace(namespace, removals, updates)
        removed = [name for name in removals if name not in missing]
        return _json(200, {"updated": list(updates), "removed": removed, "missing": missing})

    def _table(
        self, who: LocalPrincipal, request: Request, name: tuple[Namespace, str], what: list[str], *, vend: bool
    ) -> Response:
        match what:
            case ["GET"]:
                snapshots = request.args.get("snapshots", "all")
                loaded = self._tables.load(who, name, vend=vend, snapshots=snapshots)
                etag = hashlib.sha256(str(loaded["metadata-location"]).encode()).hexdigest()
                response = _json(200, loaded)
                response.set_etag(etag, weak=True)
                return response.make_conditional(request)
            case ["HEAD"]:
                self._tables.exists(who, name)
                return Response(b"", 204)
            case ["POST"]:
                return _json(200, self._tables.commit(who, name, _body(request)))
            case ["DELETE"]:
                # pyiceberg sends "True" or "False".
                purge = request.args.get("purgeRequested", "false").lower() == "true"
                self._tables.drop(who, name, purge=purge)
                return Response(b"", 204)
            case ["GET", "credentials"]:
                return _json(200, self._tables.credentials(who, name))
            case ["POST", "metrics"]:
                return Response(b"", 204)
            case _:
                return _method_not_allowed()


def _body(request: Request) -> dict[str, Any]:
    body = json.loads(request.get_data())
    if not isinstance(body, dict):
        raise bad_request("The body is not a JSON object")
    return body


def _identifier(value: Mapping[str, Any]) -> tuple[Namespace, str]:
    return tuple(value["namespace"]), str(value["name"])


def _token_form(request: Request) -> dict[str, str]:
    form = request.form.to_dict()
    if request.authorization is not None and request.authorization.type == "basic":
        form |= {
            "client_id": request.authorization.username or "",
            "client_secret": request.authorization.password or "",
        }
    return form


def _json(status: int, body: Mapping[str, Any]) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")


def _not_found(path: str) -> Response:
    return _json(404, RestError(404, "NotFoundException", f"HTTP 404 Not Found: {path}").body())


def _method_not_allowed() -> Response:
    return _json(405, RestError(405, "NotAllowedException", "HTTP 405 Method Not Allowed").body())
