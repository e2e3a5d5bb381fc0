"""What a store's answers to deletes and looks may mean, and how much of an answer is read (issue 12)."""

import base64
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delegation.storage.base import KeyFailure, ObjectStoreError
from delegation.storage.credentials import S3Settings
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import ObjectLocation
from delegation.storage.s3 import S3ObjectStore, S3Timeouts
from tests.unit.storage.test_s3 import Client, refusal, store_with


@pytest.mark.parametrize("code", ["NoSuchBucket", "404", "NotFound"])
def test_only_a_missing_key_or_version_is_absent(code: str) -> None:
    errors = [{"Key": "k", "Code": code}, {"Key": "gone", "Code": "NoSuchKey"}, {"Key": "v", "Code": "NoSuchVersion"}]
    result = store_with({"key-0-0": Client({"Errors": errors})}).delete("b", ["k", "gone", "v"])
    assert set(result.deleted) == {"gone", "v"}
    assert result.failed == (KeyFailure("k", code),)


@pytest.mark.parametrize("error", [{"Key": "k", "Code": "AccessDenied"}, {"Code": "AccessDenied"}])
def test_a_key_under_both_lists_is_not_deleted(error: dict[str, str]) -> None:
    answer = {"Deleted": [{"Key": "k"}], "Errors": [error]}
    result = store_with({"key-0-0": Client(answer)}).delete("b", ["k"])
    assert (result.deleted, result.failed) == ((), (KeyFailure("k", "AccessDenied"),))


@pytest.mark.parametrize("call", [lambda s: s.probe_delete("s3://b/t/"), lambda s: s.exists(ObjectLocation("b", "k"))])
def test_a_look_into_a_missing_bucket_is_an_error(call: Callable[[S3ObjectStore], object]) -> None:
    with pytest.raises(ObjectStoreError) as raised:
        call(store_with({"key-0-0": Client(refusal("NoSuchBucket", 404))}))
    assert raised.value.code == "BUCKET_NOT_FOUND"


@pytest.mark.parametrize("one", [{}, {"Key": ["k", "l"]}, {"VersionId": "1"}])
def test_an_entry_without_one_key_confirms_nothing(one: dict[str, Any]) -> None:
    client = Client({"Deleted": [one]}, {"ResponseMetadata": {"HTTPStatusCode": 200}})
    result = store_with({"key-0-0": client}).delete("b", ["k"])
    assert (result.deleted, result.failed) == ((), (KeyFailure("k", "NoAnswer"),))


@pytest.mark.parametrize(
    ("code", "status"),
    [("MissingContentMD5", 400), ("InvalidDigest", 400), ("405", 405), ("501", 501), ("SignatureDoesNotMatch", 403)],
)
def test_keys_are_deleted_one_by_one_if_the_store_refuses_deletes_of_many(code: str, status: int) -> None:
    answers = [refusal(code, status), {"ResponseMetadata": {"HTTPStatusCode": 204}}, refusal("AccessDenied", 403)]
    client = Client(*answers)
    result = store_with({"key-0-0": client}).delete("b", ["k", "l"])
    assert [name for name, _ in client.calls] == ["delete_objects", "delete_object", "delete_object"]
    assert (result.deleted, result.failed) == (("k",), (KeyFailure("l", "AccessDenied"),))


def test_no_other_key_is_tried_alone_if_the_store_refuses_the_first_one_too() -> None:
    client = Client(refusal("MethodNotAllowed", 405), refusal("MethodNotAllowed", 405))
    result = store_with({"key-0-0": client}).delete("b", ["k", "l", "m"])
    assert (result.deleted, {one.code for one in result.failed}) == ((), {"MethodNotAllowed"})
    assert [name for name, _ in client.calls] == ["delete_objects", "delete_object"]


def test_a_key_that_is_refused_alone_for_another_reason_ends_nothing() -> None:
    done = {"ResponseMetadata": {"HTTPStatusCode": 204}}
    client = Client(refusal("MethodNotAllowed", 405), refusal("InternalError", 500), done, done)
    result = store_with({"key-0-0": client}).delete("b", ["k", "l", "m"])
    assert (result.deleted, result.failed) == (("l", "m"), (KeyFailure("k", "InternalError"),))


ODD = [
    RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
    KeyError("LastModified"),
    TypeError("int() argument must be a string"),
]


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_what_botocore_raises_beside_its_own_errors_is_an_error_of_the_store(error: Exception) -> None:
    location = ObjectLocation("b", "k")
    with pytest.raises(ObjectStoreError, match=type(error).__name__):
        store_with({"key-0-0": Client(error)}).read(location, limit=1)
    with pytest.raises(ObjectStoreError, match=type(error).__name__):
        store_with({"key-0-0": Client(error)}).page("b", "")
    result = store_with({"key-0-0": Client(error)}).delete("b", ["k"])
    assert result.failed == (KeyFailure("k", "NoAnswer"),)


@pytest.mark.parametrize("etag", [{"ETag": '"1"'}, {"ETag": '"2"'}, {}], ids=["same", "other", "none"])
def test_an_object_without_a_time_is_neither_unchanged_nor_changed(etag: dict[str, str]) -> None:
    client = Client({**etag, "ContentLength": 1})
    found = store_with({"key-0-0": client}).delete_unchanged("b", [ListedObject("k", 1, '"1"', 0)]).result
    assert (found.deleted, found.failed) == ((), (KeyFailure("k", "NoAnswer"),))


class Wire:
    """A server that keeps the requests it gets and answers each with the same bytes, then closes the connection."""

    def __init__(self, answer: bytes, *, filler: int = 0) -> None:
        self.requests: list[bytes] = []
        self.sent = 0
        self._answer, self._filler = answer, filler
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                head, body = connection.recv(65_536), b""
                while b"</Delete>" not in head + body and head.startswith(b"POST"):
                    body += connection.recv(65_536)
                self.requests.append(head + body)
                try:
                    connection.sendall(self._answer)
                    while self.sent < self._filler:
                        self.sent += connection.send(b" " * 65_536)
                except OSError:
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    wire = Wire(*request.param)
    yield wire
    wire.close()


def on(wire: Wire) -> S3ObjectStore:
    settings = S3Settings(endpoint=wire.url, region="us-east-1", path_style=True)
    return S3ObjectStore(settings=settings, timeouts=S3Timeouts(connect=5, read=5, tries=1))


SENT = 48 * 1024 * 1024
HUGE = b"HTTP/1.1 %b\r\nContent-Type: application/xml\r\nContent-Length: 3221225472\r\n\r\n<DeleteResult>"
DONE = b"<DeleteResult><Deleted><Key>k</Key></Deleted></DeleteResult>"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(DONE), DONE)


@pytest.mark.parametrize("wire", [(HUGE % b"200 OK",), (HUGE % b"500 Oh",)], indirect=True)
def test_no_more_than_a_few_megabytes_of_an_answer_are_read(wire: Wire) -> None:
    wire._filler = SENT
    result = on(wire).delete("b", ["k"])
    assert [failure.code for failure in result.failed] == ["AnswerTooLarge"]
    with pytest.raises(ObjectStoreError) as raised:
        on(wire).versioned("b") or on(wire).probe_delete("s3://b/t/")
    assert raised.value.code == "STORAGE_ANSWER_TOO_LARGE"
    assert wire.sent < SENT


@pytest.mark.parametrize("wire", [(OK,)], indirect=True)
def test_a_delete_of_many_carries_both_checksums(wire: Wire) -> None:
    assert on(wire).delete("b", ["k"]).deleted == ("k",)
    head, _, body = wire.requests[0].partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert headers[b"content-md5"] == base64.b64encode(hashlib.md5(body).digest()).lower()
    assert b"x-amz-checksum-crc32" in headers
    assert b"content-md5" in headers[b"authorization"]
