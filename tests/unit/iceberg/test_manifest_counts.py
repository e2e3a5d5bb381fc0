"""A manifest that holds more entries than its manifest list counts is read no further than that count."""

import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.iceberg import reach
from delegation.iceberg.avro.manifests import BATCH, ManifestFile
from delegation.iceberg.errors import ManifestMismatchError
from tests.unit.iceberg.manifest_files import container
from tests.unit.operations.purge.hostile_files import DATA_FILE, ENTRY, STATUS

PATH = "s3://lake/wh/t/metadata/m0.avro"
SCHEMA = {"type": "record", "name": "manifest_entry", "fields": [STATUS, DATA_FILE]}


def manifest(blocks: int, count: int) -> bytes:
    """Return a manifest with the same compressed block many times."""
    packed = zlib.compress(ENTRY * count, wbits=-15)
    return container(SCHEMA, *[(count, packed)] * blocks, codec="deflate")


def claims(data: bytes, entries: int) -> ManifestFile:
    return ManifestFile(PATH, len(data), added_files_count=entries, existing_files_count=0, deleted_files_count=0)


class Counting:
    """Counts the entries that are decoded."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.decoded = 0
        self._read = reach.read_paths
        patch.setattr(reach, "read_paths", self.read)

    def read(self, *given: Any, **options: Any) -> Iterator[list[Any]]:
        for batch in self._read(*given, **options):
            self.decoded += len(batch)
            yield batch


def test_a_small_manifest_that_claims_one_entry_and_holds_ten_million_is_read_for_one_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = manifest(blocks=160, count=65_536)
    assert len(data) < 600_000
    counting = Counting(monkeypatch)
    with pytest.raises(ManifestMismatchError, match="has 1024 entries or more, but its manifest list records 1"):
        for _ in reach.entries(PATH, claims(data, 1), data):
            pass
    assert counting.decoded <= BATCH


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 200))
def test_no_entry_beyond_the_count_is_returned(count: int, blocks: int, claimed: int) -> None:
    data = manifest(blocks, count)
    returned = 0
    try:
        for rows in reach.entries(PATH, claims(data, claimed), data):
            returned += len(rows)
    except ManifestMismatchError:
        assert returned <= claimed != blocks * count
    else:
        assert returned == claimed == blocks * count
