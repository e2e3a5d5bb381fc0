"""DeleteObjects over botocore: what is sent, and which answers are read."""

from typing import Any
from xml.etree import ElementTree

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from hypothesis import given
from hypothesis import strategies as st

from delegation.storage.base import KeyFailure
from delegation.storage.s3_delete import delete_keys, prepare_for_deletes

SPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
ODD = [
    "a b",
    "a+b",
    "a%20b",
    "a&b",
    "<a>",
    "]]>",
    "&amp;",
    "é",
    "e\u0301",
    "日本",
    "\U0001f600",
    "trail/",
    "//",
    "'\"",
    " ",
]
KEYS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1, max_size=40
)


class Raw:
    """A response body with urllib3's interface."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> list[bytes]:
        return [self._body]


def client(answer: bytes = b"<DeleteResult/>", status: int = 200) -> tuple[Any, list[Any]]:
    """Return a boto3 client that records its requests in a list instead of sending them, and always gets `answer`."""
    made = boto3.client(
        "s3",
        region_name="us-east-1",
        aws_access_key_id="id",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )
    sent: list[Any] = []

    def send(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, status, {"Content-Type": "application/xml"}, Raw(answer))  # type: ignore[arg-type]

    made.meta.events.register("before-send.s3", send)
    prepare_for_deletes(made)
    return made, sent


MADE, SENT = client()


@given(st.lists(KEYS, min_size=1, max_size=20, unique=True))
def test_a_request_names_the_keys(keys: list[str]) -> None:
    delete_keys(MADE, "bucket", keys)
    assert [key.text for key in ElementTree.fromstring(SENT[-1].body).iter(f"{SPACE}Key")] == keys


def test_odd_keys_are_sent_unchanged() -> None:
    delete_keys(MADE, "bucket", ODD)
    assert [key.text for key in ElementTree.fromstring(SENT[-1].body).iter(f"{SPACE}Key")] == ODD


@pytest.mark.parametrize(
    ("key", "path"), [("a\nb", "a%0Ab"), ("\x01", "%01"), ("c1\x85/", "c1%C2%85/"), ("r\r%+ ", "r%0D%25%2B%20")]
)
def test_keys_that_xml_cannot_contain_are_encoded_in_the_url(key: str, path: str) -> None:
    made, sent = client(b"", 204)
    assert delete_keys(made, "bucket", [key]).deleted == (key,)
    assert sent[0].url == f"https://bucket.s3.amazonaws.com/{path}"


def result(inside: str, *, declaration: str = '<?xml version="1.0" encoding="UTF-8"?>\n') -> bytes:
    return (
        f'{declaration}<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</DeleteResult>'.encode()
    )


ONE = "<Deleted><Key>a b/é</Key></Deleted>"
CONFIRMING = {
    "plain": result(ONE),
    "indented": result(f"\n  {ONE}\n"),
    "bare": result(ONE, declaration=""),
    "escaped": result("<Deleted><Key>a b/&#xe9;</Key></Deleted>"),
    "comment": result("<!-- <Deleted><Key>x</Key></Deleted> -->" + ONE),
    "cdata": result("<Deleted><Key><![CDATA[a b/é]]></Key></Deleted>"),
    "marker": result("<Deleted><Key>a b/é</Key><DeleteMarker>true</DeleteMarker></Deleted>"),
}


@pytest.mark.parametrize("name", CONFIRMING)
def test_an_answer_that_names_the_key_confirms_it(name: str) -> None:
    found = delete_keys(client(CONFIRMING[name])[0], "bucket", ["a b/é"])
    assert (found.deleted, found.failed, found.delete_markers) == (("a b/é",), (), name == "marker")


SAYING_NOTHING = {
    "nothing": result(""),
    "empty key": result("<Deleted><Key></Key></Deleted>"),
    "another key": result("<Deleted><Key>b</Key></Deleted>"),
    "another document": b"<ListBucketResult><Deleted><Key>a</Key></Deleted></ListBucketResult>",
    "no document": b"",
    "a late start": b" " * 5_000 + b"<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>",
    "truncated": result("<Deleted><Key>a</Key></Deleted>")[:-20],
    "not utf-8": result("<Deleted><Key>a</Key></Deleted>").replace(b"</Key>", b"\xff</Key>"),
}


@pytest.mark.parametrize("name", SAYING_NOTHING)
def test_any_other_answer_confirms_nothing(name: str) -> None:
    found = delete_keys(client(SAYING_NOTHING[name])[0], "bucket", ["a"])
    assert found.deleted == ()
    # botocore treats a 200 that is no XML as a failure of the server.
    assert found.failed in {(KeyFailure("a", "NoAnswer"),), (KeyFailure("a", "InternalError"),)}


PIECES = [
    "<Deleted>",
    "</Deleted>",
    "<Key>a</Key>",
    "<Key>b</Key>",
    "<Error>",
    "</Error>",
    "<Code>NoSuchKey</Code>",
    "x",
]


@given(st.lists(st.sampled_from(PIECES), max_size=10))
def test_each_key_sent_is_either_deleted_or_failed(pieces: list[str]) -> None:
    found = delete_keys(client(result("".join(pieces)))[0], "bucket", ["a", "b"])
    assert sorted([*found.deleted, *(failure.key for failure in found.failed)]) == ["a", "b"]
    if "<Error>" not in pieces:
        assert all(f"<Key>{key}</Key>" in pieces for key in found.deleted)


def test_only_a_key_whose_error_says_so_is_absent() -> None:
    answer = result(
        "<Deleted><Key>a</Key></Deleted>"
        "<Error><Key>b</Key><Code>NoSuchKey</Code></Error>"
        "<Error><Key>c</Key><Code>NoSuchBucket</Code></Error>"
    )
    found = delete_keys(client(answer)[0], "bucket", ["a", "b", "c"])
    assert (found.deleted, found.absent) == (("a", "b"), ("b",))
    assert found.failed == (KeyFailure("c", "NoSuchBucket"),)


def test_a_single_delete_that_finds_no_key_says_so_and_a_whole_call_that_does_confirms_nothing() -> None:
    answer = b"<Error><Code>NoSuchKey</Code></Error>"
    assert delete_keys(client(answer, 404)[0], "bucket", ["a\nb"]).absent == ("a\nb",)
    whole = delete_keys(client(answer, 404)[0], "bucket", ["a"])
    assert (whole.deleted, whole.absent, len(whole.failed)) == ((), (), 1)
