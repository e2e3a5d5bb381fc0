"""The routes of Polaris' policies, below `/api/catalog/polaris/v1`.

Source: Apache Polaris 1.7.0, policy-apis.yaml, PolicyCatalogAdapter and PolicyCatalogHandler.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from werkzeug.wrappers import Request, Response

from infra.local.catalog.answers import body_of, empty, json_answer, method_not_allowed, no_such_route
from infra.local.catalog.entities import CatalogEntities, Namespace, dotted
from infra.local.catalog.errors import RestError, bad_request, invalid_value
from infra.local.catalog.policies.store import PolicyKey, PolicyStore
from infra.local.catalog.principals.access import AccessControl, CatalogCaller

SEPARATOR: Final = "\x1f"
ENDPOINTS: Final = (
    "GET /polaris/v1/{prefix}/namespaces/{namespace}/policies",
    "POST /polaris/v1/{prefix}/namespaces/{namespace}/policies",
    "GET /polaris/v1/{prefix}/namespaces/{namespace}/policies/{policy-name}",
    "PUT /polaris/v1/{prefix}/namespaces/{namespace}/policies/{policy-name}",
    "DELETE /polaris/v1/{prefix}/namespaces/{namespace}/policies/{policy-name}",
    "PUT /polaris/v1/{prefix}/namespaces/{namespace}/policies/{policy-name}/mappings",
    "POST /polaris/v1/{prefix}/namespaces/{namespace}/policies/{policy-name}/mappings",
    "GET /polaris/v1/{prefix}/applicable-policies",
)
"""As /v1/config lists them."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


class PolicyRoutes:
    """Answers requests of Polaris' API for policies; every method may raise RestError."""

    def __init__(self, warehouse: str, entities: CatalogEntities, access: AccessControl, policies: PolicyStore) -> None:
        self._warehouse = warehouse
        self._entities = entities
        self._access = access
        self._policies = policies

    def answer(self, who: CatalogCaller, request: Request, parts: list[str]) -> Response:
        """Answer a request to `polaris/v1/` and `parts`."""
        if parts[0] != self._warehouse:
            raise RestError(404, "NotFoundException", f"Unable to find warehouse {parts[0]}")
        match (request.method, parts[1:]):
            case ("GET", ["applicable-policies"]):
                return self._applicable(who, request)
            case ("GET", ["namespaces", namespace, "policies"]):
                return self._list(who, request, tuple(namespace.split(SEPARATOR)))
            case ("POST", ["namespaces", namespace, "policies"]):
                return self._create(who, tuple(namespace.split(SEPARATOR)), body_of(request))
            case (method, ["namespaces", namespace, "policies", name]):
                return self._one(who, request, method, (tuple(namespace.split(SEPARATOR)), name))
            case ("PUT" | "POST", ["namespaces", namespace, "policies", name, "mappings"]):
                return self._map(who, request, (tuple(namespace.split(SEPARATOR)), name))
            case _:
                return no_such_route(request.path)

    def _list(self, who: CatalogCaller, request: Request, namespace: Namespace) -> Response:
        self._access.require(who, "LIST_POLICY", self._entities.path(namespace))
        names = self._policies.names(namespace, request.args.get("policyType"))
        return _page(request, "identifiers", [{"namespace": namespace, "name": name} for name in names])

    def _create(self, who: CatalogCaller, namespace: Namespace, body: Mapping[str, Any]) -> Response:
        name = str(body["name"])
        if not _NAME.fullmatch(name):
            raise invalid_value(r'name: must match "^[A-Za-z0-9\-_]+$"')
        self._access.require(who, "CREATE_POLICY", self._entities.path(namespace))
        made = self._policies.create((namespace, name), body["type"], body.get("description"), body.get("content"))
        return json_answer(200, {"policy": made.body()})

    def _one(self, who: CatalogCaller, request: Request, method: str, key: PolicyKey) -> Response:
        path = self._path(key)
        match method:
            case "GET":
                self._access.require(who, "LOAD_POLICY", path)
                return json_answer(200, {"policy": self._policies.get(key).body()})
            case "PUT":
                body = body_of(request)
                self._access.require(who, "UPDATE_POLICY", path)
                version, description = body.get("current-policy-version"), body.get("description")
                changed = self._policies.update(key, version, description, body.get("content"))
                return json_answer(200, {"policy": changed.body()})
            case "DELETE":
                self._access.require(who, "DROP_POLICY", path)
                self._policies.drop(key, detach_all=request.args.get("detach-all", "false").lower() == "true")
                return empty(204)
            case _:
                return method_not_allowed()

    def _map(self, who: CatalogCaller, request: Request, key: PolicyKey) -> Response:
        """Attach (PUT) or detach (POST)."""
        target = body_of(request)["target"]
        kind, names = str(target["type"]), tuple(target.get("path") or ())
        policy = self._path(key)
        path = self._target(kind, names)
        verb, preposition = ("ATTACH", "TO") if request.method == "PUT" else ("DETACH", "FROM")
        place = {"catalog": "CATALOG", "namespace": "NAMESPACE", "table-like": "TABLE"}[kind]
        self._access.require(who, f"{verb}_POLICY_{preposition}_{place}", policy, path)
        change = self._policies.attach if request.method == "PUT" else self._policies.detach
        change(key, path[-1], dotted((self._warehouse, *names)))
        return empty(204)

    def _target(self, kind: str, names: tuple[str, ...]) -> tuple[int, ...]:
        match kind:
            case "catalog":
                return self._entities.path(())
            case "namespace":
                return self._entities.path(names)
            case "table-like":
                return self._entities.path(names[:-1], names[-1])
            case _:
                raise bad_request(f"Unexpected value '{kind}' for the type of a target")

    def _applicable(self, who: CatalogCaller, request: Request) -> Response:
        namespace = tuple(level for level in request.args.get("namespace", "").split(SEPARATOR) if level)
        table = request.args.get("target-name", "") if namespace else ""
        path = self._entities.path(namespace, table or None)
        place = "TABLE" if table else "NAMESPACE" if namespace else "CATALOG"
        self._access.require(who, f"GET_APPLICABLE_POLICIES_ON_{place}", path)
        return _page(request, "applicable-policies", self._policies.applicable(path, request.args.get("policyType")))

    def _path(self, key: PolicyKey) -> tuple[int, ...]:
        """Return the ids from the root to a policy; raise 404 for an unknown one, also in an unknown namespace."""
        policy = self._policies.get(key)
        return (*self._entities.path(key[0]), policy.id)


def _page(request: Request, field: str, entries: Sequence[Mapping[str, Any]]) -> Response:
    """Return the page of a listing that starts at `pageToken`, the number of entries before it."""
    if "pageToken" not in request.args:
        return json_answer(200, {field: list(entries)})
    start, size = int(request.args["pageToken"] or 0), int(request.args.get("pageSize") or len(entries) or 1)
    more = start + size < len(entries)
    return json_answer(
        200, {field: list(entries[start : start + size]), "next-page-token": str(start + size) if more else None}
    )
