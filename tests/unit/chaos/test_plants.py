"""Each planted fault breaks the safeguard that it names, wherever that has moved."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from delegation.removal import neighbours
from delegation.storage.s3 import S3ObjectStore
from tests.chaos.plants import PLANTS


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    patch.stopall()


def test_a_purge_that_is_blind_to_clones_finds_no_neighbour_near() -> None:
    before = neighbours.is_near
    PLANTS["blind-to-clones"]()
    assert neighbours.is_near is not before


def test_a_success_too_early_replaces_the_deletes_of_the_store() -> None:
    before = S3ObjectStore.delete
    PLANTS["success-too-early"]()
    assert S3ObjectStore.delete is not before
