"""A catalog for each test."""

from collections.abc import Iterator

import pytest

from tests.unit.gateway.keys.stand_in import KeyedCatalog


@pytest.fixture
def world() -> Iterator[KeyedCatalog]:
    world = KeyedCatalog()
    yield world
    world.close()
