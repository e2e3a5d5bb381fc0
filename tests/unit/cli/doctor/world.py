"""A deployment in this process: an HTTPS server that demands client certificates, an issuer, Polaris; all can break."""

import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from delegation.client.settings import BASE_PATH
from infra.local.identities import CertificateAuthority

HEALTHY = {
    "status": "up",
    "version": "0.1.0",
    "realm": "POLARIS",
    "dependencies": [{"name": name, "ok": True} for name in ("task table", "plan bucket", "Polaris")],
}
GRANTS = [
    {"type": "catalog", "privilege": "NAMESPACE_LIST"},
    {"type": "catalog", "privilege": "TABLE_READ_DATA"},
    {"type": "catalog", "privilege": "NAMESPACE_READ_PROPERTIES"},
    {"type": "catalog", "privilege": "VIEW_READ_PROPERTIES"},
    {"type": "namespace", "namespace": ["sales"], "privilege": "TABLE_WRITE_DATA"},
]
_MANAGEMENT = "/api/management/v1"


def polaris_answers() -> dict[str, Any]:
    """The answers of Polaris to GET, by path; a path that is missing is answered with 404."""
    return {
        "/api/catalog/v1/config": {"overrides": {"prefix": "lake"}},
        "/api/catalog/v1/lake/namespaces/sales/tables": {"identifiers": [{"namespace": ["sales"], "name": "orders"}]},
        f"{_MANAGEMENT}/principals/delegation": {"name": "delegation", "clientId": "abc"},
        f"{_MANAGEMENT}/principals/delegation/principal-roles": {"roles": [{"name": "delegation"}]},
        f"{_MANAGEMENT}/principal-roles/delegation/catalog-roles/lake": {"roles": [{"name": "purger"}]},
        f"{_MANAGEMENT}/catalogs/lake": {
            "properties": {
                "polaris.config.purge-view-metadata-on-drop": "false",
                "polaris.config.default-unique-table-location.enabled": "true",
            }
        },
        f"{_MANAGEMENT}/catalogs/lake/catalog-roles/purger/grants": {"grants": list(GRANTS)},
    }


@dataclass
class Deployment:
    """What the servers answer; a test changes it."""

    ended: list[dict[str, Any]] | None = field(default_factory=list)
    """The service's own tasks that ended; None where the identity may not list tasks."""
    health: dict[str, Any] = field(default_factory=lambda: dict(HEALTHY))
    authorized: int = 200
    elsewhere: int = 404
    """The status of paths that the service does not have; API Gateway answers 403 where a domain has no mapping."""
    date: str | None = None
    secrets: dict[str, str] = field(default_factory=lambda: {"alice": "pw", "service": "pw", "admin": "pw"})
    scopes: frozenset[str] = frozenset({"manage_tasks", "PRINCIPAL_ROLE:ALL"})
    polaris: dict[str, Any] = field(default_factory=polaris_answers)
    forbidden: frozenset[str] = frozenset()


class _Handler(BaseHTTPRequestHandler):
    deployment: Deployment
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.deployment.date or super().date_time_string(timestamp)

    def answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Edge(_Handler):
    def do_GET(self) -> None:
        deployment = self.deployment
        path, _, query = self.path.partition("?")
        if path == f"{BASE_PATH}/v1/tasks" and deployment.ended is not None:
            (kind,) = parse_qs(query)["type"]
            self.answer(200, {"tasks": [one for one in deployment.ended if one["task_type"] == kind]})
        elif self.path != f"{BASE_PATH}/v1/health":
            self.answer(deployment.elsewhere, {"message": "as API Gateway answers"})
        elif "Authorization" not in self.headers:
            self.answer(200, {"status": "up"})
        elif deployment.authorized != 200:
            self.answer(deployment.authorized, {"error_code": "REFUSED", "message": "as scripted"})
        else:
            self.answer(200 if deployment.health["status"] == "up" else 503, deployment.health)


class _Plain(_Handler):
    """The issuer below /issuer, and Polaris."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        client, secret, scope = (form[name][0] for name in ("client_id", "client_secret", "scope"))
        if not self.path.startswith(("/issuer/", "/api/catalog/")):
            self.answer(404, {"message": "Not Found"})
        elif self.deployment.secrets.get(client) != secret:
            self.answer(401, {"error": "unauthorized_client"})
        elif scope not in self.deployment.scopes:
            self.answer(400, {"error": "invalid_scope"})
        else:
            self.answer(200, {"access_token": f"token-of-{client}", "expires_in": 3600})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = self.deployment.polaris.get(path)
        if path in self.deployment.forbidden:
            self.answer(403, {"error": {"type": "ForbiddenException", "message": "not authorized", "code": 403}})
        elif found is None:
            kind = "NoSuchNamespaceException" if "namespaces" in path else "NotFoundException"
            self.answer(404, {"error": {"type": kind, "message": "not found", "code": 404}})
        else:
            self.answer(200, found)


class Servers:
    """The two servers with their certificates in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority.create(folder / "pki")
        server = self.authority.issue_server()
        self.operator = self.authority.issue_client("alice", name="alice")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority.files.cert))
        context.load_cert_chain(server.cert, server.key)
        context.verify_mode = ssl.CERT_REQUIRED
        self._edge = _server(type("Edge", (_Edge,), {"deployment": Deployment()}))
        self._edge.socket = context.wrap_socket(self._edge.socket, server_side=True, do_handshake_on_connect=False)
        self._plain = _server(type("Plain", (_Plain,), {"deployment": Deployment()}))

    def serve(self, deployment: Deployment) -> Self:
        """Answer as this deployment from now on."""
        for server in (self._edge, self._plain):
            server.RequestHandlerClass.deployment = deployment  # type: ignore[attr-defined]
        return self

    @property
    def edge_url(self) -> str:
        return f"https://localhost:{self._edge.server_port}{BASE_PATH}"

    @property
    def plain_url(self) -> str:
        return f"http://127.0.0.1:{self._plain.server_port}"

    def stop(self) -> None:
        for server in (self._edge, self._plain):
            server.shutdown()
            server.server_close()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A refused handshake is what a test wants."""


def _server(handler: type[_Handler]) -> ThreadingHTTPServer:
    server = _QuietServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server
