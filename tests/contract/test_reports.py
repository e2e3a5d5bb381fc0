"""The contract of ReportStore, for memory and S3 (moto)."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.exceptions import IncompleteReadError

from delegation.storage.base import FileTooLarge, ObjectNotFound, ObjectStoreUnavailable
from delegation.storage.credentials import S3Settings
from delegation.storage.listing.reports import PIECE, ReportStore
from delegation.storage.listing.reports_s3 import pieces_of
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import MemoryObjectStore
from delegation.storage.s3 import S3ObjectStore
from tests.aws import mock_aws


@dataclass
class Held:
    """A store under test, and what writes an object to it."""

    store: ReportStore
    put: Callable[[str, bytes], Any]


@pytest.fixture(params=["memory", "s3"])
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    if request.param == "memory":
        memory = MemoryObjectStore()
        yield Held(memory, lambda key, data: memory.put(ObjectLocation("reports", key), data))
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="reports")
        yield Held(
            S3ObjectStore(settings=S3Settings(region="us-east-1")),
            lambda key, data: client.put_object(Bucket="reports", Key=key, Body=data),
        )


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE + 7])
def test_an_object_comes_in_pieces_whatever_its_size(held: Held, size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    held.put("a b/%41.csv.gz", data)
    found = list(held.store.pieces(ObjectLocation("reports", "a b/%41.csv.gz")))
    assert b"".join(found) == data
    assert all(0 < len(one) <= PIECE for one in found)


def test_an_object_that_is_not_there_is_not_found(held: Held) -> None:
    with pytest.raises(ObjectNotFound):
        list(held.store.pieces(ObjectLocation("reports", "absent")))
    with pytest.raises(ObjectNotFound):
        held.store.read(ObjectLocation("reports", "absent"), limit=10)


def test_an_object_may_be_left_in_the_middle(held: Held) -> None:
    held.put("large", b"x" * (2 * PIECE))
    with closing(held.store.pieces(ObjectLocation("reports", "large"))) as pieces:
        assert len(next(pieces)) == PIECE
    assert list(pieces) == []


def test_a_small_object_is_read_up_to_a_limit(held: Held) -> None:
    held.put("small", b"12345")
    assert held.store.read(ObjectLocation("reports", "small"), limit=5) == b"12345"
    with pytest.raises(FileTooLarge):
        held.store.read(ObjectLocation("reports", "small"), limit=4)


def test_an_answer_of_s3_that_breaks_off_is_tried_again_later() -> None:
    class Broken:
        closed = False

        def iter_chunks(self, _size: int) -> Iterator[bytes]:
            yield b"first"
            raise IncompleteReadError(actual_bytes=5, expected_bytes=9)

        def close(self) -> None:
            self.closed = True

    body: Any = Broken()
    with pytest.raises(ObjectStoreUnavailable):
        list(pieces_of("s3://reports/x", body))
    assert body.closed
