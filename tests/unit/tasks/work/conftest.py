"""Services for the tests of work."""

import pytest

from tests.kit.tasks.harness import RacedService
from tests.kit.tasks.sites import Site


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def harness() -> RacedService:
    return RacedService()
