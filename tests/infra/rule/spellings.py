"""Requests that differ only in spelling, and a gateway that keeps what it sends to the catalog and what it records."""

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, unquote, unquote_to_bytes

from delegation.gateway.app import Gateway, answer_event
from delegation.gateway.forwarding import Forwarder, GatewayCaller
from delegation.gateway.keys.service import CatalogMutations, Patience, policy_for
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, error_answer
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import MemoryReservationStore

BASE: Final = "/api/catalog"
KEY: Final = ("Idempotency-Key", "k")
REQUESTS: Final = (
    ("POST", "v1/lake/namespaces/sales%1Feu/tables/orders"),
    ("DELETE", "v1/lake/namespaces/sales%1Feu/tables/orders"),
    ("DELETE", "v1/lake/namespaces/sales%1Feu/tables/orders?purgeRequested=true"),
    ("DELETE", "v1/lake/namespaces/sales/views/o'(r)d+e%20r,s"),
    ("POST", "v1/lake/tables/rename"),
    ("POST", "v1/lake/namespaces"),
    ("DELETE", "v1/lake/namespaces/sales"),
    ("GET", "v1/config?warehouse=lake"),
)
_NAMED: Final = {"namespace": ["a"], "name": "t"}
_INSERTED: Final = (
    "/./", "/../", "/x/../", "//", "/%2e/", "/%2E%2e/", "/%252e%252e/", "\\", "%5c", "/..%2f", "%2f..%2f", ";a=b", ";",
    "/../../management/v1/principals/", "%00", "/", "%2F", "%252F",
)  # fmt: skip


def spelled(seed: int, number: int) -> Iterator[tuple[str, str]]:
    """Yield methods and targets of request lines; most mean the same, some lead elsewhere if they are resolved."""
    draw = random.Random(seed)
    for _ in range(number):
        method, target = draw.choice(REQUESTS)
        path, mark, query = target.partition("?")
        for _ in range(draw.randint(0, 3)):
            path = _changed(path, draw)
        yield method, f"{BASE}/{path}{mark}{query}"


def _changed(path: str, draw: random.Random) -> str:
    at = draw.randrange(len(path))
    while path[at] == "%" or "%" in path[max(0, at - 2) : at]:  # not into an escape
        at = draw.randrange(len(path))
    escaped = f"%{ord(path[at]):02x}"
    kind = draw.randrange(5)
    if kind < 2:
        return path[:at] + (escaped if kind else escaped.upper()) + path[at + 1 :]
    if kind == 2:
        return f"{path[:at]}%25{escaped[1:]}{path[at + 1 :]}"
    if kind == 3 and path[at] != "/":
        return path.replace(path[at], escaped)
    return path[:at] + draw.choice(_INSERTED) + path[at:]


@dataclass
class SeenCatalog:
    """Refuses everything, as the catalog does what does not exist, and keeps the paths."""

    paths: list[str] = field(default_factory=list)

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """See Upstream.send."""
        self.paths.append(request.path)
        return error_answer(404, "NoSuchNamespaceException", "no such namespace")


class OneCaller:
    """A verified caller, the same for every request."""

    def caller(self, request: CatalogRequest) -> GatewayCaller:
        """See TokenCallers.caller."""
        return GatewayCaller("ann", request.header("Authorization"))


class SpelledGateway:
    """The gateway behind a proxy; `served` counts the statuses that it answered."""

    def __init__(self) -> None:
        self.catalog, self.store = SeenCatalog(), MemoryReservationStore()
        self.served: defaultdict[int, int] = defaultdict(int)
        self._lock = threading.Lock()
        forwarder, lifetime = Forwarder(self.catalog, timeout=12), timedelta(minutes=30)
        nonces = iter(range(10**9))
        mutations = Mutations(
            self.store, policy=policy_for(12, lifetime), clock=self._now, nonce=lambda: f"n{next(nonces)}"
        )
        keys = CatalogMutations(mutations, forwarder, self._now, Patience(0.0), "POLARIS", lifetime)
        self._gateway = Gateway(forwarder, OneCaller(), keys=keys)

    def serve(self, method: str, target: str, headers: dict[str, str]) -> dict[str, Any]:
        """Answer a request as API Gateway hands it over."""
        path, _, query = target.partition("?")
        body = (
            '{"namespace":["new"],"source":{"namespace":["a"],"name":"t"},"destination":{"namespace":["a"],"name":"u"}}'
        )
        event = {
            "httpMethod": method,
            "path": unquote(path),
            "multiValueHeaders": {name: [value] for name, value in headers.items()},
            "multiValueQueryStringParameters": parse_qs(query, keep_blank_values=True) or None,
            "body": body if method == "POST" else None,
            "requestContext": {"path": path},
        }
        with self._lock:
            answer = answer_event(event, self._gateway.answer, BASE)
            self.served[int(answer["statusCode"])] += 1
        return answer

    def check(self) -> None:
        """Nothing was sent out of the base, however it is read, and no resource has two records."""
        for path in self.catalog.paths:
            read = path
            for _ in range(4):
                assert not {"", ".", ".."} & set(read.split("/")), path
                assert "\\" not in read, path
                assert ";" not in path, path
                read = unquote(read)
        records: defaultdict[tuple[object, ...], set[str]] = defaultdict(set)
        for scope, record in self.store._records.items():
            meant = tuple(unquote_to_bytes(part) for part in record.resource_path.split("/"))
            records[record.method, record.idempotency_key, meant].add(scope)
        assert records
        assert {len(scopes) for scopes in records.values()} == {1}

    @staticmethod
    def _now() -> datetime:
        return datetime(2026, 11, 22, tzinfo=UTC)
