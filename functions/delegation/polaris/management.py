"""Client of Polaris' management API: principals, roles and grants (Apache Polaris, polaris-management-service.yml)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from delegation.identifiers import encoded
from delegation.polaris.answers import (
    TOKEN_REFUSED,
    PolarisUnauthorized,
    PolarisUnexpectedAnswer,
    TableAlreadyExists,
    error_of,
    json_object,
    why_unsupported,
)
from delegation.polaris.requests import ClientCredentials, TokenSource, accepting_json
from delegation.polaris.transport import Transport


@dataclass(frozen=True, slots=True, order=True)
class PolarisGrant:
    """A privilege on a catalog (no namespace) or on one of its namespaces."""

    privilege: str
    namespace: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"namespace {'.'.join(self.namespace)}" if self.namespace else "the catalog"

    def __str__(self) -> str:
        return f"{self.privilege} on {self.place}"

    def resource(self) -> Mapping[str, Any]:
        if not self.namespace:
            return {"type": "catalog", "privilege": self.privilege}
        return {"type": "namespace", "namespace": list(self.namespace), "privilege": self.privilege}


class PolarisManagement:
    """Reads and changes principals, roles and grants as the token's principal, an administrator. `base_url` ends with
    `/api/management/v1`. Methods raise PolarisUnavailable, PolarisUnauthorized, PolarisForbidden and
    PolarisUnexpectedAnswer, and NoSuchCatalog for a name that does not exist."""

    def __init__(
        self, base_url: str, token: TokenSource, *, realm: str | None = None, transport: Transport | None = None
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._headers = accepting_json(realm)
        self._transport = transport or Transport()

    def has_catalog(self, catalog: str) -> bool:
        return self._find(f"catalogs/{encoded(catalog)}") is not None

    def properties_of(self, catalog: str) -> Mapping[str, str]:
        return _properties(self._find(f"catalogs/{encoded(catalog)}") or {})

    def why_unsupported(self, catalog: str) -> str | None:
        """Return why the service cannot delete tables of a catalog, None if it can; see `answers.why_unsupported`."""
        return why_unsupported(self._find(f"catalogs/{encoded(catalog)}") or {})

    def set_property(self, catalog: str, name: str, value: str) -> None:
        """Set one property of a catalog and keep the others. Raises PolarisError after a concurrent change."""
        path = f"catalogs/{encoded(catalog)}"
        entity = self._find(path) or {}
        properties = {**_properties(entity), name: value}
        self._change("PUT", path, {"currentEntityVersion": entity.get("entityVersion"), "properties": properties})

    def client_id_of(self, principal: str) -> str | None:
        entity = self._find(f"principals/{encoded(principal)}")
        return None if entity is None else str(entity.get("clientId") or "")

    def create_principal(self, principal: str) -> ClientCredentials:
        """Create a principal; its secret cannot be read again."""
        body = {"principal": {"name": principal}, "credentialRotationRequired": False}
        return _credentials(self._change("POST", "principals", body), f"created the principal {principal}")

    def reset_secret(self, principal: str) -> ClientCredentials:
        """Give a principal a new secret; the former one ends at once. Only root may do this."""
        response = self._change("POST", f"principals/{encoded(principal)}/reset", {})
        return _credentials(response, f"replaced the secret of the principal {principal}")

    def rotate_secret(self, principal: str) -> ClientCredentials:
        """Give the token's own principal a new secret; the former one stays valid until the next rotation. Raises
        PolarisOutcomeUnknown if it may have changed without an answer."""
        response = self._change("POST", f"principals/{encoded(principal)}/rotate", {})
        return _credentials(response, f"replaced the secret of the principal {principal}")

    def has_principal_role(self, role: str) -> bool:
        return self._find(f"principal-roles/{encoded(role)}") is not None

    def create_principal_role(self, role: str) -> None:
        """Create a principal role; an existing one is kept."""
        self._create("principal-roles", {"principalRole": {"name": role}})

    def principal_roles_of(self, principal: str) -> frozenset[str]:
        return self._names(f"principals/{encoded(principal)}/principal-roles")

    def assign_principal_role(self, principal: str, role: str) -> None:
        self._change("PUT", f"principals/{encoded(principal)}/principal-roles", {"principalRole": {"name": role}})

    def has_catalog_role(self, catalog: str, role: str) -> bool:
        return self._find(f"{_roles(catalog)}/{encoded(role)}") is not None

    def create_catalog_role(self, catalog: str, role: str) -> None:
        """Create a role of a catalog; an existing one is kept."""
        self._create(_roles(catalog), {"catalogRole": {"name": role}})

    def catalog_roles_of(self, principal_role: str, catalog: str) -> frozenset[str]:
        return self._names(f"principal-roles/{encoded(principal_role)}/catalog-roles/{encoded(catalog)}")

    def assign_catalog_role(self, principal_role: str, catalog: str, role: str) -> None:
        path = f"principal-roles/{encoded(principal_role)}/catalog-roles/{encoded(catalog)}"
        self._change("PUT", path, {"catalogRole": {"name": role}})

    def grants_of(self, catalog: str, role: str) -> frozenset[PolarisGrant]:
        document = self._find(f"{_roles(catalog)}/{encoded(role)}/grants")
        entries = [] if document is None else _listed(document, "grants")
        return frozenset(
            PolarisGrant(str(entry.get("privilege")), _levels(entry))
            for entry in entries
            if entry.get("type") in ("catalog", "namespace")
        )

    def grant(self, catalog: str, role: str, grant: PolarisGrant) -> None:
        self._change("PUT", f"{_roles(catalog)}/{encoded(role)}/grants", {"grant": grant.resource()})

    def _names(self, path: str) -> frozenset[str]:
        document = self._find(path)
        return (
            frozenset()
            if document is None
            else frozenset(str(entry.get("name")) for entry in _listed(document, "roles"))
        )

    def _find(self, path: str) -> Mapping[str, Any] | None:
        response = self._send("GET", path, None)
        if response.status_code == 404:
            return None
        if not response.is_success:
            raise error_of(response, secrets=[_sent_token(response)])
        return json_object(response)

    def _create(self, path: str, body: Mapping[str, Any]) -> None:
        # Another process may have created it since it was searched: 409 is the wanted result.
        try:
            self._change("POST", path, body)
        except TableAlreadyExists:
            return

    def _change(self, method: str, path: str, body: Mapping[str, Any]) -> httpx.Response:
        response = self._send(method, path, body)
        if not response.is_success:
            raise error_of(response, write=True, secrets=[_sent_token(response)])
        return response

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        def once(token: str) -> httpx.Response:
            return self._transport.send(
                method,
                f"{self._base_url}/{path}",
                idempotent=method == "GET",
                headers={**self._headers, "Authorization": f"Bearer {token}"},
                document=body,
            )

        token = self._token.token()
        response = once(token)
        if response.status_code in TOKEN_REFUSED:
            response = once(self._token.replace(token))
        if response.status_code in TOKEN_REFUSED:
            raise PolarisUnauthorized(
                "Polaris refused the administrator's new token. Check the principal's roles and the token's scope",
                status=401,
            )
        return response


def management_url(catalog_url: str) -> str:
    """Return the address of the management API of the Polaris that serves a catalog's `uri`."""
    parts = urlsplit(catalog_url)
    root = parts.path.rstrip("/").removesuffix("/api/catalog")
    return f"{parts.scheme}://{parts.netloc}{root}/api/management/v1"


def _properties(catalog: Mapping[str, Any]) -> dict[str, str]:
    given = catalog.get("properties")
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}


def _roles(catalog: str) -> str:
    return f"catalogs/{encoded(catalog)}/catalog-roles"


def _sent_token(response: httpx.Response) -> str:
    sent: str = response.request.headers.get("Authorization", "")
    return sent.removeprefix("Bearer ")


def _listed(body: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    entries = body.get(field)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise PolarisUnexpectedAnswer(f"Polaris answered with unusable {field}", status=200)
    return entries


def _levels(grant: Mapping[str, Any]) -> tuple[str, ...]:
    levels = grant.get("namespace") or []
    if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
        raise PolarisUnexpectedAnswer("Polaris answered with a grant on an unusable namespace", status=200)
    return tuple(levels)


def _credentials(response: httpx.Response, done: str) -> ClientCredentials:
    """Return the new credentials; `done` states what Polaris has done."""
    match json_object(response):
        case {"credentials": {"clientId": str(client_id), "clientSecret": str(secret)}} if client_id and secret:
            return ClientCredentials(client_id, SecretStr(secret))
        case _:
            # Not quoted: the body has a secret.
            raise PolarisUnexpectedAnswer(
                f"Polaris {done}, but its answer has no usable credentials. As Polaris' root, make a new secret: "
                "`delegation polaris setup CATALOG --new-secret`",
                status=response.status_code,
            )
