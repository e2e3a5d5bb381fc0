"""Pages of listings mean what botocore reads in them, and are read here only in S3's form."""

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.storage.credentials import S3Credential, S3Settings
from delegation.storage.listing import pages
from delegation.storage.listing.model import ListedPage
from delegation.storage.listing.pages import READ, read_listing
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.sessions import s3_client, time_of
from tests.effort import examples

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
KEYS = st.text(
    st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("/%+ &<é\U0001f600"), min_size=1, max_size=9
)
TIMES = st.sampled_from(
    ["2026-11-21T00:00:00.000Z", "2026-11-21T01:02:03Z", "2026-11-21T01:02:03.500+02:00", "1970-01-01T00:00:00Z"]
)


def document(children: str, *, namespace: str | None = NAMESPACE, root: str = "ListBucketResult") -> bytes:
    of = f" xmlns={quoteattr(namespace)}" if namespace else ""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{of}>{children}</{root}>'.encode()


def contents(
    key: str, size: object = 5, etag: str = '"1"', modified: str = "2026-11-21T00:00:00.000Z", more: str = ""
) -> str:
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified><ETag>{escape(etag)}</ETag>"
        f"<Size>{size}</Size><StorageClass>STANDARD</StorageClass>{more}</Contents>"
    )


def read(body: bytes, *, here: bool) -> ListedPage | type[Exception]:
    """Read a page that has this body by a client of the store, or by one that botocore's parser serves alone."""
    where = S3Settings(endpoint="http://127.0.0.1:1", region="us-east-1")
    key = S3Credential("s3://lake", "key", "secret", "token", None)
    if here:
        client = S3ObjectStore(settings=where)._build(key, deleting=False)
    else:
        client = s3_client(where, aws_access_key_id="key", aws_secret_access_key="secret")

    def answered(request: Any, **_more: Any) -> AWSResponse:
        answer = AWSResponse(request.url, 200, {"Date": "Sat, 21 Nov 2026 00:00:00 GMT"}, None)
        answer._content = body
        return answer

    client.meta.events.register("before-send.s3", answered)
    read_here = Counter[bool]()
    client.meta.events.register("after-call.s3", lambda parsed, **_more: read_here.update([READ in parsed]))
    try:
        found: ListedPage | type[Exception] = pages.stated(client, "lake", "t/", "")
    except Exception as error:  # noqa: BLE001 - the same error must come from both
        found = type(error)
    assert read_here[True] == int(here and read_listing(body) is not None)
    return found


@settings(max_examples=examples(80), deadline=None)
@given(
    found=st.lists(st.tuples(KEYS, st.integers(0, 2**40), TIMES), max_size=5),
    truncated=st.sampled_from(["<IsTruncated>true</IsTruncated>", "<IsTruncated>false</IsTruncated>", ""]),
    encoding=st.sampled_from(["", "<EncodingType>url</EncodingType>"]),
    namespace=st.sampled_from([NAMESPACE, None]),
)
def test_a_page_means_what_botocore_reads_in_it(
    found: list[tuple[str, int, str]], truncated: str, encoding: str, namespace: str | None
) -> None:
    listed = "".join(contents(key, size, modified=modified) for key, size, modified in found)
    body = document(f"<Name>lake</Name>{truncated}{encoding}{listed}", namespace=namespace)
    assert read_listing(body) is not None
    assert read(body, here=True) == read(body, here=False)


@pytest.mark.parametrize(
    "body",
    [
        document("<CommonPrefixes><Prefix>t/a/</Prefix></CommonPrefixes>"),
        document(contents("a", more="<Key>b</Key>")),
        document("<Contents><Key>a</Key></Contents>"),
        document(contents("a", size="many")),
        document(contents("a") + contents("b", more="<Key>c</Key>")),
        document(contents("a").replace("<Key>a", "<Key>a<Part/>")),
        document(contents("a", modified="soon")),
        document(contents("a") + "<IsTruncated>perhaps</IsTruncated>"),
        document("<IsTruncated>true</IsTruncated><IsTruncated>false</IsTruncated>"),
        document(contents("a"), namespace="http://example.com/"),
        document("<Code>SlowDown</Code>", root="Error", namespace=None),
        document(contents("a"))[:-5],
        b"",
    ],
)
def test_another_answer_is_left_to_botocore(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_listing(body) is None
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _seconds: None))
    assert read(body, here=True) == read(body, here=False)


ALIKE = contents("a", etag='"1"').replace('"1"', "&quot;1&quot;")


@pytest.mark.parametrize(
    "children",
    [
        ALIKE + contents("b"),
        ALIKE + " \n" + ALIKE,
        ALIKE + "between" + ALIKE,
        ALIKE + "<!-- <Contents></Contents> -->" + ALIKE,
        f"<!-- {ALIKE} -->",
        f"<Inner>{ALIKE}</Inner>",
        ALIKE + "<KeyCount>1</KeyCount>" + ALIKE,
        ALIKE.replace("<Key>a", "<Key>&quot;a"),
        ALIKE.replace("<Key>a", "<Key>a&amp;quot;"),
        ALIKE.replace("&quot;1&quot;", "&quot;1&#34;"),
        ALIKE.replace("&quot;1", "&amp;1"),
        ALIKE.replace("<Key>a", "<Key>a\r\nb"),
        ALIKE.replace("<Key>a", "<Key>"),
        ALIKE.replace("<Key>a", "<Key><![CDATA[a]]>"),
        ALIKE.replace("<Key>a", "<Key>a]]>"),
        ALIKE.replace("<Key>a", "<Key>a\x01"),
        ALIKE.replace("<Key>a", "<Key>\u00e9"),
        ALIKE.replace("<Key>", '<Key kind="a">'),
        ALIKE.replace("<Size>5", "<Size>5_0"),
        ALIKE.replace("<Size>5", "<Size> 5 "),
        ALIKE.replace("<Size>5", "<Size>-5"),
        ALIKE.replace("<Size>5", "<Size>"),
        ALIKE.replace("<Size>5</Size>", "<Size/>"),
        ALIKE.replace("<Size>5</Size>", ""),
        ALIKE.replace("<Size>5</Size>", "<Size>5</Size><Size>6</Size>"),
        ALIKE.replace("T00", " T00"),
        ALIKE + ALIKE.replace("<Size>5", "<Size>6").replace("<Key>a", "<Key>b"),
        ALIKE + "<CommonPrefixes><Prefix>t/a/</Prefix></CommonPrefixes>",
        ALIKE + "<Contents/>",
        "<Contents></Contents>",
        "</Contents><Contents>",
    ],
)
def test_objects_that_are_taken_together_mean_what_botocore_reads_in_each(children: str) -> None:
    body = document(f"<EncodingType>url</EncodingType>{children}")
    assert read(body, here=True) == read(body, here=False)


def test_objects_that_are_alike_are_read_without_a_tree_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    parse = ElementTree.fromstring

    def noted(body: bytes) -> ElementTree.Element:
        parsed.append(body)
        return parse(body)

    monkeypatch.setattr(ElementTree, "fromstring", noted)
    answer = read_listing(document(ALIKE * 50))
    assert answer is not None
    assert len(answer.objects) == 50
    assert parsed == [document("<Contents/>")]


@pytest.mark.parametrize("keys", [["a%0Ab", "c%20d"], ["%C3", "%A9+"], ["%0A", "%0A"], ["a"], []])
def test_encoded_keys_are_read_each_by_itself(keys: list[str]) -> None:
    body = document("<EncodingType>url</EncodingType>" + "".join(contents(key) for key in keys))
    answer = read_listing(body)
    assert answer is not None
    assert [one.key for one in answer.objects] == [unquote_plus(key) for key in keys]
    assert read(body, here=True) == read(body, here=False)


def test_objects_of_a_page_may_have_different_elements_in_any_order() -> None:
    turned = (
        "<Contents><Size>7</Size><ETag>e</ETag><Key>b</Key><LastModified>1970-01-01T00:00:00Z</LastModified></Contents>"
    )
    body = document(contents("a", more="<Owner><ID>1</ID></Owner>") + turned + contents("c"))
    answer = read_listing(body)
    assert answer is not None
    assert [(one.key, one.size) for one in answer.objects] == [("a", 5), ("b", 7), ("c", 5)]
    assert read(body, here=True) == read(body, here=False)


def test_what_is_beside_the_fields_that_count_may_repeat() -> None:
    algorithms = "".join(f"<ChecksumAlgorithm>{one}</ChecksumAlgorithm>" for one in ("CRC32", "SHA1"))
    more = f"{algorithms}<Owner><ID>1</ID></Owner>"
    answer = read_listing(document(contents("a b", more=more)))
    assert answer is not None
    assert [(one.key, one.size, one.etag, one.modified) for one in answer.objects] == [("a b", 5, '"1"', 1_795_219_200)]


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T00:00:00.000Z",
        "2026-11-21T00:00:00Z",
        "Sat, 21 Nov 2026 00:00:00 GMT",
        1_795_219_200,
        "20261121T000000Z",
    ],
)
def test_a_time_is_the_same_as_botocores(value: Any) -> None:
    botocores: Mapping[str, Any] = {"found": botocore.utils.parse_timestamp(value)}
    assert time_of(value) == botocores["found"]


@pytest.mark.parametrize("value", ["soonZ", "", "2026-99-21T00:00:00Z"])
def test_what_is_no_time_is_refused_as_botocore_refuses_it(value: str) -> None:
    for parse in (time_of, botocore.utils.parse_timestamp):
        with pytest.raises(ValueError, match=r".*"):
            parse(value)
