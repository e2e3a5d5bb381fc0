"""Polaris' management API below `/api/management`: the catalog, principals, roles, assignments and grants.

Source: Apache Polaris 1.7.0, polaris-management-service.yml, PolarisServiceImpl and PolarisAdminService. The stand-in
has one catalog: to create another or to delete this one is answered 406.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from werkzeug.wrappers import Request, Response

from infra.local.catalog import errors
from infra.local.catalog.access import CATALOG_ID, ROOT_ID, AccessControl, CatalogCaller, Entities, Entity
from infra.local.catalog.entities import CatalogEntities
from infra.local.catalog.layout import Warehouse
from infra.local.catalog.policies import PolicyStore
from infra.local.catalog.privileges import GRANTABLE, Privilege

_ROOT = (ROOT_ID,)
_CATALOG = (ROOT_ID, CATALOG_ID)


@dataclass(frozen=True, eq=False)
class ManagementApi:
    _access: AccessControl
    _entities: CatalogEntities
    _warehouse: Warehouse
    _policies: PolicyStore

    def answer(self, who: CatalogCaller, request: Request, parts: list[str]) -> Response:
        """Answer a request to `v1/` and `parts`; raises RestError."""
        match parts:
            case ["catalogs"]:
                return self._catalogs(who, request)
            case ["catalogs", name]:
                return self._catalog(who, request, name)
            case ["catalogs", name, "catalog-roles", *rest]:
                self._require_catalog(name)
                return self._catalog_roles(who, request, rest)
            case _:
                return self._people(who, request, parts)

    def _people(self, who: CatalogCaller, request: Request, parts: list[str]) -> Response:
        match parts:
            case ["principals", name, "rotate" | "reset" as action] if request.method == "POST":
                return self._new_secret(who, request, name, action)
            case ["principals", name, "principal-roles", *rest]:
                return self._assignments(who, request, name, rest)
            case ["principals", *rest]:
                return self._named(who, request, rest, "PRINCIPAL")
            case ["principal-roles", role, "principals"] if request.method == "GET":
                self._allow(who, "LIST_ASSIGNEE_PRINCIPALS_FOR_PRINCIPAL_ROLE")
                self._access.principal_roles.get(role)
                return errors.json_answer(
                    200, {"principals": [_principal(each) for each in self._access.holders(role)]}
                )
            case ["principal-roles", role, "catalog-roles", catalog, *rest]:
                self._require_catalog(catalog)
                return self._uses(who, request, role, rest)
            case ["principal-roles", *rest]:
                return self._named(who, request, rest, "PRINCIPAL_ROLE")
            case _:
                return errors.no_such_route(request.path)

    def _allow(self, who: CatalogCaller, operation: str, path: tuple[int, ...] = _ROOT) -> None:
        self._access.require(who, operation, path)

    def _require_catalog(self, name: str) -> None:
        if name != self._warehouse.name:
            raise errors.not_found(f"Catalog {name} not found")

    def _catalogs(self, who: CatalogCaller, request: Request) -> Response:
        if request.method == "GET":
            self._allow(who, "LIST_CATALOGS")
            return errors.json_answer(200, {"catalogs": [self._warehouse.body()]})
        if request.method != "POST":
            return errors.method_not_allowed()
        name = _part(errors.body_of(request), "catalog").get("name")
        self._allow(who, "CREATE_CATALOG")
        if name == self._warehouse.name:
            raise errors.already_exists_admin(
                f"Cannot create Catalog {name}. Catalog already exists or resolution failed"
            )
        raise errors.RestError(406, "UnsupportedOperationException", "This stand-in for Polaris has one catalog only")

    def _catalog(self, who: CatalogCaller, request: Request, name: str) -> Response:
        self._require_catalog(name)
        if request.method == "GET":
            self._allow(who, "GET_CATALOG", _CATALOG)
            return errors.json_answer(200, self._warehouse.body())
        if request.method == "PUT":
            body = errors.body_of(request)
            self._allow(who, "UPDATE_CATALOG", _CATALOG)
            version, storage = body.get("currentEntityVersion"), body.get("storageConfigInfo")
            return errors.json_answer(200, self._warehouse.update(version, body.get("properties"), storage))
        if request.method != "DELETE":
            return errors.method_not_allowed()
        self._allow(who, "DELETE_CATALOG")
        raise errors.RestError(406, "UnsupportedOperationException", "This stand-in for Polaris has one catalog only")

    def _named(
        self, who: CatalogCaller, request: Request, rest: list[str], kind: str, path: tuple[int, ...] = _ROOT
    ) -> Response:
        known, part, show, drop = {
            "PRINCIPAL": (self._access.principals, "principal", _principal, self._access.drop_principal),
            "PRINCIPAL_ROLE": (
                self._access.principal_roles,
                "principalRole",
                _principal_role,
                self._access.drop_principal_role,
            ),
            "CATALOG_ROLE": (self._access.catalog_roles, "catalogRole", Entity.body, self._access.drop_catalog_role),
        }[kind]
        match (request.method, rest):
            case ("GET", []):
                self._allow(who, f"LIST_{kind}S", path)
                listed = "principals" if part == "principal" else "roles"
                return errors.json_answer(200, {listed: [show(each) for each in known.entries()]})
            case ("POST", []):
                wanted = _part(errors.body_of(request), part)
                self._allow(who, f"CREATE_{kind}", path)
                name, properties = wanted.get("name", ""), wanted.get("properties") or {}
                if part == "principal":
                    return errors.json_answer(201, _with_credentials(self._access.create_principal(name, properties)))
                return errors.json_answer(201, show(known.create(name, properties)))
            case ("GET" | "PUT" | "DELETE" as method, [name]):
                entity = self._existing(known, kind, name)
                self._allow(who, {"GET": "GET", "PUT": "UPDATE", "DELETE": "DELETE"}[method] + f"_{kind}", path)
                if method == "DELETE":
                    drop(name)
                    return errors.empty(204)
                return errors.json_answer(
                    200, show(entity if method == "GET" else _updated(known, name, errors.body_of(request)))
                )
            case (_, [] | [_]):
                return errors.method_not_allowed()
            case _:
                return errors.no_such_route(request.path)

    def _new_secret(self, who: CatalogCaller, request: Request, name: str, action: str) -> Response:
        """Rotate, which only the principal itself may, or reset, which only root may."""
        self._existing(self._access.principals, "PRINCIPAL", name)
        if action == "rotate":
            if who.name != name:
                raise errors.forbidden(who.name, sorted(who.roles), sorted(who.roles), "ROTATE_CREDENTIALS")
            return errors.json_answer(200, _with_credentials(self._access.rotate(name)))
        if who.name != "root":
            reason = "Only Root principal(service-admin) can perform RESET_CREDENTIALS"
            raise errors.RestError(403, "ForbiddenException", reason)
        wanted = errors.body_of(request) if request.get_data() else {}
        return errors.json_answer(
            200, _with_credentials(self._access.reset(name, wanted.get("clientId"), wanted.get("clientSecret")))
        )

    def _assignments(self, who: CatalogCaller, request: Request, principal: str, rest: list[str]) -> Response:
        match (request.method, rest):
            case ("GET", []):
                self._existing(self._access.principals, "PRINCIPAL", principal)
                self._allow(who, "LIST_PRINCIPAL_ROLES_ASSIGNED")
                held = self._access.held.of(principal)
                roles = [role for role in self._access.principal_roles.entries() if role.name in held]
                return errors.json_answer(200, {"roles": [_principal_role(role) for role in roles]})
            case ("PUT", []):
                role = _part(errors.body_of(request), "principalRole").get("name", "")
                self._allow(who, "ASSIGN_PRINCIPAL_ROLE")
                self._access.held.add(principal, role)
                return errors.empty(201)
            case ("DELETE", [role]):
                self._allow(who, "REVOKE_PRINCIPAL_ROLE")
                self._access.held.remove(principal, role)
                return errors.empty(204)
            case _:
                return errors.method_not_allowed()

    def _uses(self, who: CatalogCaller, request: Request, principal_role: str, rest: list[str]) -> Response:
        match (request.method, rest):
            case ("GET", []):
                self._allow(who, "LIST_CATALOG_ROLES_FOR_PRINCIPAL_ROLE")
                self._access.principal_roles.get(principal_role)
                used = self._access.used.of(principal_role)
                roles = [role for role in self._access.catalog_roles.entries() if role.name in used]
                return errors.json_answer(200, {"roles": [role.body() for role in roles]})
            case ("PUT", []):
                role = _part(errors.body_of(request), "catalogRole").get("name", "")
                self._allow(who, "ASSIGN_CATALOG_ROLE_TO_PRINCIPAL_ROLE", _CATALOG)
                self._access.used.add(principal_role, role)
                return errors.empty(201)
            case ("DELETE", [role]):
                self._allow(who, "REVOKE_CATALOG_ROLE_FROM_PRINCIPAL_ROLE", _CATALOG)
                self._access.used.remove(principal_role, role)
                return errors.empty(204)
            case _:
                return errors.method_not_allowed()

    def _catalog_roles(self, who: CatalogCaller, request: Request, rest: list[str]) -> Response:
        match (request.method, rest):
            case (_, [] | [_]):
                return self._named(who, request, rest, "CATALOG_ROLE", _CATALOG)
            case ("GET", [name, "principal-roles"]):
                self._existing(self._access.catalog_roles, "CATALOG_ROLE", name)
                self._allow(who, "LIST_ASSIGNEE_PRINCIPAL_ROLES_FOR_CATALOG_ROLE", _CATALOG)
                users = [e for e in self._access.principal_roles.entries() if name in self._access.used.of(e.name)]
                return errors.json_answer(200, {"roles": [_principal_role(role) for role in users]})
            case (_, [name, "grants"]):
                return self._grants(who, request, name)
            case _:
                return errors.method_not_allowed()

    def _grants(self, who: CatalogCaller, request: Request, role: str) -> Response:
        if request.method == "GET":
            self._existing(self._access.catalog_roles, "CATALOG_ROLE", role)
            self._allow(who, "LIST_GRANTS_FOR_CATALOG_ROLE", _CATALOG)
            shown = [self._shown(grant.securable, grant.privilege) for grant in self._access.grants(role)]
            known = [grant for grant in shown if grant is not None]
            return errors.json_answer(
                200, {"grants": sorted(known, key=lambda grant: list(GRANTABLE).index(grant["type"]))}
            )
        if request.method not in {"PUT", "POST"}:
            return errors.method_not_allowed()
        if request.method == "POST" and request.args.get("cascade", "false").lower() == "true":
            return errors.empty(501)
        type_, privilege, path = self._grant_of(_part(errors.body_of(request), "grant"))
        if role not in {each.name for each in self._access.catalog_roles.entries()}:
            raise errors.not_found(f"CatalogRole not found: {self._warehouse.name}.{role}")
        verb, preposition = ("ADD", "TO") if request.method == "PUT" else ("REVOKE", "FROM")
        self._allow(who, f"{verb}_{type_.upper()}_GRANT_{preposition}_CATALOG_ROLE", path)
        (self._access.grant if request.method == "PUT" else self._access.revoke)(role, privilege, path[-1])
        return errors.empty(201)

    def _grant_of(self, grant: Mapping[str, Any]) -> tuple[str, Privilege, tuple[int, ...]]:
        """Return type, privilege and path of a GrantResource; raises RestError 400, and 404 for what is missing."""
        type_, name = str(grant.get("type")), str(grant.get("privilege"))
        if type_ not in GRANTABLE:
            raise errors.RestError(
                400, "InvalidTypeIdException", f"Could not resolve type id '{type_}' as a GrantResource"
            )
        if name not in {privilege.name for privilege in GRANTABLE[type_]}:
            reason = f"Invalid value: Unexpected value '{name}' for a privilege on a {type_}"
            raise errors.RestError(400, "ValueInstantiationException", reason)
        namespace = tuple(grant.get("namespace") or ())
        if type_ != "catalog" and not namespace:
            raise errors.invalid_value("grant.namespace: must not be null")
        if type_ == "policy":
            policy = self._policies.get((namespace, str(grant.get("policyName"))))
            return type_, Privilege[name], (*self._entities.path(namespace), policy.id)
        table = str(grant.get("tableName")) if type_ == "table" else None
        return type_, Privilege[name], self._entities.path(() if type_ == "catalog" else namespace, table)

    def _shown(self, securable: int, privilege: Privilege) -> dict[str, Any] | None:
        """Return a GrantResource, None if what it was granted on is dropped."""
        if securable == CATALOG_ID:
            return {"type": "catalog", "privilege": privilege.name}
        named = self._entities.named(securable)
        if named is None:
            policy = self._policies.named(securable)
            if policy is None:
                return None
            where = {"namespace": list(policy[0]), "policyName": policy[1]}
            return {"type": "policy", **where, "privilege": privilege.name}
        namespace, table = named
        where = {"namespace": list(namespace)} | ({} if table is None else {"tableName": table})
        return {"type": "namespace" if table is None else "table", **where, "privilege": privilege.name}

    def _existing(self, known: Entities, kind: str, name: str) -> Entity:
        try:
            return known.get(name)
        except errors.RestError:
            what = "CatalogRole" if kind == "CATALOG_ROLE" else f"TopLevelEntity of type {kind}"
            raise errors.not_found(f"{what} does not exist: {name}") from None


def _part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise errors.invalid_value(f"{name}: must not be null")
    return value


def _updated(known: Entities, name: str, body: Mapping[str, Any]) -> Entity:
    version, properties = body.get("currentEntityVersion"), body.get("properties")
    if not isinstance(version, int) or not isinstance(properties, dict):
        raise errors.invalid_value("currentEntityVersion and properties: must not be null")
    return known.update(name, version, properties)


def _principal(entity: Entity) -> dict[str, Any]:
    return {**entity.body(), "clientId": entity.client_id}


def _principal_role(entity: Entity) -> dict[str, Any]:
    return {**entity.body(), "federated": False}


def _with_credentials(entity: Entity) -> dict[str, Any]:
    credentials = {"clientId": entity.client_id, "clientSecret": entity.secrets[0]}
    return {"principal": _principal(entity), "credentials": credentials}
