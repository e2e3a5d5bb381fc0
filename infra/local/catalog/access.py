"""Principals, principal roles, catalog roles and grants of one realm, in memory, with Polaris' rules, and their tokens.

Apache Polaris documentation, "Access Control"; a grant on the catalog or a namespace also holds for everything below.
Tokens are RS256 JWTs for client credentials, as those of Polaris' internal token broker. Source: Apache Polaris 1.7.0,
JWTBroker, TokenRequestValidator and DefaultAuthenticator.
"""

import hmac
import itertools
import secrets
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr

from infra.local.catalog.errors import RestError, already_exists_admin, forbidden, invalid_value, not_found
from infra.local.catalog.privileges import OPERATIONS, Privilege, including

ROOT_PRINCIPAL = "root"
SERVICE_ADMIN = "service_admin"
CATALOG_ADMIN = "catalog_admin"
# The ids of the entities at which every path of securables begins; those of namespaces and tables are larger.
ROOT_ID = 0
CATALOG_ID = 1
_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class LocalPrincipal:
    """A principal to begin with; it has a principal role and a catalog role of its name with `privileges`."""

    name: str
    client_id: str
    client_secret: SecretStr
    privileges: frozenset[Privilege]


@dataclass(frozen=True, slots=True)
class CatalogCaller:
    """Who sends a request: a principal and the principal roles that its token activates."""

    name: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege on the securable with the id `securable`."""

    securable: int
    privilege: Privilege


@dataclass(slots=True)
class Entity:
    """A principal or a role as the management API shows it."""

    id: int
    name: str
    properties: dict[str, str]
    created_ms: int
    updated_ms: int
    version: int = 1
    client_id: str | None = None
    # The current secret and, after a rotation, the former one, which stays valid until the next.
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def body(self) -> dict[str, Any]:
        """Return the JSON members that all kinds have."""
        return {
            "name": self.name,
            "properties": dict(self.properties),
            "createTimestamp": self.created_ms,
            "lastUpdateTimestamp": self.updated_ms,
            "entityVersion": self.version,
        }


class Entities:
    """The entities of one kind by name; `kind` is Polaris' word for it in messages. Not thread-safe by itself."""

    def __init__(self, kind: str, ids: Iterable[int], clock: Callable[[], datetime], undroppable: str) -> None:
        self._kind = kind
        self._ids = iter(ids)
        self._clock = clock
        self._undroppable = undroppable
        self._known: dict[str, Entity] = {}

    def create(self, name: str, properties: Mapping[str, str]) -> Entity:
        check_name(name)
        if name in self._known:
            reason = f"Cannot create {self._kind} {name}. {self._kind} already exists or resolution failed"
            raise already_exists_admin(reason)
        now = int(self._clock().timestamp() * 1000)
        entity = self._known[name] = Entity(next(self._ids), name, dict(properties), now, now)
        return entity

    def get(self, name: str) -> Entity:
        if name not in self._known:
            raise not_found(f"{self._kind} {name} not found")
        return self._known[name]

    def entries(self) -> list[Entity]:
        return list(self._known.values())

    def update(self, name: str, version: int, properties: Mapping[str, str]) -> Entity:
        """Replace the properties; raises RestError 404, and 409 unless `version` is the current one."""
        entity = self.get(name)
        if version != entity.version:
            reason = f"Failed to update {self._kind}; currentEntityVersion '{entity.version}', expected '{version}'"
            raise RestError(409, "CommitConflictException", reason)
        entity.properties = dict(properties)
        self.changed(entity)
        return entity

    def changed(self, entity: Entity) -> None:
        entity.version += 1
        entity.updated_ms = int(self._clock().timestamp() * 1000)

    def delete(self, name: str) -> None:
        """Remove an entity; raises RestError 404, and 400 for the one that Polaris needs."""
        self.get(name)
        if name == self._undroppable:
            raise RestError(400, "BadRequestException", f"{self._kind} {name} cannot be dropped")
        del self._known[name]


def check_name(name: object) -> None:
    """Raise RestError 400 unless `name` is one that the management API accepts."""
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        raise invalid_value(f"name: size must be between 1 and {_LONGEST_NAME}")
    if name.lstrip().lower().startswith("system$"):
        raise invalid_value(r'name: must match "^(?!\s*[sS][yY][sS][tT][eE][mM]\$).*$"')


class Assignments:
    """Which roles each principal, or each principal role, was given, by name; what drops names expects the lock."""

    def __init__(self, lock: threading.RLock, holders: Entities, roles: Entities) -> None:
        self._lock = lock
        self._kinds = (holders, roles)
        self._given: dict[str, set[str]] = {}

    def of(self, holder: str) -> set[str]:
        with self._lock:
            return set(self._given.get(holder, ()))

    def add(self, holder: str, role: str) -> None:
        with self._lock:
            self._require(holder, role)
            self._given.setdefault(holder, set()).add(role)

    def remove(self, holder: str, role: str) -> None:
        """Take the role from its holder; raises RestError 404, 400 if it does not have it."""
        with self._lock:
            self._require(holder, role)
            if role not in self.of(holder):
                raise grant_not_found()
            self._given[holder].discard(role)

    def drop_holder(self, holder: str) -> None:
        self._given.pop(holder, None)

    def drop_role(self, role: str) -> None:
        for given in self._given.values():
            given.discard(role)

    def _require(self, holder: str, role: str) -> None:
        for entities, name in zip(self._kinds, (holder, role), strict=True):
            try:
                entities.get(name)
            except RestError:
                raise not_found(f"Entity {name} not found when trying to assign {role} to {holder}") from None


class AccessControl:
    """Who may do what; every method is atomic and may raise RestError. A revoked grant applies at the next request."""

    def __init__(self, principals: Iterable[LocalPrincipal], *, root: SecretStr, clock: Callable[[], datetime]) -> None:
        ids = itertools.count(CATALOG_ID + 1)
        self.lock = threading.RLock()
        self.principals = Entities("Principal", ids, clock, ROOT_PRINCIPAL)
        self.principal_roles = Entities("PrincipalRole", ids, clock, SERVICE_ADMIN)
        self.catalog_roles = Entities("CatalogRole", ids, clock, CATALOG_ADMIN)
        self.held = Assignments(self.lock, self.principals, self.principal_roles)
        self.used = Assignments(self.lock, self.principal_roles, self.catalog_roles)
        self._grants: dict[str, dict[Grant, None]] = {}
        self._bootstrap(root)
        for principal in principals:
            self.create_principal(principal.name, {}, (principal.client_id, principal.client_secret))
            self.principal_roles.create(principal.name, {})
            self.catalog_roles.create(principal.name, {})
            self.held.add(principal.name, principal.name)
            self.used.add(principal.name, principal.name)
            for privilege in sorted(principal.privileges, key=lambda each: each.name):
                self.grant(principal.name, privilege)

    def _bootstrap(self, root: SecretStr) -> None:
        self.create_principal(ROOT_PRINCIPAL, {}, (ROOT_PRINCIPAL, root))
        self.principal_roles.create(SERVICE_ADMIN, {})
        self.catalog_roles.create(CATALOG_ADMIN, {})
        self.held.add(ROOT_PRINCIPAL, SERVICE_ADMIN)
        self.used.add(SERVICE_ADMIN, CATALOG_ADMIN)
        self.grant(CATALOG_ADMIN, Privilege.CATALOG_MANAGE_ACCESS)
        self.grant(CATALOG_ADMIN, Privilege.CATALOG_MANAGE_METADATA)

    def create_principal(
        self, name: str, properties: Mapping[str, str], credentials: tuple[str, SecretStr] | None = None
    ) -> Entity:
        """Add a principal with `credentials` (client id, secret), by default random ones."""
        with self.lock:
            principal = self.principals.create(name, properties)
            client_id, secret = credentials or (secrets.token_hex(8), SecretStr(secrets.token_hex(16)))
            principal.client_id, principal.secrets = client_id, (secret.get_secret_value(),)
            return principal

    def rotate(self, name: str) -> Entity:
        """Give the principal a new secret; the one before stays valid until the next rotation."""
        with self.lock:
            principal = self.principals.get(name)
            principal.secrets = (secrets.token_hex(16), principal.secrets[0])
            self.principals.changed(principal)
            return principal

    def reset(self, name: str, client_id: str | None, secret: str | None) -> Entity:
        """Give the principal new credentials; its former ones become invalid."""
        with self.lock:
            principal = self.principals.get(name)
            if client_id and any(each.client_id == client_id for each in self.principals.entries()):
                raise already_exists_admin(f"Client ID already in use: {client_id}")
            principal.client_id = client_id or principal.client_id
            principal.secrets = (secret or secrets.token_hex(16),)
            self.principals.changed(principal)
            return principal

    def by_client_id(self, client_id: str) -> Entity | None:
        with self.lock:
            return next((each for each in self.principals.entries() if each.client_id == client_id), None)

    def drop_principal(self, name: str) -> None:
        with self.lock:
            self.principals.delete(name)
            self.held.drop_holder(name)

    def drop_principal_role(self, name: str) -> None:
        with self.lock:
            self.principal_roles.delete(name)
            self.used.drop_holder(name)
            self.held.drop_role(name)

    def drop_catalog_role(self, name: str) -> None:
        with self.lock:
            self.catalog_roles.delete(name)
            self._grants.pop(name, None)
            self.used.drop_role(name)

    def holders(self, role: str) -> list[Entity]:
        with self.lock:
            return [each for each in self.principals.entries() if role in self.held.of(each.name)]

    def grant(self, catalog_role: str, privilege: Privilege, securable: int = CATALOG_ID) -> None:
        """Grant a privilege to the catalog role, by default on the catalog; a repeat changes nothing."""
        with self.lock:
            self.catalog_roles.get(catalog_role)
            self._grants.setdefault(catalog_role, {})[Grant(securable, privilege)] = None

    def revoke(self, catalog_role: str, privilege: Privilege, securable: int = CATALOG_ID) -> None:
        """Revoke a grant; raises RestError 400 if there is none."""
        with self.lock:
            if self._grants.get(catalog_role, {}).pop(Grant(securable, privilege), self) is self:
                raise grant_not_found()

    def grants(self, catalog_role: str) -> list[Grant]:
        with self.lock:
            return list(self._grants.get(catalog_role, ()))

    def has(self, who: CatalogCaller, privilege: Privilege, path: Sequence[int]) -> bool:
        """Return whether `who` has the privilege on the last securable of `path`, directly or by one before it."""
        enough, where = including(privilege), set(path)
        with self.lock:
            if Privilege.SERVICE_MANAGE_ACCESS in enough and SERVICE_ADMIN in who.roles:
                return True
            roles = set().union(*(self.used.of(role) for role in who.roles))
            held = (grant for role in roles for grant in self.grants(role))
            return any(grant.securable in where and grant.privilege in enough for grant in held)

    def allows(self, who: CatalogCaller, operation: str, path: Sequence[int], other: Sequence[int] = ()) -> bool:
        """Return whether `who` may do Polaris' `operation` to the end of `path`, and to `other` where it has two."""
        needed = OPERATIONS[operation]
        return all(self.has(who, each, path) for each in needed.on_target) and all(
            self.has(who, each, other) for each in needed.on_other
        )

    def require(self, who: CatalogCaller, operation: str, path: Sequence[int], other: Sequence[int] = ()) -> None:
        """Raise RestError 403 unless `allows`."""
        if not self.allows(who, operation, path, other):
            with self.lock:
                grants_by = who.roles.union(*(self.used.of(role) for role in who.roles))
            raise forbidden(who.name, sorted(who.roles), sorted(grants_by), operation)


def grant_not_found() -> RestError:
    """Return the answer to the revocation of what was not granted."""
    return RestError(400, "GRANT_NOT_FOUND", "Operation failed: GRANT_NOT_FOUND")


ISSUER = "polaris"
ROLE_PREFIX = "PRINCIPAL_ROLE:"
ALL_ROLES = "PRINCIPAL_ROLE:ALL"
_GRANT_TYPES = frozenset({"client_credentials", "urn:ietf:params:oauth:grant-type:token-exchange"})


class TokenBroker:
    """Issues and verifies tokens with a key pair made at construction, like a Polaris without configured keys."""

    def __init__(self, access: AccessControl, *, clock: Callable[[], datetime], lifetime: timedelta) -> None:
        self._access = access
        self._clock = clock
        self._lifetime = lifetime
        self.replace_key()

    def public_key_pem(self) -> str:
        """Return the public key, with which an authorizer verifies the tokens: Polaris publishes no JWKS."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()

    def replace_key(self) -> None:
        """Invalidate every token, as a restart of Polaris with a new key pair does."""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._claims = lru_cache(maxsize=1_000)(self._verified)

    def token(self, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Return (status, body) for a request to the token endpoint (RFC 6749, Sections 4.4 and 5.2)."""
        if form.get("grant_type") not in _GRANT_TYPES:
            return _refused("unsupported_grant_type", "The grant type is invalid")
        client_id, given, scope = form.get("client_id", ""), form.get("client_secret", ""), form.get("scope", "")
        if not client_id or not given:
            return _refused("invalid_client", "The client is invalid")
        scopes = scope.split(" ")
        if not all(each.startswith(ROLE_PREFIX) and each != ROLE_PREFIX for each in scopes):
            return _refused("invalid_scope", "The scope is invalid")
        principal = self._access.by_client_id(client_id)
        valid = principal.secrets if principal else ("",)
        if principal is None or not any(hmac.compare_digest(each.encode(), given.encode()) for each in valid):
            return 401, {"error": "unauthorized_client", "error_description": "The client is not authorized"}
        now = int(self._clock().timestamp())
        claims = {
            "iss": ISSUER,
            "sub": principal.name,
            "iat": now,
            "exp": now + int(self._lifetime.total_seconds()),
            "jti": str(uuid.uuid4()),
            "active": True,
            "client_id": client_id,
            "principalId": principal.id,
            "scope": scope,
        }
        return 200, {
            "access_token": jwt.encode(claims, self._key, algorithm="RS256"),
            "token_type": "bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "expires_in": int(self._lifetime.total_seconds()),
        }

    def caller(self, token: str) -> CatalogCaller | None:
        """Return whom `token` was issued to, None if it is invalid or its scope has a role that is not held.

        Polaris issues a token for any role and refuses it only when it is used.
        """
        try:
            claims = self._claims(token)
        except jwt.InvalidTokenError:
            return None
        if claims["exp"] <= self._clock().timestamp() or claims.get("active") is not True:
            return None
        if all(each.name != claims["sub"] for each in self._access.principals.entries()):
            return None
        held, scopes = self._access.held.of(claims["sub"]), str(claims["scope"]).split(" ")
        asked = held if ALL_ROLES in scopes else {each.removeprefix(ROLE_PREFIX) for each in scopes}
        return CatalogCaller(claims["sub"], frozenset(asked)) if asked <= held else None

    def _verified(self, token: str) -> dict[str, Any]:
        # The clock of the tests decides on the expiry, not the machine's.
        claims: dict[str, Any] = jwt.decode(
            token,
            self._key.public_key(),
            algorithms=["RS256"],
            issuer=ISSUER,
            options={"verify_exp": False, "verify_iat": False, "require": ["exp", "sub", "scope"]},
        )
        return claims


def _refused(error: str, description: str) -> tuple[int, dict[str, Any]]:
    return 400, {"error": error, "error_description": description}
