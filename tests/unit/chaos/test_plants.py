"""Each planted fault breaks the safeguard that it names, wherever that has moved."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from delegation.removal import neighbours
from delegation.removal.neighbourhood import Neighbour
from delegation.storage.base import BatchResult
from delegation.storage.s3 import S3ObjectStore
from tests.chaos.plants import PLANTS


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    real = neighbours.is_overlapping, S3ObjectStore.delete
    yield
    patch.stopall()
    assert (neighbours.is_overlapping, S3ObjectStore.delete) == real


def test_a_purge_that_is_blind_to_clones_takes_no_table_for_a_neighbour() -> None:
    certain: Any = Neighbour(table=None, store=None, certain=True)  # type: ignore[arg-type]
    nowhere: Any = None
    assert neighbours.is_overlapping(nowhere, certain)
    PLANTS["blind-to-clones"]()
    assert not neighbours.is_overlapping(nowhere, certain)


def test_a_success_too_early_reports_a_data_file_that_is_not_deleted() -> None:
    deleted: list[str] = []

    def delete(_store: Any, _bucket: str, keys: list[str]) -> BatchResult:
        deleted.extend(keys)
        return BatchResult(tuple(keys))

    patch.object(S3ObjectStore, "delete", delete).start()
    PLANTS["success-too-early"]()
    result = S3ObjectStore.delete(None, "lake", ["a.parquet", "b.parquet", "c.avro"])  # type: ignore[arg-type]
    assert deleted == ["a.parquet", "c.avro"]
    assert set(result.deleted) == {"a.parquet", "b.parquet", "c.avro"}
