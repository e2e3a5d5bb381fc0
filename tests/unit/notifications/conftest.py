"""The receiver, started once for each test module that uses it."""

from collections.abc import Iterator

import pytest

from tests.unit.notifications.receiver import Receiver, receiving


@pytest.fixture(scope="module")
def running_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with receiving(tmp_path_factory.mktemp("receiver")) as receiver:
        yield receiver


@pytest.fixture
def receiver(running_receiver: Receiver) -> Receiver:
    """The receiver as if nothing had been sent to it."""
    running_receiver.script.clear()
    running_receiver.received.clear()
    running_receiver.targets.clear()
    running_receiver.on_request = lambda: None
    return running_receiver
