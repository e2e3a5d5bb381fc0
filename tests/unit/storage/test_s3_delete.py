"""DeleteObjects over botocore: what is sent, and which answers are read; with and without our own reading of XML."""

import base64
import hashlib
import zlib
from typing import Any
from xml.etree import ElementTree

import boto3
import botocore
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from hypothesis import example, given
from hypothesis import strategies as st

from delegation.storage.base import KeyFailure
from delegation.storage.s3_delete import DeleteAnswer, delete_keys, prepare_for_deletes, read_answer

SPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
KEYS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1, max_size=40
)


class Raw:
    """A response body with urllib3's interface."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> list[bytes]:
        return [self._body]


# botocore writes and reads the XML of a version that is not pinned.
VERSIONS = {"ours": botocore.__version__, "botocore": "1.0.0"}
BOTH = pytest.mark.parametrize("way", VERSIONS)


# It confirms no key that a test sends, and some key: a result without any is followed by a delete of one key.
OTHER = b"<DeleteResult><Deleted><Key>other</Key></Deleted></DeleteResult>"


def client(answer: bytes = OTHER, status: int = 200, *, way: str = "ours") -> tuple[Any, list[Any]]:
    """Return a boto3 client that records its requests in a list instead of sending them, and always gets `answer`."""
    sent: list[Any] = []
    return client_of([answer], status, way=way, sent=sent), sent


def client_of(answers: list[bytes], status: int = 200, *, way: str, sent: list[Any] | None = None) -> Any:
    """Return a boto3 client that always gets the first of `answers`, which may change."""
    made = boto3.client(
        "s3",
        region_name="us-east-1",
        aws_access_key_id="id",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )

    def send(request: Any, **_: Any) -> AWSResponse:
        if sent is not None:
            sent.append(request)
        return AWSResponse(request.url, status, {"Content-Type": "application/xml"}, Raw(answers[0]))  # type: ignore[arg-type]

    made.meta.events.register("before-send.s3", send)
    prepare_for_deletes(made, version=VERSIONS[way])
    return made


MADE = {way: client(way=way) for way in VERSIONS}


@given(keys=st.lists(KEYS, min_size=1, max_size=20, unique=True))
@example(keys=["a%20b+", "<a>&amp;]]>", "e\u0301\U0001f600", "//", " "])
@BOTH
def test_a_request_names_the_keys(keys: list[str], way: str) -> None:
    made, sent = MADE[way]
    delete_keys(made, "bucket", keys)
    assert [key.text for key in ElementTree.fromstring(sent[-1].body).iter(f"{SPACE}Key")] == keys


@given(st.lists(KEYS, min_size=1, max_size=5, unique=True))
def test_both_ways_send_the_same_headers_and_elements(keys: list[str]) -> None:
    requests = []
    for made, sent in MADE.values():
        delete_keys(made, "bucket", keys)
        requests.append(sent[-1])
    ours, theirs = requests
    assert ElementTree.canonicalize(ours.body) == ElementTree.canonicalize(theirs.body)
    assert ours.url == theirs.url
    assert sorted(ours.headers.keys()) == sorted(theirs.headers.keys())
    for request in requests:
        assert request.headers["Content-MD5"] == base64.b64encode(hashlib.md5(request.body).digest())
        assert request.headers["x-amz-checksum-crc32"] == base64.b64encode(zlib.crc32(request.body).to_bytes(4, "big"))


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
    "declared otherwise": result(ONE).replace(b"UTF-8", b"klingon"),
    "of another namespace": result(ONE).replace(b"/2006-03-01/", b"/2006-03-01/other"),
    "prefixed": b"<s:DeleteResult xmlns:s='x'><s:Deleted><s:Key>a b/\xc3\xa9</s:Key></s:Deleted></s:DeleteResult>",
    "more members": result("<Deleted><ETag>x</ETag><Key>a b/é</Key></Deleted>"),
    "marker": result("<Deleted><Key>a b/é</Key><DeleteMarker>true</DeleteMarker></Deleted>"),
}


@pytest.mark.parametrize("name", CONFIRMING)
@BOTH
def test_an_answer_that_names_the_key_confirms_it(name: str, way: str) -> None:
    found = delete_keys(client(CONFIRMING[name], way=way)[0], "bucket", ["a b/é"])
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
@BOTH
def test_any_other_answer_confirms_nothing(name: str, way: str) -> None:
    found = delete_keys(client(SAYING_NOTHING[name], way=way)[0], "bucket", ["a"])
    assert found.deleted == ()
    # botocore treats a 200 that is no XML as a failure of the server.
    assert found.failed in {(KeyFailure("a", "NoAnswer"),), (KeyFailure("a", "InternalError"),)}


PIECES = [
    "<Deleted>", "</Deleted>", "<Deleted><Key>a</Key></Deleted>", "<Deleted><Key>b</Key></Deleted>",
    "<Deleted><Key></Key></Deleted>", "<Key>", "</Key>", "<Key>a</Key>", "<Key>b</Key>", "<Error>", "</Error>",
    "<Error><Key>a</Key><Code>AccessDenied</Code></Error>", "<Error><Key>b</Key><Code>NoSuchKey</Code></Error>",
    "<Error><Code>InternalError</Code></Error>", "<Code>NoSuchKey</Code>", "<DeleteMarker>true</DeleteMarker>",
    "<VersionId>1</VersionId>", "<Deleted x='1' xml:space='preserve'>", "<Key x:y='1'>", "<Deleted xmlns='other'>",
    "<x:Key xmlns:x='y'>c</x:Key>", "<ETag/>", "<!-- <Key>a</Key> -->", "<![CDATA[a</Key>]]>", "<?pi a?>", "&#x61;",
    "&lt;", "a", "b", ">", "]]>", "\n",
]  # fmt: skip
ENTRIES = st.builds(
    "<{0}>{1}</{0}>".format,
    st.sampled_from(["Deleted", "Error"]),
    st.lists(st.sampled_from([*PIECES[5:9], *PIECES[14:]]), max_size=3).map("".join),
)
INSIDES = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join),
    st.lists(st.one_of(ENTRIES, st.sampled_from(PIECES[2:5] * 3)), max_size=8).map("".join),
)


@given(inside=INSIDES)
@BOTH
def test_each_key_sent_is_either_deleted_or_failed(inside: str, way: str) -> None:
    found = delete_keys(client_that_answers(result(inside), way), "bucket", ["a", "b"])
    assert sorted([*found.deleted, *(failure.key for failure in found.failed)]) == ["a", "b"]


@given(INSIDES, st.sampled_from(["", "\n", "<?pi?>", "<!DOCTYPE x>", "<!-- -->", "&#x20;"]))
def test_an_answer_means_what_botocore_reads(inside: str, before: str) -> None:
    for document in (result(inside, declaration=before), result(f"{before}{inside}")):
        ours, theirs = (delete_keys(client_that_answers(document, way), "bucket", ["a", "b"]) for way in VERSIONS)
        assert ours == theirs


ANSWERED: dict[str, tuple[Any, list[bytes]]] = {}


def client_that_answers(document: bytes, way: str) -> Any:
    """Return a client that answers with the document; there is one for each way, because making one is slow."""
    if way not in ANSWERED:
        ANSWERED[way] = client_of(holder := [document], way=way), holder
    made, holder = ANSWERED[way]
    holder[0] = document
    return made


@pytest.mark.parametrize(
    "inside",
    [
        # Nested as deep as the count of tags allows, with as many texts as keys.
        "<Deleted><Key>a<Deleted><Key>b</Key></Deleted></Key></Deleted>",
        "x<Deleted><Key></Key></Deleted><Deleted><Key>b</Key></Deleted>",
        "x<Deleted><Key y='1'></Key></Deleted><Deleted><Key>b</Key></Deleted>",
        "x<Deleted><Key/></Deleted><Deleted><Key>b</Key></Deleted>",
        "<Deleted>x<Key></Key></Deleted><Deleted><Key>b</Key></Deleted>",
        "<Deleted><Key>a</Key></Deleted><Deleted><Key>b</Key></Deleted><Error/>",
        "<Deleted><Key>a</Key></Deleted><Deleted><Key>b</Key></Deleted><!-- -->",
        "<Deleted x:y='1'><Key>a</Key></Deleted>",
        "<Deleted><Key x:y='1'>a</Key></Deleted>",
        "<Deleted x:y='1'><Key>a</Key></Deleted><Deleted><Key>b</Key></Deleted>",
        "<Error><Key>a</Key></Error><Error><Key>b</Key></Error>",
        "<Deleted><Key>a</Key></Deleted><Deleted><Key>b</Key></Deleted></DeleteResult><DeleteResult>",
        "<Deleted><Key>a\nb</Key></Deleted><Deleted><Key>b</Key></Deleted>",
        "<Deleted><Key>a>b</Key></Deleted><Deleted><Key>b</Key></Deleted>",
        "<Deleted><Key>a&amp;b</Key></Deleted><Deleted><Key>b</Key></Deleted>",
        "<Deleted><Key>a</Key></Deleted><Deleted><Key>a</Key></Deleted><Deleted><Key>b</Key></Deleted>",
    ],
)
def test_a_crafted_answer_means_what_botocore_reads(inside: str) -> None:
    keys = ["a", "b", "x", "a&b", "a>b"]
    ours, theirs = (delete_keys(client_that_answers(result(inside), way), "bucket", keys) for way in VERSIONS)
    assert ours == theirs


@pytest.mark.parametrize("root", ["ListBucketResult", "Error", "x:DeleteResult", "x:DeleteResult xmlns:x='y'"])
def test_another_root_means_what_botocore_reads(root: str) -> None:
    inside = "<Deleted><Key>a</Key></Deleted><Deleted><Key>b</Key></Deleted>"
    document = f"<{root}>{inside}</{root.split(maxsplit=1)[0]}>".encode()
    ours, theirs = (delete_keys(client_that_answers(document, way), "bucket", ["a", "b"]) for way in VERSIONS)
    assert ours == theirs


@pytest.mark.parametrize("space", ["", "\n  "])
@pytest.mark.parametrize(
    ("entry", "read"),
    [
        ("<Deleted><Key>{}</Key></Deleted>", DeleteAnswer({"a": False, "b&c": False})),
        ("<Deleted><Key>{}</Key><VersionId>1</VersionId></Deleted>", DeleteAnswer({"a": False, "b&c": False})),
        (
            "<Deleted><Key>{}</Key><DeleteMarker>true</DeleteMarker></Deleted>",
            DeleteAnswer({"a": True, "b&c": True}),
        ),
        (
            (
                "<Deleted><Key>{}</Key><DeleteMarker>true</DeleteMarker>"
                "<DeleteMarkerVersionId>v-1</DeleteMarkerVersionId></Deleted>"
            ),
            DeleteAnswer({"a": True, "b&c": True}, markers={"a": "v-1", "b&c": "v-1"}),
        ),
        (
            "<Error><Key>{}</Key><Code>SlowDown</Code><Message>Wait.</Message></Error>",
            DeleteAnswer({}, [("a", "SlowDown"), ("b&c", "SlowDown")]),
        ),
    ],
)
def test_answers_in_the_form_of_s3_are_read_without_botocore(space: str, entry: str, read: DeleteAnswer) -> None:
    inside = space.join(entry.format(key) for key in ("a", "b&amp;c"))
    assert read_answer(result(f"{space}{inside}{space}")) == read
    assert read_answer(result(inside, declaration='<!DOCTYPE x [<!ENTITY e "a">]>')) is None


@BOTH
def test_no_more_entries_are_read_than_an_answer_can_have(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond twice a thousand entries an answer is botocore's to read, however it is written."""
    many = "".join(f"<Deleted><Key>k{n}</Key></Deleted>" for n in range(2_001))
    for inside in (many, many.replace("><Key", "> <Key"), f"<x>{many}</x>"):
        assert read_answer(result(inside)) is None
    assert len(delete_keys(client(result(many), way=way)[0], "b", [f"k{n}" for n in range(1_000)]).deleted) == 1_000
    assert read_answer(b" " * 9_000_000 + result(ONE)) is None


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
