"""S3 stores: errors, expired credentials and missing answers."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.storage.base import (
    BucketNotFound,
    FileTooLarge,
    KeyFailure,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    ObjectStoreUnavailable,
)
from delegation.storage.credentials import S3Credential, S3Settings
from delegation.storage.locations import ObjectLocation
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_plans import S3PlanStore


def refusal(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "AnyCall")


class Client:
    """Returns the next of its answers for each call, or raises it if it is an exception."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append((name, arguments))
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


class Vended:
    """One credential per prefix; its key id counts how often credentials were replaced."""

    def __init__(self, *prefixes: str) -> None:
        self.version = 0
        self.prefixes = prefixes or ("s3://b/",)

    def for_uri(self, uri: str) -> S3Credential:
        number = next(number for number, prefix in enumerate(self.prefixes) if uri.startswith(prefix))
        return S3Credential(self.prefixes[number], f"key-{number}-{self.version}", "very-secret", "tok", None)

    def replace(self, uri: str, refused: S3Credential) -> S3Credential:
        assert refused == self.for_uri(uri)
        self.version += 1
        return self.for_uri(uri)

    def table(self) -> LoadedTable:
        credentials = tuple(self.for_uri(prefix) for prefix in self.prefixes)
        return LoadedTable(TableIdentifier("c", ("n",), "t"), "s3://b/m", {"location": "s3://b"}, {}, credentials)


def store_with(clients: dict[str, Client], vended: Vended | None = None) -> S3ObjectStore:
    store = S3ObjectStore(vended or Vended())
    store._build = lambda credential, deleting: clients[credential.access_key_id]  # type: ignore[method-assign]
    return store


def body(data: bytes) -> dict[str, Any]:
    return {"ContentLength": len(data), "Body": io.BytesIO(data)}


WHERE = ObjectLocation("b", "k")
DONE = {"ResponseMetadata": {"HTTPStatusCode": 204}}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal("NoSuchKey", 404), ObjectNotFound),
        (refusal("404", 404), ObjectStoreUnavailable),
        (refusal("Unknown", 404), ObjectStoreUnavailable),
        (refusal("AccessDenied", 403), ObjectStoreDenied),
        (refusal("InvalidAccessKeyId", 403), ObjectStoreDenied),
        (refusal("SlowDown", 503), ObjectStoreUnavailable),
        (refusal("InternalError", 500), ObjectStoreUnavailable),
        (refusal("InvalidBucketName", 400), ObjectStoreError),
        (EndpointConnectionError(endpoint_url="http://x"), ObjectStoreUnavailable),
        (ReadTimeoutError(endpoint_url="http://x"), ObjectStoreUnavailable),
        (NoCredentialsError(), ObjectStoreError),
        (refusal("429", 429), ObjectStoreUnavailable),
        (ResponseParserError("mismatched tag: line 1, column 12"), ObjectStoreUnavailable),
    ],
)
def test_errors_of_reads_and_writes(answer: Exception, error: type[ObjectStoreError]) -> None:
    with pytest.raises(ObjectStoreError) as raised:
        store_with({"key-0-0": Client(answer)}).read(WHERE, limit=1)
    assert type(raised.value) is error
    assert "very-secret" not in str(raised.value)
    plans = S3PlanStore(Client(answer, answer), "plans")  # type: ignore[arg-type]
    with pytest.raises(error):
        plans.get("k")
    with pytest.raises(error):
        plans.put("k", b"")


def test_only_a_missing_key_is_an_absent_object() -> None:
    assert not store_with({"key-0-0": Client(refusal("NoSuchKey", 404))}).exists(WHERE)
    assert store_with({"key-0-0": Client(body(b"x"))}).exists(WHERE)
    assert store_with({"key-0-0": Client(refusal("InvalidRange", 416))}).exists(WHERE)
    with pytest.raises(ObjectStoreUnavailable):
        store_with({"key-0-0": Client(refusal("404", 404))}).exists(WHERE)


def test_an_object_with_a_key_that_xml_cannot_contain_is_found_by_a_listing() -> None:
    where = ObjectLocation("b", "k\x1f")
    assert store_with({"key-0-0": Client({"Contents": [{"Key": "k\x1f"}]})}).exists(where)
    assert not store_with({"key-0-0": Client({"Contents": [{"Key": "k\x1f2"}]})}).exists(where)
    with pytest.raises(BucketNotFound):
        store_with({"key-0-0": Client(refusal("404", 404), refusal("NoSuchBucket", 404))}).probe_delete("s3://b/\x1f/")


def test_a_bare_404_for_a_key_that_xml_cannot_contain_is_an_absent_object() -> None:
    with pytest.raises(ObjectNotFound):
        store_with({"key-0-0": Client(refusal("404", 404))}).read(ObjectLocation("b", "k\x1f"), limit=1)


def test_an_expired_credential_is_replaced_once_and_the_read_repeated() -> None:
    clients = {"key-0-0": Client(refusal("ExpiredToken")), "key-0-1": Client(body(b"x"))}
    assert store_with(clients).read(WHERE, limit=1) == b"x"
    clients = {"key-0-0": Client(refusal("ExpiredToken")), "key-0-1": Client(refusal("ExpiredToken"))}
    with pytest.raises(ObjectStoreDenied):
        store_with(clients).read(WHERE, limit=1)


class Breaking(io.BytesIO):
    """A response body that breaks off."""

    def read(self, *_: Any) -> bytes:
        raise IncompleteReadError(actual_bytes=1, expected_bytes=2)


def test_a_body_that_breaks_off_is_read_again_a_few_times() -> None:
    broken = {"ContentLength": 2, "Body": Breaking()}
    assert store_with({"key-0-0": Client(broken, broken, body(b"xy"))}).read(WHERE, limit=2) == b"xy"
    with pytest.raises(ObjectStoreUnavailable):
        store_with({"key-0-0": Client(broken, broken, broken, body(b"xy"))}).read(WHERE, limit=2)


def test_a_body_of_unknown_length_is_read_up_to_the_limit() -> None:
    assert store_with({"key-0-0": Client({"Body": io.BytesIO(b"xy")})}).read(WHERE, limit=2) == b"xy"
    endless = io.BytesIO(b"x" * 100)
    with pytest.raises(FileTooLarge):
        store_with({"key-0-0": Client({"Body": endless})}).read(WHERE, limit=2)
    assert endless.closed


def test_calls_about_a_bucket_use_a_credential_for_a_prefix_in_it() -> None:
    client = Client({"Status": "Suspended"})
    assert store_with({"key-1-0": client}, Vended("s3://a/t/", "s3://b/t/")).versioned("b") is True


def failures(keys: Sequence[str], code: str) -> tuple[KeyFailure, ...]:
    return tuple(KeyFailure(key, code) for key in keys)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (refusal("SlowDown", 503), "SlowDown"),
        (refusal("AccessDenied", 403), "AccessDenied"),
        (ReadTimeoutError(endpoint_url="http://x"), "ConnectionFailed"),
        ({"ResponseMetadata": {"HTTPStatusCode": 200}}, "NoAnswer"),
        (ResponseParserError("no element found: line 1, column 0"), "NoAnswer"),
        # Answers of a load balancer or an ingress, as botocore reads them.
        (refusal("404", 404), "NoAnswer"),
        (refusal("Unknown", 404), "NoAnswer"),
        (refusal("502", 502), "InternalError"),
        (refusal("Unknown", 504), "InternalError"),
        (refusal("503", 503), "ServiceUnavailable"),
        (refusal("429", 429), "SlowDown"),
        (refusal("TooManyRequests", 429), "SlowDown"),
        (refusal("NoSuchBucket", 404), "NoSuchBucket"),
    ],
)
def test_a_call_that_fails_as_a_whole_fails_for_each_key(answer: Any, code: str) -> None:
    client = Client(answer, answer)
    result = store_with({"key-0-0": client}).delete("b", ["k1", "k2"])
    assert (result.deleted, result.failed) == ((), failures(["k1", "k2"], code))
    assert len(client.calls) <= 2
    if answer:
        alone = store_with({"key-0-0": Client(answer)}).delete("b", ["\x01"])
        assert (alone.deleted, alone.failed) == ((), failures(["\x01"], code))


def test_each_key_has_a_result() -> None:
    answer = {
        "Deleted": [{"Key": "present"}, {"Key": "someone-elses"}],
        "Errors": [{"Key": "locked", "Code": "AccessDenied"}, {"Key": "absent", "Code": "NoSuchKey"}],
    }
    result = store_with({"key-0-0": Client(answer)}).delete("b", ["present", "locked", "absent", "silent"])
    assert set(result.deleted) == {"present", "absent"}
    assert result.failed == (KeyFailure("locked", "AccessDenied"), KeyFailure("silent", "NoAnswer"))


def test_a_delete_marker_is_reported() -> None:
    answer = {"Deleted": [{"Key": "k", "DeleteMarker": True}]}
    assert store_with({"key-0-0": Client(answer)}).delete("b", ["k"]).delete_markers
    assert store_with({"key-0-0": Client(DONE | {"DeleteMarker": True})}).delete("b", ["\x01"]).delete_markers


def test_keys_that_xml_cannot_contain_are_deleted_one_by_one() -> None:
    client = Client({"Deleted": [{"Key": "plain"}]}, DONE, refusal("SlowDown", 503))
    result = store_with({"key-0-0": client}).delete("b", ["\x01", "plain", "\n"])
    assert [name for name, _ in client.calls] == ["delete_objects", "delete_object", "delete_object"]
    assert set(result.deleted) == {"plain", "\x01"}
    assert result.failed == (KeyFailure("\n", "SlowDown"),)


@pytest.mark.parametrize("code", ["SlowDown", "ServiceUnavailable", "ExpiredToken"])
def test_after_a_delete_that_the_store_cannot_serve_now_no_other_key_is_tried(code: str) -> None:
    client = Client(refusal(code, 503))
    assert store_with({"key-0-0": client}).delete("b", ["\x01", "\x02"]).failed == failures(["\x01", "\x02"], code)
    assert len(client.calls) == 1


def test_an_expired_token_is_replaced_before_the_retry() -> None:
    clients = {"key-0-0": Client(refusal("ExpiredToken")), "key-0-1": Client({"Deleted": [{"Key": "k"}]})}
    store = store_with(clients)
    assert store.delete("b", ["k"]).failed == failures(["k"], "ExpiredToken")
    assert store.delete("b", ["k"]).deleted == ("k",)


def test_keys_are_deleted_with_the_credential_of_their_prefix() -> None:
    one, two = Client({"Deleted": [{"Key": "x/1"}, {"Key": "x/2"}]}), Client({"Deleted": [{"Key": "y/1"}]})
    store = store_with({"key-0-0": one, "key-1-0": two}, Vended("s3://b/x/", "s3://b/y/"))
    assert set(store.delete("b", ["x/1", "y/1", "x/2"]).deleted) == {"x/1", "x/2", "y/1"}
    assert two.calls == [("delete_objects", {"Bucket": "b", "Delete": {"Objects": [{"Key": "y/1"}]}})]


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ([{}], None),
        ([refusal("PreconditionFailed", 412)], None),
        ([refusal("NoSuchKey", 404)], None),
        ([refusal("AccessDenied", 403)], "AccessDenied"),
        ([refusal("SignatureDoesNotMatch", 403)], "SignatureDoesNotMatch"),
        ([refusal("NotImplemented", 501), {}, {}], None),
        ([refusal("NotImplemented", 501), {}, refusal("AccessDenied", 403)], "AccessDenied"),
        ([refusal("InvalidArgument", 400), {}, refusal("AccessDenied", 403)], "AccessDenied"),
        ([refusal("InvalidArgument", 405), {}, refusal("AccessDenied", 403)], "AccessDenied"),
    ],
)
def test_a_probe_returns_the_error_code(answers: list[Any], code: str | None) -> None:
    client = Client(*answers)
    assert store_with({"key-0-0": client}).probe_delete("s3://b/t/") == code
    name, arguments = client.calls[0]
    assert name == "delete_object"
    assert arguments["Key"].startswith("t/.delegation-probe-")
    assert arguments["IfMatch"]
    assert len(client.calls) == len(answers)
    assert len(answers) == 1 or "IfMatch" not in client.calls[-1][1]


def test_a_throttled_probe_raises() -> None:
    with pytest.raises(ObjectStoreUnavailable):
        store_with({"key-0-0": Client(refusal("SlowDown", 503))}).probe_delete("s3://b/t/")


def test_a_versioned_bucket_is_not_probed_without_if_match() -> None:
    client = Client(refusal("NotImplemented", 501), {"Status": "Enabled"})
    assert store_with({"key-0-0": client}).probe_delete("s3://b/t/") == "NotImplemented"
    assert [name for name, _ in client.calls] == ["delete_object", "get_bucket_versioning"]


@pytest.mark.parametrize("answer", [refusal("AccessDenied", 403), ResponseParserError("mismatched tag")])
def test_versioning_is_unknown_if_the_call_fails(answer: Exception) -> None:
    assert store_with({"key-0-0": Client(answer)}).versioned("b") is None


@pytest.mark.parametrize(
    ("answer", "versioned"),
    [
        ({"VersionId": "null"}, True),
        ({"VersionId": "8Zy.Qk"}, True),
        ({}, False),
        (refusal("AccessDenied", 403), None),
        (refusal("NoSuchKey", 404), None),
    ],
)
def test_any_version_id_of_an_object_means_that_its_bucket_keeps_or_kept_versions(
    answer: Any, versioned: bool | None
) -> None:
    if isinstance(answer, dict):
        answer = {**answer, "Body": io.BytesIO(b"x")}
    client = Client(refusal("AccessDenied", 403), answer)
    assert store_with({"key-0-0": client}).versioned("b", seen=WHERE) is versioned
    assert [name for name, _ in client.calls] == ["get_bucket_versioning", "get_object"]


def test_the_client_for_deletes_neither_retries_nor_validates() -> None:
    store = S3ObjectStore(Vended(), settings=S3Settings(region="us-east-1"))
    deleting = store._client(Vended().for_uri("s3://b/k"), deleting=True)
    reading = store._client(Vended().for_uri("s3://b/k"))
    assert deleting.meta.config.retries["total_max_attempts"] == 1
    assert reading.meta.config.retries["total_max_attempts"] == 5
    assert type(deleting._serializer) is not type(reading._serializer)
    assert type(reading._serializer).__name__ == "ParamValidationDecorator"


def test_the_clients_of_sixteen_credentials_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3ObjectStore(settings=S3Settings())
    monkeypatch.setattr(store, "_build", lambda _credential, *, deleting: object())
    credentials = [S3Credential("s3://b/", f"key-{number}", "secret", "token", None) for number in range(17)]
    clients = [store._client(credential) for credential in credentials[:16]]
    assert [store._client(credential) for credential in credentials[:16]] == clients
    store._client(credentials[16])
    assert store._client(credentials[0]) is not clients[0]
