"""The queues of notifications that a process sends to."""

from typing import Any

import pytest

from delegation.notifications.queue import Pool
from delegation.wiring import tasks as wired


class Depths:
    """A client of SQS whose queues have as many messages as the last part of their URLs states."""

    def get_queue_attributes(self, *, QueueUrl: str, **_arguments: Any) -> dict[str, Any]:
        return {"Attributes": {"ApproximateNumberOfMessages": QueueUrl.rpartition("/")[2]}}


def test_each_variable_names_the_queue_of_its_kind_of_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow receiver that is set apart must not fill the queue of the events."""
    monkeypatch.setattr(wired, "aws", lambda *_arguments: Depths())
    for depth, kind in enumerate(("NOTIFICATION", "EVENT", "APART"), start=1):
        monkeypatch.setenv(f"DELEGATION_{kind}_QUEUE_URL", f"https://sqs.test/{depth}")
    queue = wired.notification_queue()
    assert queue is not None
    assert {pool: queue.depth(pool) for pool in Pool} == {Pool.CALLBACKS: 1, Pool.EVENTS: 2, Pool.APART: 3}
