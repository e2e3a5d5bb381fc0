"""The task that the steps of an execution run."""

import pytest

from tests.kit.tasks.driven import Driven


@pytest.fixture
def driven() -> Driven:
    return Driven()
