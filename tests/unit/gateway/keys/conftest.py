"""A catalog for each test."""

from collections.abc import Iterator

import pytest

from tests.unit.gateway.keys.stand_in import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
