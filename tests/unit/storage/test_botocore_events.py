"""What our reading and writing of DeleteObjects leans on in botocore, for the versions in `PINNED`.

If botocore's version is not in `PINNED`, run these tests and those of test_s3_delete.py with it, mend what fails, and
add the version. Until then botocore writes and reads the XML itself: correct, and three times as slow.
"""

import base64
import re
import tomllib
import zlib
from typing import Any
from xml.etree import ElementTree

import botocore
import pytest
from botocore.awsrequest import AWSResponse
from botocore.hooks import HierarchicalEmitter

from delegation.storage.s3_delete import PINNED, READ, prepare_for_deletes, read_answer, request_body
from delegation.storage.sessions import new_session
from tests.paths import ROOT

OBJECTS = {"Bucket": "bucket", "Delete": {"Objects": [{"Key": "a&b"}, {"Key": "c"}]}}
ANSWER = (
    b'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Deleted><Key>a&amp;b</Key></Deleted><Deleted><Key>c</Key></Deleted></DeleteResult>"
)
# The arguments that our handlers name.
NAMED = {
    "provide-client-params.s3.DeleteObjects": {"params", "context"},
    "before-call.s3.DeleteObjects": {"params", "context"},
    "before-parse.s3.DeleteObjects": {"response_dict", "customized_response_dict"},
    "after-call.s3.DeleteObjects": {"http_response", "parsed"},
}


class Raw:
    def stream(self, **_: Any) -> list[bytes]:
        return [ANSWER]


def client() -> Any:
    made = new_session().client("s3", region_name="us-east-1", aws_access_key_id="id", aws_secret_access_key="secret")
    made.meta.events.register("before-send.s3", answer)
    return made


def answer(request: Any, **_: Any) -> AWSResponse:
    return AWSResponse(request.url, 200, {"Content-Type": "application/xml"}, Raw())  # type: ignore[arg-type]


def test_the_installed_botocore_is_pinned() -> None:
    version = tuple(int(part) for part in botocore.__version__.split(".")[:2])
    assert version in PINNED, (
        f"botocore {botocore.__version__} is not in PINNED; this module's docstring says what to do"
    )


def test_the_oldest_boto3_that_may_be_installed_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = re.search(r"boto3>=(\d+)\.(\d+)", " ".join(project["optional-dependencies"]["service"]))
    assert oldest is not None
    assert (int(oldest[1]), int(oldest[2])) in PINNED


@pytest.mark.parametrize("event", NAMED)
def test_botocore_calls_the_handlers_of_an_event_once_with_the_arguments_that_ours_name(event: str) -> None:
    made, calls = client(), []
    made.meta.events.register(event, lambda **arguments: calls.append(arguments))
    made.delete_objects(**OBJECTS)
    assert [arguments.keys() >= NAMED[event] for arguments in calls] == [True]


def test_one_context_passes_from_the_parameters_to_the_call() -> None:
    made, contexts = client(), []
    for event in list(NAMED)[:2]:
        made.meta.events.register(event, lambda context, **_: contexts.append(context))
    made.delete_objects(**OBJECTS)
    assert contexts[0] is contexts[1]


def test_parameters_that_a_handler_returns_are_serialized() -> None:
    made, bodies = client(), []
    made.meta.events.register(next(iter(NAMED)), lambda params, **_: params | {"Delete": {"Objects": []}})
    made.meta.events.register("before-call.s3.DeleteObjects", lambda params, **_: bodies.append(params["body"]))
    made.delete_objects(**OBJECTS)
    assert b"Key" not in bodies[0]


def test_a_body_and_headers_written_before_the_call_are_sent_and_signed() -> None:
    made, sent = client(), []

    def write(params: dict[str, Any], **_: Any) -> None:
        params["body"] = b"<Delete/>"
        params["headers"]["Content-MD5"] = "digest"

    made.meta.events.register("before-call.s3.DeleteObjects", write)
    made.meta.events.register_first("before-send.s3", lambda request, **_: sent.append(request))
    made.delete_objects(**OBJECTS)
    assert sent[0].body == b"<Delete/>"
    assert sent[0].headers["x-amz-checksum-crc32"] == base64.b64encode(zlib.crc32(b"<Delete/>").to_bytes(4, "big"))
    assert b"content-md5" in sent[0].headers["Authorization"]


def test_a_handler_of_one_operation_and_any_service_comes_before_those_of_all_operations_of_s3() -> None:
    emitter, order = HierarchicalEmitter(), []
    for name in ("before-parse.s3.*", "before-parse.s3.DeleteObjects", "before-parse.*.DeleteObjects"):
        emitter.register(name, lambda event_name, name=name, **_: order.append(name))
    emitter.emit("before-parse.s3.DeleteObjects")
    assert order == ["before-parse.*.DeleteObjects", "before-parse.s3.*", "before-parse.s3.DeleteObjects"]


def test_an_empty_answer_is_parsed_as_nothing_and_what_a_handler_adds_is_returned() -> None:
    made = client()

    def take(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
        assert response_dict["status_code"] == 200
        assert response_dict["body"] == ANSWER
        customized_response_dict["Ours"] = "added"
        response_dict["body"] = b""

    made.meta.events.register("before-parse.*.DeleteObjects", take)
    found = made.delete_objects(**OBJECTS)
    assert found.keys() == {"Ours", "ResponseMetadata"}


def test_an_answer_is_parsed_once_and_a_request_serialized_without_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all this is for: botocore sees neither the keys that are sent nor those that are confirmed."""
    made, sent = client(), []
    parsed: list[bytes] = []

    class Parser(ElementTree.XMLParser):
        def feed(self, data: bytes) -> None:
            parsed.append(data)
            super().feed(data)

    monkeypatch.setattr(ElementTree, "XMLParser", Parser)
    made.delete_objects(**OBJECTS)
    assert set(parsed) == {ANSWER}
    parsed.clear()
    prepare_for_deletes(made)
    made.meta.events.register_first("before-send.s3", lambda request, **_: sent.append(request))
    found = made.delete_objects(**OBJECTS)
    assert found[READ] == read_answer(ANSWER)
    assert sent[0].body == request_body(["a&b", "c"])
    assert parsed == []


@pytest.mark.parametrize("version", ["1.43.99", "1.45.0", "2.44.1"])
def test_with_another_version_botocore_writes_and_reads_the_xml(version: str) -> None:
    made = client()
    prepare_for_deletes(made, version=version)
    found = made.delete_objects(**OBJECTS)
    assert READ not in found
    assert [one["Key"] for one in found["Deleted"]] == ["a&b", "c"]
