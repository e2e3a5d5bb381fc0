"""DynamoDbBackend sends the batches of one read or write at the same time."""

import threading
from typing import Any

from polaris_persistence.backends.base import Locator, ObjectKey, StoredObject
from polaris_persistence.backends.dynamodb import Calls, DynamoDbBackend


class MeetingClient:
    """Answers a batch only once another one has arrived too."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=5)
        self.calls = 0

    def batch_get_item(self, **_arguments: Any) -> dict[str, Any]:
        self.calls += 1
        self.barrier.wait()
        return {"Responses": {}}

    def batch_write_item(self, **_arguments: Any) -> dict[str, Any]:
        self.calls += 1
        self.barrier.wait()
        return {}


def backend() -> tuple[DynamoDbBackend, MeetingClient]:
    client = MeetingClient()
    return DynamoDbBackend(Calls(client), objects="objects", references="references"), client


def test_batches_of_a_read_are_sent_at_the_same_time() -> None:
    store, client = backend()
    wanted = [Locator(ObjectKey("r", "c", "t", number)) for number in range(150)]
    assert store.fetch_many(wanted) == {}
    assert client.calls == 2


def test_batches_of_a_write_are_sent_at_the_same_time() -> None:
    store, client = backend()
    store.put_many([StoredObject(ObjectKey("r", "c", "t", number), b"", 0) for number in range(50)])
    assert client.calls == 2
