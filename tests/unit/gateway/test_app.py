"""The gateway's path of a request: what it forwards, refuses and adds."""

import json
from datetime import timedelta

import pytest

from delegation.gateway.app import GatewayRules
from delegation.gateway.messages import (
    CatalogAnswer,
    CatalogOutcomeUnknown,
    CatalogRequest,
    CatalogUnavailable,
    json_answer,
)
from tests.unit.gateway.world import RecordingUpstream, gateway_over, request

TABLE = "v1/lake/namespaces/ns/tables/t"


class Keys:
    lifetime = timedelta(minutes=30)

    def __init__(self):
        self.performed = []

    def perform(self, request, caller, mutation):
        self.performed.append((request, caller, mutation))
        return CatalogAnswer(204)


class Drops:
    def __init__(self):
        self.dropped = []

    def drop(self, request, caller, identifier):
        self.dropped.append(str(identifier))
        return CatalogAnswer(204)


def error_of(answer: CatalogAnswer) -> dict:
    error = json.loads(answer.body)["error"]
    assert (error["code"], answer.header("content-type")) == (answer.status, "application/json")
    return error


def test_without_a_key_a_request_is_forwarded_byte_for_byte():
    body = b'{ "requirements": [] , "n": 1.0, "n": 2 }\xff'
    upstream = RecordingUpstream(lambda _request: CatalogAnswer(200, (("ETag", "x"), ("Connection", "close")), b"\x1f"))
    sent = CatalogRequest("POST", f"{TABLE}%2Fu", "b=2&a=1&a", (("X-Forwarded-For", "1.2.3.4"), ("A", "1")), body)
    answer = gateway_over(upstream, keys=Keys()).answer(sent)
    (got,) = upstream.sent
    assert (got.method, got.path, got.query, got.body) == (sent.method, sent.path, sent.query, sent.body)
    assert got.headers[:-1] == sent.headers
    assert got.headers[-1][0] == "X-Delegation-Gateway"
    assert (answer.status, answer.headers, answer.body) == (200, (("ETag", "x"),), b"\x1f")


def test_headers_of_one_connection_are_not_forwarded():
    upstream = RecordingUpstream()
    names = ["Host", "Content-Length", "Connection", "X-Own", "TE", "Transfer-Encoding", "Upgrade", "Accept"]
    values = {name: "X-Own, close" if name == "Connection" else "1" for name in names}
    gateway_over(upstream).answer(CatalogRequest("GET", TABLE, "", tuple(values.items())))
    assert [name for name, _ in upstream.sent[0].headers] == ["Accept", "X-Delegation-Gateway"]


def test_a_request_that_comes_back_is_refused():
    upstream = RecordingUpstream()
    gateway_over(upstream).answer(request("GET", TABLE))
    answer = gateway_over(upstream).answer(upstream.sent[0])
    assert (answer.status, error_of(answer)["type"], len(upstream.sent)) == (508, "LoopDetectedException", 1)


def test_a_body_that_does_not_fit_is_refused_with_what_to_do():
    upstream = RecordingUpstream()
    answer = gateway_over(upstream, rules=GatewayRules(largest_body=3)).answer(request("POST", TABLE, b"1234"))
    assert (answer.status, upstream.sent) == (413, [])
    assert "Idempotency-Key header" in error_of(answer)["message"]
    assert gateway_over(upstream, rules=GatewayRules(largest_body=4)).answer(request("POST", TABLE, b"1234")).is_success


@pytest.mark.parametrize("key", ["", " ", "\t", "a b", "-k", ".a", "ä", "a/b", "a" * 256])
@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("POST", TABLE, ""),
        ("DELETE", TABLE, "purgeRequested=true"),
        ("GET", "v1/config", ""),
        ("GET", TABLE, ""),
        ("POST", f"{TABLE}/metrics", ""),
        ("POST", f"{TABLE}/unregister", ""),
        ("POST", f"{TABLE}/notifications", ""),
        ("POST", "polaris/v1/lake/namespaces/ns/generic-tables", ""),
        ("GET", "v1/tombstones", "mine"),
        ("POST", "v1/tombstones/0123456789abcdef-1760000000000-aabbccdd/restore", ""),
    ],
)
def test_a_malformed_key_is_refused_on_every_request(method, path, query, key):
    for parts in ({}, {"keys": Keys(), "drops": Drops()}):
        upstream = RecordingUpstream()
        answer = gateway_over(upstream, **parts).answer(request(method, path, query=query, idempotency_key=key))
        assert (answer.status, upstream.sent) == (400, [])
        assert error_of(answer)["message"].startswith("Idempotency-Key: ")


def test_a_change_for_which_no_key_is_kept_is_refused_with_the_reason_where_keys_are_honoured():
    sent = request("POST", "polaris/v1/lake/namespaces/ns/generic-tables", idempotency_key="k")
    upstream = RecordingUpstream()
    answer = gateway_over(upstream, keys=Keys()).answer(sent)
    assert (answer.status, error_of(answer)["type"]) == (400, "UnsupportedOperationException")
    assert "without the key" in error_of(answer)["message"]
    assert upstream.sent == []
    assert gateway_over(upstream).answer(sent).status == 200  # what the catalog does with keys is its own matter there


def test_a_mutation_with_a_key_is_performed_and_never_forwarded_as_it_is():
    upstream, keys = RecordingUpstream(), Keys()
    answer = gateway_over(upstream, keys=keys).answer(request("POST", TABLE, idempotency_key="k"))
    assert (answer.status, len(keys.performed), upstream.sent) == (204, 1, [])


def test_where_keys_are_not_honoured_they_are_forwarded():
    upstream = RecordingUpstream()
    gateway_over(upstream).answer(request("POST", TABLE, idempotency_key="k"))
    assert upstream.sent[0].header("Idempotency-Key") == "k"


def test_a_drop_with_purge_is_dropped_by_whom_it_concerns():
    path, purge = TABLE, {"query": "purgeRequested=true"}
    upstream, drops = RecordingUpstream(), Drops()
    assert (
        gateway_over(upstream, drops=lambda: drops, keys=Keys()).answer(request("DELETE", path, **purge)).status == 204
    )
    assert (drops.dropped, upstream.sent) == (["lake.ns.t"], [])
    assert gateway_over(upstream).answer(request("DELETE", path, **purge)).is_success
    assert upstream.sent[0].query == "purgeRequested=true"
    refused = gateway_over(upstream, rules=GatewayRules(refuses_purges=True)).answer(request("DELETE", path, **purge))
    assert (refused.status, len(upstream.sent)) == (400, 1)
    assert "delegation:gateway-purge-requests" in error_of(refused)["message"]


def test_without_drops_a_purge_with_a_key_is_a_mutation():
    keys = Keys()
    gateway_over(RecordingUpstream(), keys=keys).answer(
        request("DELETE", TABLE, query="purgeRequested=true", idempotency_key="k")
    )
    assert len(keys.performed) == 1


@pytest.mark.parametrize(
    ("error", "status", "retries"), [(CatalogUnavailable("no"), 503, True), (CatalogOutcomeUnknown("no"), 504, False)]
)
def test_a_catalog_that_does_not_answer_is_an_error_of_icebergs_form(error, status, retries):
    def fail(_request):
        raise error

    answer = gateway_over(RecordingUpstream(fail)).answer(request("GET", TABLE))
    assert (answer.status, error_of(answer)["message"]) == (status, "no")
    assert (answer.header("Retry-After") is not None) is retries


CONFIG = {"defaults": {"a": "1"}, "overrides": {"prefix": "lake"}, "endpoints": ["GET /v1/x"]}


def discovered(document, *, keys=None, status=200, headers=()):
    upstream = RecordingUpstream(lambda _request: json_answer(status, document, *headers))
    sent = request("GET", "v1/config", query="warehouse=lake", accept_encoding="gzip", authorization="Bearer t")
    answer = gateway_over(upstream, keys=keys).answer(sent)
    assert upstream.sent[0].header("Accept-Encoding") == "identity"
    assert upstream.sent[0].header("Authorization") == "Bearer t"
    return answer


def test_both_forms_of_discovery_are_added_and_the_rest_stays():
    answer = discovered(CONFIG, keys=Keys(), headers=(("ETag", "x"), ("X-Request-ID", "r")))
    assert json.loads(answer.body) == {
        **CONFIG,
        "properties": {"idempotency-key-supported": "true", "idempotency-key-lifetime": "PT30M"},
        "idempotency-key-lifetime": "PT30M",
    }
    assert (answer.header("X-Request-ID"), answer.header("ETag")) == ("r", None)
    assert [name.lower() for name, _ in answer.headers].count("content-type") == 1


def test_without_keys_discovery_says_so_and_keeps_what_the_catalog_honours_itself():
    own = {**CONFIG, "idempotency-key-lifetime": "PT5M", "properties": {"x": "y"}}
    answer = discovered(own)
    assert json.loads(answer.body) == {**own, "properties": {"x": "y", "idempotency-key-supported": "false"}}


def test_an_error_of_discovery_passes_through():
    answer = discovered({"error": {"message": "no", "type": "NotFoundException", "code": 404}}, status=404, keys=Keys())
    assert (answer.status, error_of(answer)["message"]) == (404, "no")


@pytest.mark.parametrize(
    ("lifetime", "text"), [(1800, "PT30M"), (90, "PT1M30S"), (86_400, "PT24H"), (5400, "PT1H30M"), (1, "PT1S")]
)
def test_lifetimes_are_iso_8601(lifetime, text):
    keys = Keys()
    keys.lifetime = timedelta(seconds=lifetime)
    assert json.loads(discovered(CONFIG, keys=keys).body)["idempotency-key-lifetime"] == text


class Owners:
    def __init__(self):
        self.asked = []

    def list(self, request, caller):
        self.asked.append(("list", caller.authorization))
        return CatalogAnswer(200)

    def restore(self, request, caller, tombstone_id):
        self.asked.append((tombstone_id, caller.authorization))
        return CatalogAnswer(200)


def test_callers_tombstones_are_answered_here_and_forwarded_by_a_gateway_without_drops():
    found, upstream, owners = "0123456789abcdef-1760000000000-aabbccdd", RecordingUpstream(), Owners()
    sent = [
        request("GET", "v1/tombstones", query="mine=true", authorization="a"),
        request("POST", f"v1/tombstones/{found}/restore", authorization="b"),
    ]
    for one in sent:
        assert gateway_over(upstream, tombstones=lambda: owners).answer(one).status == 200
    assert (owners.asked, upstream.sent) == ([("list", "a"), (found, "b")], [])
    for one in sent:
        gateway_over(upstream).answer(one)
    assert [one.path for one in upstream.sent] == [one.path for one in sent]
