"""Events of API Gateway and answers to them: nothing of a path or a body is lost on the way."""

import base64
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.gateway.app import LARGEST_ANSWER, answer_event, event_of, request_of
from delegation.gateway.messages import CatalogAnswer, CatalogAnswerTooLarge, CatalogRequest

BASE = "/api/catalog"
JSON = (("Content-Type", "application/json"),)


def event(path: str, **members):
    raw = members.pop("raw", f"{BASE}/{path}")
    return {
        "httpMethod": "POST",
        "path": "/decoded and not read",
        "multiValueHeaders": {"Accept": ["a", "b"], "X": ["1"]},
        "multiValueQueryStringParameters": None,
        "body": None,
        "isBase64Encoded": False,
        "requestContext": {"path": raw, "requestId": "r"},
        **members,
    }


@pytest.mark.parametrize("prefix", ["", "/live"])
def test_the_path_stays_as_it_was_received(prefix):
    path = "v1/lake/namespaces/a%1Fb%2Fc/tables/t%20u%252F"
    found = request_of(event(path, raw=f"{prefix}{BASE}/{path}"), BASE)
    assert (found.method, found.path, found.query, found.body) == ("POST", path, "", b"")
    assert found.headers == (("Accept", "a"), ("Accept", "b"), ("X", "1"))


def test_a_catalog_may_be_at_the_root():
    assert request_of(event("", raw="/v1/config"), "").path == "v1/config"


@pytest.mark.parametrize("raw", ["/", "/v1/config", "/api/catalogue/v1/config", "/a/b/api/catalog/v1/config"])
def test_another_path_is_not_the_catalogs(raw):
    answer = answer_event(event("", raw=raw), lambda _request: CatalogAnswer(204), BASE)
    assert (answer["statusCode"], json.loads(answer["body"])["error"]["type"]) == (404, "NotFoundException")


def test_a_query_is_encoded_again():
    parameters = {"pageToken": ["a&b=c d"], "x": ["1", "2"], "e": [""]}
    found = request_of(event("v1/x", multiValueQueryStringParameters=parameters), BASE)
    assert found.query == "pageToken=a%26b%3Dc%20d&x=1&x=2&e="


@given(st.binary(max_size=50))
def test_a_body_arrives_as_bytes(body):
    encoded = base64.b64encode(body).decode()
    assert request_of(event("v1/x", body=encoded, isBase64Encoded=True), BASE).body == body


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_a_text_arrives_as_utf_8(text):
    assert request_of(event("v1/x", body=text), BASE).body == text.encode()


@given(st.binary(max_size=50))
def test_an_answer_leaves_as_it_is(body):
    made = event_of(CatalogAnswer(200, (("A", "1"), ("B", "2"), ("A", "3")), body), ())
    assert made["multiValueHeaders"] == {"A": ["1", "3"], "B": ["2"]}
    left = base64.b64decode(made["body"]) if made["isBase64Encoded"] else made["body"].encode()
    assert (made["statusCode"], left) == (200, body)


LARGE = CatalogAnswer(200, JSON, b'"' * (LARGEST_ANSWER // 2 + 1000))


def test_an_answer_that_is_too_large_is_compressed_for_a_client_that_can_read_it():
    made = event_of(LARGE, (("accept-encoding", "deflate, gzip;q=0.5"),))
    assert made["multiValueHeaders"]["Content-Encoding"] == ["gzip"]
    assert gzip.decompress(base64.b64decode(made["body"])) == LARGE.body
    assert len(json.dumps(made)) < LARGEST_ANSWER


@pytest.mark.parametrize("accepted", ["", "identity", "gzip;q=0", "br"])
def test_an_answer_that_stays_too_large_says_what_the_catalog_did(accepted):
    with pytest.raises(CatalogAnswerTooLarge, match="answered 200"):
        event_of(LARGE, (("Accept-Encoding", accepted),))
    sent = event("v1/x", multiValueHeaders={"Accept-Encoding": [accepted]})
    answer = answer_event(sent, lambda _request: LARGE, BASE)
    error = json.loads(answer["body"])["error"]
    # A client takes 500 as an unknown outcome: it deletes nothing.
    assert (answer["statusCode"], error["type"]) == (500, "CommitStateUnknownException")


def test_an_event_is_served():
    seen: list[CatalogRequest] = []

    def serve(request):
        seen.append(request)
        return CatalogAnswer(204)

    assert answer_event(event("v1/x", body="{}"), serve, BASE)["statusCode"] == 204
    assert seen[0].body == b"{}"
