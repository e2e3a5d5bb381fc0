"""What our reading and writing of DeleteObjects leans on in botocore, for the versions in `PINNED`.

If botocore's version is not in `PINNED`, run these tests and those of test_s3_delete.py with it, mend what fails, and
add the version. Until then botocore writes and reads the XML itself: correct, and three times as slow.
"""

import re
import tomllib
from xml.etree import ElementTree

import botocore
import pytest

from delegation.storage.s3_delete import PINNED, READ, read_answer, request_body
from tests.paths import ROOT
from tests.unit.storage.test_s3_delete import VERSIONS, client

OBJECTS = {"Bucket": "bucket", "Delete": {"Objects": [{"Key": "a&b"}, {"Key": "c"}]}}
ANSWER = (
    b'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Deleted><Key>a&amp;b</Key></Deleted><Deleted><Key>c</Key></Deleted></DeleteResult>"
)


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


def test_an_answer_is_parsed_once_and_a_request_serialized_without_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all this is for: botocore sees neither the keys that are sent nor those that are confirmed."""
    made, _ = client(ANSWER, way="botocore")
    parsed: list[bytes] = []

    class Parser(ElementTree.XMLParser):
        def feed(self, data: bytes) -> None:
            parsed.append(data)
            super().feed(data)

    monkeypatch.setattr(ElementTree, "XMLParser", Parser)
    made.delete_objects(**OBJECTS)
    assert set(parsed) == {ANSWER}
    parsed.clear()
    made, sent = client(ANSWER)
    found = made.delete_objects(**OBJECTS)
    assert found[READ] == read_answer(ANSWER)
    assert sent[0].body == request_body(["a&b", "c"])
    assert parsed == []


@pytest.mark.parametrize("version", ["1.43.99", "1.45.0", "2.44.1"])
def test_with_another_version_botocore_writes_and_reads_the_xml(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, "other", version)
    made, _ = client(ANSWER, way="other")
    found = made.delete_objects(**OBJECTS)
    assert READ not in found
    assert [one["Key"] for one in found["Deleted"]] == ["a&b", "c"]
