import pytest

from tests.kit.clocks import Clock
from tests.unit.polaris.scripted import Server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> Server:
    return Server()
