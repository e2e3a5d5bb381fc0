"""Worlds of drops, closed at the end of a test."""

from collections.abc import Callable, Iterator

import pytest

from tests.unit.gateway.drop.world import DropWorld


@pytest.fixture
def world() -> Iterator[Callable[..., DropWorld]]:
    """A function that makes a deployment with some settings `delegation.drop.*`."""
    made: list[DropWorld] = []

    def make(**properties: str) -> DropWorld:
        made.append(DropWorld(**properties))
        return made[-1]

    yield make
    for one in made:
        one.close()
