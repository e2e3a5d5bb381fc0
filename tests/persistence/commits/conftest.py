"""A store and the processes that commit to it."""

import pytest

from tests.persistence.commits.commit_world import CommitWorld


@pytest.fixture
def world() -> CommitWorld:
    return CommitWorld()
