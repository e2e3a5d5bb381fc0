"""The proxy in front of the catalog: the rule's requests go to the gateway's API, all others to the catalog itself.

Source: the rule of infra/rule, as a load balancer evaluates it; the API before the gateway is a private REST API.
"""

import contextlib
import http.client
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from infra.gateway_answers import CATALOG_ANSWERS
from infra.local.front import apigateway
from infra.local.front.apigateway import ApiRequest, LocalApiGateway, Response
from infra.local.front.http11 import ConnectionServer, ServedFront
from infra.local.front.https import INTEGRATION_TIMEOUT_SECONDS
from infra.local.lambdas.functions import Invocation, PayloadTooLargeError, TooManyRequestsError
from infra.local.processes.programs import HOP_BY_HOP, connection_to
from infra.rule.conditions import RoutedRequest, leads_to_gateway, listener_rules

CATALOG_TIMEOUT_SECONDS: Final = 60.0
VPC_ENDPOINT: Final = "vpce-local"
# Content-Length is written anew.
_OF_ONE_CONNECTION: Final = HOP_BY_HOP | {"content-length", "host", "transfer-encoding"}


class Invoked(Protocol):
    def invoke(self, payload: bytes) -> Invocation:
        """Run it once; raises PayloadTooLargeError and TooManyRequestsError."""


class CatalogBalancer(ServedFront):
    """Routes each request by the rules; `url` is the base of the catalog's API as clients use it.

    `catalog_url` is the catalog's own base, `base_path` that for clients, if it differs, and `gateway` the gateway's
    function. `takes_all` leads every request to the gateway, for tests of forwarding; `to_gateway` counts them.
    """

    def __init__(
        self,
        *,
        catalog_url: str,
        gateway: Invoked,
        region: str,
        account: str,
        base_path: str | None = None,
        rules: Iterable[Mapping[str, Any]] | None = None,
        takes_all: bool = False,
        port: int = 0,
    ) -> None:
        self._catalog = urlsplit(catalog_url)
        self._base_path = self._catalog.path.rstrip("/") if base_path is None else base_path
        self._gateway = gateway
        self._rules = listener_rules() if rules is None else list(rules)
        self._takes_all = takes_all
        self.to_gateway = 0
        self._api = LocalApiGateway(
            "localhost", "", region, account, api_id="local00gate", vpc_endpoint=VPC_ENDPOINT, encodes_bodies=True
        )
        super().__init__("balancer", ConnectionServer(port, self.answer, too_large=catalog_answer("REQUEST_TOO_LARGE")))

    @property
    def url(self) -> str:
        return f"http://{self.address}{self._base_path}"

    def answer(self, request: ApiRequest) -> Response:
        """Answer by the gateway if a rule matches, otherwise by the catalog."""
        routed = RoutedRequest(request.method, request.target, request.headers)
        if self._takes_all or leads_to_gateway(routed, self._rules):
            return self._by_gateway(request)
        return self._by_catalog(request)

    def _by_gateway(self, request: ApiRequest) -> Response:
        self.to_gateway += 1
        route = self._api.route(request) or "/"
        event = self._api.proxy_event(request, route, {})
        try:
            invocation = self._calls.submit(self._gateway.invoke, json.dumps(event).encode()).result(
                INTEGRATION_TIMEOUT_SECONDS
            )
        except PayloadTooLargeError:
            return catalog_answer("REQUEST_TOO_LARGE")
        except TooManyRequestsError:
            return catalog_answer("THROTTLED")
        except FutureTimeoutError:
            return catalog_answer("INTEGRATION_TIMEOUT")
        answer = apigateway.integration_response(invocation.error, invocation.payload, request.request_id)
        return catalog_answer("DEFAULT_5XX") if answer is apigateway.MALFORMED else answer

    def _by_catalog(self, request: ApiRequest) -> Response:
        with contextlib.closing(connection_to(self._catalog, timeout_seconds=CATALOG_TIMEOUT_SECONDS)) as connection:
            try:
                connection.putrequest(request.method, self._at_catalog(request.target), skip_accept_encoding=True)
                for name, value in _end_to_end(request.headers):
                    connection.putheader(name, value)
                if request.body or request.method in {"POST", "PUT"}:
                    connection.putheader("Content-Length", str(len(request.body)))
                connection.endheaders(request.body or None)
                answer = connection.getresponse()
                return Response(answer.status, tuple(_end_to_end(answer.getheaders())), answer.read())
            except (OSError, http.client.HTTPException):
                return catalog_answer("INTEGRATION_FAILURE")

    def _at_catalog(self, target: str) -> str:
        below = target.startswith(f"{self._base_path}/")
        return self._catalog.path.rstrip("/") + target.removeprefix(self._base_path) if below else target


def catalog_answer(kind: str) -> Response:
    """Return the deployed API's answer of a response type."""
    answer = CATALOG_ANSWERS[kind]
    headers = {"Content-Type": "application/json", **answer.headers}
    return Response(answer.status, tuple(headers.items()), answer.text().encode())


def _end_to_end(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _OF_ONE_CONNECTION]
