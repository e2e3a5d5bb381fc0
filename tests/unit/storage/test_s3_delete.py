"""The cheaper DeleteObjects: its requests and results equal botocore's."""

import base64
import zlib
from typing import Any
from xml.etree import ElementTree

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from delegation.storage.credentials import S3Settings
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_delete import confirmed_keys, quicken, request_body

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


def client(answer: bytes = b"<DeleteResult/>", status: int = 200, *, quick: bool) -> tuple[Any, list[Any]]:
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
        headers = {"Content-Type": "application/xml"}
        return AWSResponse(request.url, status, headers, Raw(answer))  # type: ignore[arg-type]

    made.meta.events.register("before-send.s3", send)
    if quick:
        quicken(made)
    return made, sent


def keys_in(body: bytes) -> list[str | None]:
    return [key.text for key in ElementTree.fromstring(body).iter(f"{SPACE}Key")]


@given(st.lists(KEYS, min_size=1, max_size=20))
def test_a_request_names_the_keys(keys: list[str]) -> None:
    assert keys_in(request_body(keys)) == keys


def test_the_request_equals_botocores() -> None:
    bodies = []
    for quick in (True, False):
        made, sent = client(quick=quick)
        made.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for key in ODD]})
        (request,) = sent
        checksum = base64.b64encode(zlib.crc32(request.body).to_bytes(4)).decode()
        assert request.headers["x-amz-checksum-crc32"].decode() == checksum
        assert int(request.headers["Content-Length"]) == len(request.body)
        bodies.append(keys_in(request.body))
    assert bodies == [ODD, ODD]


@pytest.mark.parametrize(
    "delete",
    [
        {"Objects": [{"Key": "a", "VersionId": "1"}]},
        {"Objects": [{"Key": "a"}], "Quiet": True},
        {"Objects": [{"Key": "a\nb"}, {"Key": "c"}]},
    ],
    ids=["version", "quiet", "control"],
)
def test_requests_with_more_than_plain_keys_are_left_to_botocore(delete: dict[str, Any]) -> None:
    sent = []
    for quick in (True, False):
        made, requests = client(quick=quick)
        made.delete_objects(Bucket="bucket", Delete=delete)
        sent.append(requests[0].body)
    assert sent[0] == sent[1]


@pytest.mark.parametrize(
    ("key", "path"), [("a\nb", "a%0Ab"), ("\x01", "%01"), ("c1\x85/", "c1%C2%85/"), ("r\r%+ ", "r%0D%25%2B%20")]
)
def test_keys_that_xml_cannot_contain_are_encoded_in_the_url(key: str, path: str) -> None:
    made, sent = client(b"", 204, quick=True)
    store = S3ObjectStore(settings=S3Settings(region="us-east-1"))
    store._build = lambda *_, **__: made  # type: ignore[method-assign]
    assert store.delete("bucket", [key]).deleted == (key,)
    assert sent[0].url == f"https://bucket.s3.amazonaws.com/{path}"


def result(inside: str, *, declaration: str = '<?xml version="1.0" encoding="UTF-8"?>\n') -> bytes:
    return (
        f'{declaration}<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</DeleteResult>'.encode()
    )


ONE = "<Deleted><Key>a b/é</Key></Deleted>"
ANSWERS = {
    "confirmed": result(ONE + "<Deleted><Key>c</Key></Deleted>"),
    "indented": result(f"\n  {ONE}\n  <Deleted>\n    <Key>c</Key>\n  </Deleted>\n"),
    "bare": result(ONE, declaration=""),
    "nothing": result(""),
    "empty key": result("<Deleted><Key></Key></Deleted>"),
    "escaped": result("<Deleted><Key>a&amp;b&#x27;</Key></Deleted>"),
    "error": result(ONE + "<Error><Key>d</Key><Code>AccessDenied</Code><Message>no</Message></Error>"),
    "error first": result("<Error><Key>d</Key><Code>SlowDown</Code></Error>" + ONE),
    "marker": result(
        "<Deleted><Key>a</Key><DeleteMarker>true</DeleteMarker>"
        "<DeleteMarkerVersionId>v</DeleteMarkerVersionId></Deleted>"
    ),
    "comment": result("<!-- <Deleted><Key>x</Key></Deleted> -->" + ONE),
    "cdata": result("<Deleted><Key><![CDATA[x]]></Key></Deleted>"),
    "latin": result(ONE, declaration='<?xml version="1.0" encoding="ISO-8859-1"?>'),
    "carriage return": result("<Deleted><Key>a\rb</Key></Deleted>"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_gives_the_result_of_botocore(name: str) -> None:
    answers = []
    for quick in (True, False):
        made, _ = client(ANSWERS[name], quick=quick)
        answer = made.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "any"}]})
        del answer["ResponseMetadata"]
        answers.append(answer)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["confirmed", "bare"])
def test_the_usual_answers_are_read_without_xml(name: str) -> None:
    keys = confirmed_keys(ANSWERS[name])
    assert keys is not None
    assert keys[0] == "a b/é"


PIECES = ["<Deleted>", "</Deleted>", "<Key>", "</Key>", ONE, "k", "\r", " ", "&amp;", "<Error/>", "<!-- -->", "<Key/>"]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_only_answers_that_confirm_keys_are_read_without_xml(pieces: list[str]) -> None:
    body = result("".join(pieces))
    keys = confirmed_keys(body)
    if keys is not None:
        root = ElementTree.fromstring(body)
        assert [[(part.tag, part.text or "") for part in one] for one in root] == [
            [(f"{SPACE}Key", key)] for key in keys
        ]
        assert {one.tag for one in root} == {f"{SPACE}Deleted"}


REFUSALS = {
    "slow down": (b"<Error><Code>SlowDown</Code><Message>less</Message></Error>", 503),
    "error in a 200": (b"<Error><Code>InternalError</Code><Message>oh</Message></Error>", 200),
    "truncated": (ANSWERS["confirmed"][:-20], 200),
    "not utf-8": (result("<Deleted><Key>X</Key></Deleted>").replace(b"X", b"\xff"), 200),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_errors_and_broken_answers_are_left_to_botocore(name: str) -> None:
    raised = []
    for quick in (True, False):
        made, _ = client(*REFUSALS[name], quick=quick)
        with pytest.raises(Exception) as error:
            made.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "any"}]})
        code = error.value.response["Error"]["Code"] if isinstance(error.value, ClientError) else ""
        raised.append((type(error.value), code))
    assert raised[0] == raised[1]
