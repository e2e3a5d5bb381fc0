"""The HTTPS front: mutual TLS, then the request processing of API Gateway (apigateway.py).

The TLS handshake refuses a client without a certificate or with one of another authority.
"""

import contextlib
import json
import logging
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path

from infra.local.errors import CannotStartError
from infra.local.front import apigateway
from infra.local.front.apigateway import ApiRequest, LocalApiGateway, Response
from infra.local.front.http11 import ConnectionServer, HttpHandler, ServedFront
from infra.local.lambdas.functions import LocalFunction, PayloadTooLargeError, TooManyRequestsError
from infra.local.processes.programs import LOOPBACK

LOG = logging.getLogger(__name__)
# API Gateway developer guide, "Quotas": integration time-out of a REST API.
INTEGRATION_TIMEOUT_SECONDS = 29.0
_HANDSHAKE_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and the authority that must have issued client certificates."""

    certificate: Path
    key: Path
    client_authority: Path


def check_port(port: int) -> None:
    """Raise `CannotStartError` if `port` cannot be bound now; before the minutes that the other parts take to start."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as exc:
            raise _port_error(port, exc) from exc


def _port_error(port: int, exc: OSError) -> CannotStartError:
    return CannotStartError("HTTPS front", f"port {port} cannot be used ({exc.strerror})")


class Front(ServedFront):
    """API Gateway with a custom domain, mutual TLS and a REQUEST authorizer, on a loopback port."""

    def __init__(
        self,
        *,
        api: LocalFunction,
        authorizer: LocalFunction,
        tls: TlsFiles,
        gateway: LocalApiGateway,
        port: int = 0,
        integration_timeout_seconds: float = INTEGRATION_TIMEOUT_SECONDS,
    ) -> None:
        self._api = api
        self._authorizer = authorizer
        self._gateway = gateway
        self._timeout = integration_timeout_seconds
        try:
            server = _TlsServer(port, _context(tls), self.answer)
        except OSError as exc:
            raise _port_error(port, exc) from exc
        super().__init__("front", server)

    @property
    def url(self) -> str:
        """The API's base URL for callers, including the base path."""
        return f"https://{self.address}{self._gateway.base_path}"

    def answer(self, request: ApiRequest) -> Response:
        """Answer as API Gateway does: route, call the authorizer (never cached), call the integration."""
        route = self._gateway.route(request)
        if route is None:
            return apigateway.NO_MAPPING
        try:
            verdict = self._authorize(request, route)
            if isinstance(verdict, Response):
                return verdict
            event = self._gateway.proxy_event(request, route, verdict)
            call = self._calls.submit(self._api.invoke, json.dumps(event).encode())
            invocation = call.result(self._timeout)
        except PayloadTooLargeError:
            return apigateway.TOO_LARGE
        except TooManyRequestsError:
            return apigateway.THROTTLED
        except FutureTimeoutError:
            return apigateway.TIMED_OUT
        return apigateway.integration_response(invocation.error, invocation.payload, request.request_id)

    def _authorize(self, request: ApiRequest, route: str) -> "dict[str, str] | Response":
        event = self._gateway.authorizer_event(request, route)
        invocation = self._authorizer.invoke(json.dumps(event).encode())
        return apigateway.verdict(invocation.error, invocation.payload, self._gateway.method_arn(request, route))


def _context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tls.client_authority))
    context.load_cert_chain(tls.certificate, tls.key)
    context.verify_mode = ssl.CERT_REQUIRED
    # In TLS 1.3 a client learns of the refusal only after its handshake, in 1.2 within it; 1.2 is also the version of
    # the security policy TLS_1_2 of API Gateway.
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


class _HttpsHandler(HttpHandler):
    request: ssl.SSLSocket

    def client_certificate(self) -> bytes:
        return self.request.getpeercert(binary_form=True) or b""

    def plain_connection(self) -> socket.socket:
        return self.request.unwrap()


class _TlsServer(ConnectionServer):
    """The connection's thread does the handshake too, so a silent client delays no other."""

    handler = _HttpsHandler

    def __init__(self, port: int, context: ssl.SSLContext, answer: Callable[[ApiRequest], Response]) -> None:
        self._context = context
        super().__init__(port, answer)

    def connected(self, accepted: socket.socket) -> socket.socket | None:
        accepted.settimeout(_HANDSHAKE_TIMEOUT_SECONDS)
        try:
            return self._context.wrap_socket(accepted, server_side=True)
        except OSError as exc:
            LOG.info("TLS handshake refused: %s", exc)
            return None
