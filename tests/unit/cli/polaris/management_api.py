"""Polaris' management API in memory, as far as `polaris setup` uses it; answers as Apache Polaris 1.7."""

import json
from collections import defaultdict
from typing import Any

import httpx


class ManagementApi:
    """One catalog, `lake`; `changes` are the changing requests, `fails_at` the number of one that is refused."""

    def __init__(self) -> None:
        self.principals: dict[str, str] = {}
        self.principal_roles: set[str] = set()
        self.catalog_roles: set[str] = {"catalog_admin"}
        self.assigned: defaultdict[str, set[str]] = defaultdict(set)
        self.used: defaultdict[str, set[str]] = defaultdict(set)
        self.grants: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.changes: list[str] = []
        self.fails_at: int | None = None
        self.secrets = 0
        self.kind: dict[str, Any] = {"type": "INTERNAL", "storageConfigInfo": {"storageType": "S3"}}

    def client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/oauth/tokens"):
            return httpx.Response(200, json={"access_token": "t", "expires_in": 3600})
        parts = path.removeprefix("/api/management/v1/").split("/")
        if request.method == "GET":
            found = self._read(parts)
            return httpx.Response(200, json=found) if found is not None else _error(404, "NotFoundException")
        self.changes.append(f"{request.method} {path.removeprefix('/api/management/v1/')}")
        if self.fails_at == len(self.changes):
            return _error(403, "ForbiddenException")
        return self._write(parts, json.loads(request.content))

    def _read(self, parts: list[str]) -> Any:
        match parts:
            case ["catalogs", "lake"]:
                properties = {"polaris.config.purge-view-metadata-on-drop": "false"}
                return {"name": "lake", "properties": properties, **self.kind}
            case ["principals", name]:
                return {"clientId": self.principals[name]} if name in self.principals else None
            case ["principals", name, "principal-roles"]:
                return {"roles": _named(self.assigned[name])} if name in self.principals else None
            case ["principal-roles", role]:
                return {"name": role} if role in self.principal_roles else None
            case ["principal-roles", role, "catalog-roles", "lake"]:
                return {"roles": _named(self.used[role])} if role in self.principal_roles else None
            case ["catalogs", "lake", "catalog-roles", role]:
                return {"name": role} if role in self.catalog_roles else None
            case ["catalogs", "lake", "catalog-roles", role, "grants"]:
                return {"grants": self.grants[role]} if role in self.catalog_roles else None
            case _:
                return None

    def _write(self, parts: list[str], body: dict[str, Any]) -> httpx.Response:
        match parts:
            case ["principals"]:
                return self._secret(body["principal"]["name"], 201)
            case ["principals", name, "reset"]:
                return self._secret(name, 200)
            case ["principals", name, "principal-roles"]:
                self.assigned[name].add(body["principalRole"]["name"])
            case ["principal-roles"]:
                self.principal_roles.add(body["principalRole"]["name"])
            case ["principal-roles", role, "catalog-roles", "lake"]:
                self.used[role].add(body["catalogRole"]["name"])
            case ["catalogs", "lake", "catalog-roles"]:
                self.catalog_roles.add(body["catalogRole"]["name"])
            case ["catalogs", "lake", "catalog-roles", role, "grants"]:
                self.grants[role].append(body["grant"])
            case _:
                return _error(404, "NotFoundException")
        return httpx.Response(201, content=b"")

    def _secret(self, name: str, status: int) -> httpx.Response:
        self.secrets += 1
        self.principals[name] = f"id-of-{name}"
        credentials = {"clientId": f"id-of-{name}", "clientSecret": f"secret-{self.secrets}"}
        return httpx.Response(status, json={"principal": {"name": name}, "credentials": credentials})


def _named(names: set[str]) -> list[dict[str, str]]:
    return [{"name": name} for name in sorted(names)]


def _error(status: int, kind: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"type": kind, "message": "as scripted", "code": status}})
