"""A manifest whose length its list has wrong is compared by counts, and read no further than these."""

import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.iceberg.avro import manifests
from delegation.iceberg.avro.manifests import BATCH, ManifestFile
from tests.unit.iceberg.manifest_files import container, zigzag
from tests.unit.removal.purge.hostile_files import DATA_FILE, ENTRY, STATUS

PATH = "s3://lake/wh/t/metadata/m0.avro"
RECORDS = {"name": "record_count", "type": "int", "field-id": 103}
COUNTED = DATA_FILE | {"type": DATA_FILE["type"] | {"fields": [*DATA_FILE["type"]["fields"], RECORDS]}}
SCHEMA = {"type": "record", "name": "manifest_entry", "fields": [STATUS, COUNTED]}


def manifest(blocks: int, count: int) -> bytes:
    """Return a manifest with the same compressed block many times."""
    packed = zlib.compress((ENTRY + zigzag(1)) * count, wbits=-15)
    return container(SCHEMA, *[(count, packed)] * blocks, codec="deflate")


def claims(data: bytes, entries: int) -> ManifestFile:
    """Return the manifest as a list has it whose length is stale, so that the counts decide."""
    counts = {"added_files_count": entries, "existing_files_count": 0, "deleted_files_count": 0}
    rows = {"added_rows_count": entries, "existing_rows_count": 0, "deleted_rows_count": 0}
    return ManifestFile(PATH, len(data) + 1, 0, added_snapshot_id=1, **counts, **rows)


def test_a_small_manifest_that_claims_one_entry_and_holds_ten_million_is_read_for_one_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = manifest(blocks=160, count=65_536)
    assert len(data) < 600_000
    decoded, rows = 0, manifests._rows

    def counting(*given: Any) -> Iterator[list[Any]]:
        nonlocal decoded
        for batch in rows(*given):
            decoded += len(batch)
            yield batch

    monkeypatch.setattr(manifests, "_rows", counting)
    found = manifests.mismatch_of(claims(data, 1), data, PATH)
    assert found is not None
    assert decoded <= BATCH


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 200))
def test_a_manifest_of_a_stale_length_is_whole_with_as_many_entries_as_it_claims(
    count: int, blocks: int, claimed: int
) -> None:
    data = manifest(blocks, count)
    assert (manifests.mismatch_of(claims(data, claimed), data, PATH) is None) == (claimed == blocks * count)
