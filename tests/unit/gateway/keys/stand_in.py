"""The stand-in catalog without sockets and AWS, and gateways in front of it that can be killed at any call."""

import io
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from typing import Any, cast
from unittest import mock
from urllib.parse import unquote

import httpx
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import SecretStr

from delegation.edge.trust.tokens import StaticKeys, TokenVerifier, TrustedIssuer, public_key
from delegation.gateway.app import Gateway
from delegation.gateway.forwarding import Forwarder, KnownCatalogs, TokenCallers
from delegation.gateway.http import HttpUpstream
from delegation.gateway.keys.service import CatalogMutations, Patience, policy_for
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, Upstream
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import MemoryReservationStore, Reservation, ReservationStore
from delegation.storage.memory import Killed
from infra.local.catalog import access
from infra.local.catalog.access import LocalPrincipal
from infra.local.catalog.layout import PURGE_VIEWS
from infra.local.catalog.privileges import OWNER, READER
from infra.local.catalog.server import LocalCatalog
from infra.local.s3.requests import VendedKeys
from tests.kit.clocks import Clock

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TIMEOUT = 12.0
LIFETIME = timedelta(minutes=30)
AFTER_LEASE = policy_for(TIMEOUT, LIFETIME).lease + policy_for(TIMEOUT, LIFETIME).clock_drift + timedelta(seconds=1)
VEND = {"X-Iceberg-Access-Delegation": "vended-credentials"}
_nonces = count()


class MemoryS3:
    """The calls of an S3 client that the catalog makes."""

    def __init__(self, objects: dict[tuple[str, str], bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        if (Bucket, Key) not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": Key}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[Bucket, Key])}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, **_: Any) -> None:
        self.objects[Bucket, Key] = Body

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        self.objects.pop((Bucket, Key), None)


class MemorySts:
    """Hands out a new secret for each call."""

    def __init__(self) -> None:
        self._numbers = count()

    def assume_role(self, **_: Any) -> dict[str, Any]:
        number = next(self._numbers)
        named = {"AccessKeyId": "AK", "SecretAccessKey": "vended-secret-", "SessionToken": "token-"}
        return {"Credentials": {name: f"{word}{number}" for name, word in named.items()}}


@dataclass
class Life:
    """One gateway process: its calls of the catalog and the store in order; `at` one of them `act` is called."""

    at: Callable[[str, int], bool] = lambda _point, _number: False
    act: Callable[[], None] = lambda: None
    points: list[str] = field(default_factory=list)
    is_dead: bool = False

    def __call__(self, point: str) -> None:
        if self.is_dead:
            raise Killed
        self.points.append(point)
        if self.at(point, len(self.points) - 1):
            try:
                self.act()
            except Killed:
                self.is_dead = True
                raise


def kill() -> None:
    raise Killed


@dataclass
class WatchedUpstream:
    """The catalog; `respond` may replace its answer, and what `refuse` answers does not reach it."""

    upstream: Upstream
    life: Life
    respond: Callable[[CatalogRequest, CatalogAnswer], CatalogAnswer] = lambda _request, answer: answer
    refuse: Callable[[CatalogRequest], CatalogAnswer | None] = lambda _request: None
    sent: list[CatalogRequest] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        self.timeouts.append(timeout)
        what = "read" if request.method in {"GET", "HEAD"} else "change"
        self.life(f"before {what}")
        self.sent.append(request)
        if (refused := self.refuse(request)) is not None:
            return refused
        answer = self.upstream.send(request, timeout=timeout)
        self.life(f"after {what}")
        return self.respond(request, answer)


@dataclass
class WatchedStore:
    store: ReservationStore
    life: Life

    def get(self, scope: str) -> Reservation | None:
        return self.store.get(scope)

    def reserve(self, record: Reservation, now: datetime) -> None:
        self.life("before reserve")
        self.store.reserve(record, now)
        self.life("after reserve")

    def replace(self, record: Reservation, before: Reservation) -> None:
        what = "finalize" if record.answer is not None else "release"
        what = "take over" if record.attempt > before.attempt else what
        self.life(f"before {what}")
        self.store.replace(record, before)
        self.life(f"after {what}")


_TOKENS: dict[str, str] = {}
"""By principal; a token of one catalog is one of every other, which has the same key, time and principals."""


class KeyedCatalog:
    """A catalog `lake` with the principals `owner`, `other` (who may do the same) and `reader`."""

    def __init__(self, keys_lifetime: timedelta | None = None, *, newer: bool = False) -> None:
        self.clock = Clock(NOW)
        self.store = MemoryReservationStore()
        principals = [
            LocalPrincipal(name, f"{name}-id", SecretStr(f"{name}-secret"), READER if name == "reader" else OWNER)
            for name in ("owner", "other", "reader")
        ]
        with one_broker_key():
            self.catalog = LocalCatalog(
                name="lake", location="s3://lake/tables", s3=cast("Any", MemoryS3()), sts=cast("Any", MemorySts()),
                keys=VendedKeys(), s3_endpoint="http://127.0.0.1:1", region="us-east-1", principals=principals,
                root=SecretStr("root"), clock=self.clock, properties={PURGE_VIEWS: "false"},
                keys_lifetime=keys_lifetime, newer=newer,
            )  # fmt: skip
        self.http = httpx.Client(transport=InProcess(self.catalog))
        self.upstream: Any = HttpUpstream("http://catalog.test/api/catalog", self.http)
        self.tokens = dict(_TOKENS) or {each.name: self.token(each.name) for each in principals}
        _TOKENS.update(self.tokens)
        self.sent: list[CatalogRequest] = []
        self.timeouts: list[float] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        self.http.close()
        self.catalog.stop()

    def token(self, name: str) -> str:
        form = {
            "grant_type": "client_credentials",
            "client_id": f"{name}-id",
            "client_secret": f"{name}-secret",
            "scope": "PRINCIPAL_ROLE:ALL",
        }
        return str(self.http.post("http://catalog.test/api/catalog/v1/oauth/tokens", data=form).json()["access_token"])

    def gateway(
        self,
        life: Life | None = None,
        *,
        patience: Patience | None = None,
        trusts_another_key: bool = False,
        catalogs: KnownCatalogs | bool = False,
        **parts: Any,
    ) -> Gateway:
        """Return a new gateway process."""
        life = life or Life()
        forwarder = Forwarder(
            WatchedUpstream(self.upstream, life, sent=self.sent, timeouts=self.timeouts, **parts), timeout=TIMEOUT
        )
        if isinstance(catalogs, bool):
            catalogs = KnownCatalogs(forwarder) if catalogs else None
        keys = StaticKeys((public_key(_other_pem() if trusts_another_key else self.catalog.tokens.public_key_pem()),))
        callers = TokenCallers(TokenVerifier((TrustedIssuer("polaris", keys),), clock=self.clock))
        mutations = Mutations(
            WatchedStore(self.store, life),
            policy=policy_for(TIMEOUT, LIFETIME),
            clock=self.clock,
            nonce=lambda: f"nonce-{next(_nonces)}",
        )
        performed = CatalogMutations(
            mutations, forwarder, self.clock, patience or Patience(0.0), "POLARIS", LIFETIME, catalogs=catalogs
        )
        return Gateway(forwarder, callers, keys=performed)

    def direct(self, method: str, path: str, body: Any = None, *, who: str = "owner", query: str = "") -> CatalogAnswer:
        """Send a request to the catalog itself."""
        return self.upstream.send(self.request(method, path, body, who=who, query=query), timeout=TIMEOUT)

    def document(self, path: str) -> Any:
        return json.loads(self.direct("GET", path).body)

    def request(
        self, method: str, path: str, body: Any = None, *, who: str = "owner", query: str = "", **headers: str
    ) -> CatalogRequest:
        """A request to a path of the catalog `lake`; `idempotency_key` is the header of that name."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Authorization": f"Bearer {self.tokens[who]}"}
        named |= {"Content-Type": "application/json"} if content else {}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        return CatalogRequest(method, f"v1/lake/{path}", query, tuple(named.items()), content)

    def call(self, request: CatalogRequest, life: Life | None = None, **parts: Any) -> CatalogAnswer | None:
        """Have a new gateway process answer; None if it was killed."""
        try:
            return self.gateway(life, **parts).answer(request)
        except Killed:
            return None

    def lost(self, request: CatalogRequest, **parts: Any) -> None:
        """Have a gateway apply a request and die before it answers."""
        self._killed("after change", request, **parts)

    def never_sent(self, request: CatalogRequest, **parts: Any) -> None:
        """Have a gateway die before it sends a request."""
        self._killed("before change", request, **parts)

    def _killed(self, at: str, request: CatalogRequest, **parts: Any) -> None:
        assert self.call(request, Life(lambda point, _: point == at, kill), **parts) is None
        self.clock.advance(AFTER_LEASE)


@cache
def _broker_key() -> RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def one_broker_key() -> Any:
    """Give each catalog that is made within it one key: making it takes longer than a test."""
    return mock.patch.object(access.rsa, "generate_private_key", return_value=_broker_key())


@cache
def _other_pem() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class InProcess(httpx.BaseTransport):
    """A WSGI application without a socket; REQUEST_URI is the target as sent, as servers give it."""

    def __init__(self, app: Any) -> None:
        def with_target(environ: dict[str, Any], start_response: Any) -> Any:
            target = environ.pop("HTTP_X_TARGET")
            path, _, query = target.partition("?")
            read = {"REQUEST_URI": target, "PATH_INFO": unquote(path, "latin-1"), "QUERY_STRING": query}
            return app({**environ, **read}, start_response)

        self._wsgi = httpx.WSGITransport(app=with_target)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["X-Target"] = request.extensions.get("target", request.url.raw_path).decode()
        return self._wsgi.handle_request(request)
