"""The issuer's keys are fetched only when needed, and only public signature keys are used."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.client import IncompleteRead
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import jwt
import pytest

from delegation.edge.errors import KeysUnavailable
from delegation.edge.trust.tokens import CachePolicy, JwksKeys, https_get
from tests.unit.edge.trust.pki import NOW, ec_key, ed_key, jwk, rsa_key

URL = "https://issuer.test/jwks.json"
POLICY = CachePolicy(fresh=timedelta(minutes=10), stale=timedelta(hours=1), pause=timedelta(seconds=30))


@dataclass
class Answer:
    """A scripted HTTP response."""

    status: int = 200
    body: bytes = b""

    def read(self, amount: int) -> bytes:
        return self.body[:amount]


class Issuer:
    """A scripted JWKS endpoint and a manual clock."""

    def __init__(self, answer: Callable[[], Answer | Exception]) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self.now = NOW

    def clock(self) -> datetime:
        return self.now

    def keys(self) -> JwksKeys:
        return JwksKeys(URL, get=self._get, clock=self.clock, policy=POLICY)

    def later(self, **by: float) -> None:
        self.now += timedelta(**by)

    @contextmanager
    def _get(self, url: str) -> Iterator[Answer]:
        self.requests.append(url)
        answer = self.answer()
        if isinstance(answer, Exception):
            raise answer
        yield answer


def key_set(*members: Any) -> Callable[[], Answer]:
    return lambda: Answer(body=json.dumps({"keys": list(members)}).encode())


def kids(source: JwksKeys, kid: str | None) -> list[str | None]:
    return [key.kid for key in source.keys(kid)]


def test_keys_are_fetched_once_and_cached() -> None:
    issuer = Issuer(key_set(jwk(rsa_key(), "a"), jwk(ec_key(), "b")))
    source = issuer.keys()
    for _ in range(5):
        assert kids(source, "a") == ["a"]
        assert kids(source, "b") == ["b"]
    assert len(issuer.requests) == 1
    assert issuer.requests[0] == URL
    issuer.later(minutes=10)
    kids(source, "a")
    assert len(issuer.requests) == 2


def test_a_rotated_key_is_found_by_another_request() -> None:
    issuer = Issuer(key_set(jwk(rsa_key(), "old")))
    source = issuer.keys()
    kids(source, "old")
    issuer.later(seconds=31)
    issuer.answer = key_set(jwk(rsa_key(), "old"), jwk(rsa_key("new"), "new"))
    assert kids(source, "new") == ["new"]
    assert len(issuer.requests) == 2


def test_invented_key_ids_do_not_flood_the_issuer() -> None:
    issuer = Issuer(key_set(jwk(rsa_key(), "a")))
    source = issuer.keys()
    for second in range(60):
        assert kids(source, f"invented-{second}") == []
        issuer.later(seconds=1)
    assert len(issuer.requests) == 2


def test_cached_keys_are_used_while_the_issuer_is_unreachable_but_not_forever() -> None:
    issuer = Issuer(key_set(jwk(rsa_key(), "a")))
    source = issuer.keys()
    kids(source, "a")
    issuer.answer = lambda: ConnectionRefusedError("refused")
    issuer.later(minutes=69)
    assert kids(source, "a") == ["a"]
    issuer.later(minutes=1)
    with pytest.raises(KeysUnavailable):
        kids(source, "a")
    issuer.later(minutes=1)
    issuer.answer = key_set(jwk(rsa_key("new"), "b"))
    assert kids(source, "b") == ["b"]


def test_an_unreachable_issuer_is_not_requested_for_every_token() -> None:
    issuer = Issuer(key_set(jwk(rsa_key(), "a")))
    source = issuer.keys()
    kids(source, "a")
    issuer.answer = lambda: TimeoutError("slow")
    issuer.later(minutes=11)
    for _ in range(29):
        kids(source, "a")
        issuer.later(seconds=1)
    assert len(issuer.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        ConnectionRefusedError("refused"),
        TimeoutError("slow"),
        Answer(500),
        Answer(302),
        IncompleteRead(b""),
        Answer(body=b"nonsense"),
        Answer(body=b"[" * 100_000),
        Answer(body=b"\xff"),
        Answer(body=b"[]"),
        Answer(body=b'{"keys": {}}'),
        Answer(body=b'{"keys": [' + b" " * 300_000 + b"]}"),
    ],
    ids=lambda answer: str(answer)[:40],
)
def test_a_failed_first_fetch_is_keys_unavailable(answer: Answer | Exception) -> None:
    issuer = Issuer(lambda: answer)
    with pytest.raises(KeysUnavailable):
        issuer.keys().keys("a")
    assert len(issuer.requests) == 1


def test_a_failed_first_fetch_is_repeated_without_a_pause() -> None:
    issuer = Issuer(lambda: Answer(503))
    source = issuer.keys()
    with pytest.raises(KeysUnavailable):
        source.keys("a")
    issuer.answer = key_set(jwk(rsa_key(), "a"))
    assert kids(source, "a") == ["a"]


PRIVATE = {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key())), "kid": "a"}


@pytest.mark.parametrize(
    "member",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {**PRIVATE, "use": "sig"},
        jwk(rsa_key(), "a", use="enc"),
        jwk(rsa_key(), "a", alg="HS256"),
        jwk(rsa_key(), "a", alg="none"),
        jwk(rsa_key(), "a", kty="EC"),
        jwk(rsa_key(), "a", n=5),
        jwk(rsa_key(), "a", n="!"),
        jwk(ec_key(), "a", crv="P-384"),
        jwk(ec_key(), "a", x=""),
        jwk(ed_key(), "a", crv="X25519"),
        {"kid": "a"},
        "a",
        None,
        [],
    ],
)
def test_a_key_that_is_not_a_public_signature_key_is_ignored(member: Any) -> None:
    issuer = Issuer(key_set(member, jwk(rsa_key("good"), "good")))
    source = issuer.keys()
    assert kids(source, "a") == []
    assert kids(source, "good") == ["good"]


def test_a_key_with_an_algorithm_is_used_with_no_other() -> None:
    issuer = Issuer(key_set(jwk(rsa_key(), "a", alg="RS256"), jwk(rsa_key(), "b"), jwk(ed_key(), "c")))
    source = issuer.keys()
    algorithms = {key.kid: key.algorithms for kid in "abc" for key in source.keys(kid)}
    assert algorithms == {"a": ("RS256",), "b": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "c": ("EdDSA",)}


def test_a_token_without_a_key_id_is_verified_with_the_only_key() -> None:
    assert kids(Issuer(key_set(jwk(rsa_key(), "a"))).keys(), None) == ["a"]
    assert kids(Issuer(key_set(jwk(rsa_key(), "a"), jwk(ec_key(), "b"))).keys(), None) == []


def test_a_key_without_an_id_matches_any_token() -> None:
    assert kids(Issuer(key_set(jwk(rsa_key(), None), jwk(ec_key(), "b"))).keys(), "x") == [None]


@contextmanager
def served(body: bytes) -> Iterator[str]:
    """Serve a key set on loopback; `/moved` redirects to it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302 if self.path == "/moved" else 200)
            self.send_header("Location", "/keys")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_keys_are_fetched_over_http_and_no_redirect_is_followed() -> None:
    with served(key_set(jwk(rsa_key(), "a"))().body) as url:
        assert kids(JwksKeys(f"{url}/keys", get=https_get(5), clock=lambda: NOW), "a") == ["a"]
        with pytest.raises(KeysUnavailable, match="302"):
            JwksKeys(f"{url}/moved", get=https_get(5), clock=lambda: NOW).keys("a")
    with pytest.raises(KeysUnavailable, match="URLError"):
        JwksKeys(f"{url}/keys", get=https_get(5), clock=lambda: NOW).keys("a")
