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


@pytest.fixture
def here(world: Callable[..., DropWorld]) -> DropWorld:
    """A deployment with the defaults."""
    return world()


@pytest.fixture
def graced(world: Callable[..., DropWorld]) -> DropWorld:
    """A deployment with a week of grace, in which ann dropped the table `own`."""
    here = world(grace="7d")
    here.own = here.table()  # type: ignore[attr-defined]
    here.files_before = here.data()  # type: ignore[attr-defined]
    assert here.drop().status == 204
    return here
