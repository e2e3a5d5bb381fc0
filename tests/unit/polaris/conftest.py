import pytest

from tests.unit.polaris.scripted import Clock, Server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> Server:
    return Server()
