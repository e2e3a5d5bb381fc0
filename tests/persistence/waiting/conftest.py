"""Processes whose changes may wait, and the entity `n` of the number 1."""

import pytest

from tests.persistence.builders import add
from tests.persistence.waiting.waiting_world import Waiting


@pytest.fixture
def world() -> Waiting:
    world = Waiting()
    world.committer.commit(add("n"))
    return world
