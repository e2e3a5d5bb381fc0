from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from infra.local.s3.requests import (
    ACCESS_DENIED,
    BAD_TOKEN,
    EXPIRED,
    UNKNOWN_KEY,
    Access,
    MultiDelete,
    Refusal,
    S3Request,
    VendedKey,
    VendedKeys,
    identify,
)

NOW = datetime(2026, 11, 20, tzinfo=UTC)
WRITER = VendedKey("WRITER", "token", (("lake", "ns/t/"), ("fast", "t/")), writable=True, expires_at=NOW)
READER = VendedKey("READER", "token", (("lake", "ns/t/"),), writable=False, expires_at=NOW)
KEY = "/lake/ns/t/f"


def request(method: str, target: str, **headers: str) -> S3Request:
    return S3Request.parse(method, target, {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("method", "target", "accesses"),
    [
        ("GET", KEY, [(Access.READ, "lake", "ns/t/f")]),
        ("HEAD", KEY, [(Access.READ, "lake", "ns/t/f")]),
        ("GET", KEY + "?partNumber=1", [(Access.READ, "lake", "ns/t/f")]),
        ("GET", KEY + "?versionId=x", [(Access.OTHER, "lake", "ns/t/f")]),
        ("GET", KEY + "?acl", [(Access.OTHER, "lake", "ns/t/f")]),
        ("PUT", KEY, [(Access.WRITE, "lake", "ns/t/f")]),
        ("PUT", KEY + "?partNumber=1&uploadId=u", [(Access.WRITE, "lake", "ns/t/f")]),
        ("PUT", KEY + "?tagging", [(Access.OTHER, "lake", "ns/t/f")]),
        ("POST", KEY + "?uploads", [(Access.WRITE, "lake", "ns/t/f")]),
        ("POST", KEY + "?restore", [(Access.OTHER, "lake", "ns/t/f")]),
        ("DELETE", KEY, [(Access.DELETE, "lake", "ns/t/f")]),
        ("DELETE", KEY + "?versionId=x", [(Access.OTHER, "lake", "ns/t/f")]),
        ("DELETE", KEY + "?uploadId=u", [(Access.OTHER, "lake", "ns/t/f")]),
        ("GET", "/lake?list-type=2&prefix=ns%2Ft%2F", [(Access.LIST, "lake", "ns/t/")]),
        ("GET", "/lake/?prefix=ns/t/", [(Access.LIST, "lake", "ns/t/")]),
        ("GET", "/lake", [(Access.LIST, "lake", "")]),
        ("GET", "/lake?location", [(Access.LOCATION, "lake", "")]),
        ("GET", "/lake?versioning", [(Access.OTHER, "lake", "")]),
        ("GET", "/lake?versions&prefix=ns/t/", [(Access.OTHER, "lake", "")]),
        ("GET", "/", [(Access.OTHER, "", "")]),
        ("PUT", "/lake", [(Access.OTHER, "lake", "")]),
        ("DELETE", "/lake", [(Access.OTHER, "lake", "")]),
        ("PATCH", KEY, [(Access.OTHER, "lake", "ns/t/f")]),
    ],
)
def test_the_accesses_that_a_request_needs(method: str, target: str, accesses: list[tuple[Access, str, str]]) -> None:
    assert request(method, target).accesses() == accesses


def test_keys_are_decoded_as_in_s3() -> None:
    parsed = request("GET", "/lake/a+b%20c%2Bd%2F..//e%3Fx?versionId=1")
    assert (parsed.bucket, parsed.key) == ("lake", "a+b c+d/..//e?x")


@pytest.mark.parametrize("source", ["lake/ns/o%20x", "/lake/ns/o%20x", "lake/ns/o%20x?versionId=1"])
def test_a_copy_reads_its_source(source: str) -> None:
    needed = request("PUT", KEY, x_amz_copy_source=source).accesses()
    assert needed == [(Access.WRITE, "lake", "ns/t/f"), (Access.READ, "lake", "ns/o x")]


@pytest.mark.parametrize(
    ("access", "bucket", "key", "writer", "reader"),
    [
        (Access.READ, "lake", "ns/t/f", True, True),
        (Access.WRITE, "lake", "ns/t/f", True, False),
        (Access.DELETE, "lake", "ns/t/f", True, False),
        (Access.READ, "fast", "t/f", True, False),
        (Access.READ, "lake", "ns/t2/f", False, False),
        (Access.READ, "lake", "ns/t", False, False),
        (Access.READ, "other", "ns/t/f", False, False),
        (Access.LIST, "lake", "ns/t/", True, True),
        (Access.LIST, "lake", "ns/t", False, False),
        (Access.LOCATION, "lake", "", True, True),
        (Access.LOCATION, "other", "", False, False),
        (Access.OTHER, "lake", "ns/t/f", False, False),
    ],
)
def test_the_bounds_of_a_vended_key(access: Access, bucket: str, key: str, writer: bool, reader: bool) -> None:
    assert (WRITER.allows(access, bucket, key), READER.allows(access, bucket, key)) == (writer, reader)


SIGNED = "AWS4-HMAC-SHA256 Credential=WRITER/20261120/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@pytest.mark.parametrize(
    ("target", "headers", "key_id"),
    [
        (KEY, {"authorization": SIGNED}, "WRITER"),
        (KEY, {"authorization": "AWS WRITER:signature"}, "WRITER"),
        (KEY + "?X-Amz-Credential=WRITER%2F20261120%2Feu%2Fs3%2Faws4_request", {}, "WRITER"),
        (KEY + "?AWSAccessKeyId=WRITER", {}, "WRITER"),
        (KEY, {}, None),
        (KEY, {"authorization": "Bearer x"}, None),
    ],
)
def test_the_access_key_id_of_a_request(target: str, headers: dict[str, str], key_id: str | None) -> None:
    assert request("GET", target, **headers).access_key_id == key_id


@pytest.mark.parametrize(
    ("headers", "before", "expected"),
    [
        ({"authorization": SIGNED, "x-amz-security-token": "token"}, timedelta(seconds=1), WRITER),
        ({"authorization": SIGNED, "x-amz-security-token": "token"}, timedelta(), EXPIRED),
        ({"authorization": SIGNED, "x-amz-security-token": "other"}, timedelta(seconds=1), BAD_TOKEN),
        ({"authorization": SIGNED}, timedelta(seconds=1), UNKNOWN_KEY),
        ({"authorization": SIGNED.replace("WRITER", "ADMIN")}, timedelta(), None),
        ({}, timedelta(), ACCESS_DENIED),
    ],
)
def test_a_request_is_identified_or_refused_by_key_token_and_expiry(
    headers: dict[str, str], before: timedelta, expected: VendedKey | Refusal | None
) -> None:
    keys = VendedKeys()
    keys[WRITER.access_key_id] = WRITER
    assert identify(request("GET", KEY, **headers), keys, NOW - before) == expected


def test_a_refusal_is_an_s3_error_in_xml() -> None:
    root = ElementTree.fromstring(Refusal(403, "AccessDenied", "<no> & never").xml())
    assert (root.findtext("Code"), root.findtext("Message")) == ("AccessDenied", "<no> & never")


NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@pytest.mark.parametrize("namespace", ["", " " + NAMESPACE])
def test_a_multi_delete_is_split_into_allowed_and_denied_keys(namespace: str) -> None:
    objects = "".join(
        f"<Object><Key>{key}</Key>{more}</Object>"
        for key, more in [("ns/t/a&amp;b", ""), ("ns/other", ""), ("ns/t/c", "<VersionId>1</VersionId>")]
    )
    body = f"<Delete{namespace}>{objects}<Quiet>true</Quiet></Delete>".encode()
    delete = MultiDelete(body, "lake", WRITER)
    assert (delete.denied, delete.any_allowed) == (["ns/other", "ns/t/c"], True)
    allowed = ElementTree.fromstring(delete.allowed_body())
    prefix = "{http://s3.amazonaws.com/doc/2006-03-01/}" if namespace else ""
    assert [key.text for key in allowed.iter(f"{prefix}Key")] == ["ns/t/a&b"]
    assert allowed.findtext(f"{prefix}Quiet") == "true"


@pytest.mark.parametrize(
    ("upstream", "deleted"),
    [
        (None, []),
        (f"<?xml version='1.0'?><DeleteResult {NAMESPACE}/>".encode(), []),
        (f"<DeleteResult {NAMESPACE}><Deleted><Key>a</Key></Deleted></DeleteResult>\n".encode(), ["a"]),
    ],
)
def test_the_denied_keys_are_added_to_the_answer_of_the_store(upstream: bytes | None, deleted: list[str]) -> None:
    body = b"<Delete><Object><Key>&lt;x&gt;&amp;</Key></Object></Delete>"
    root = ElementTree.fromstring(MultiDelete(body, "lake", READER).answer(upstream))
    prefix = "{http://s3.amazonaws.com/doc/2006-03-01/}"
    assert [key.text for key in root.findall(f"{prefix}Deleted/{prefix}Key")] == deleted
    assert [key.text for key in root.findall(f"{prefix}Error/{prefix}Key")] == ["<x>&"]


def test_a_vended_key_hides_its_token() -> None:
    assert "token" not in repr(WRITER)
