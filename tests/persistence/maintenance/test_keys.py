"""The sets of keys that maintenance remembers: exact, stored in chunks, with one mark a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polaris_persistence.backends.base import ObjectKey
from polaris_persistence.errors import CorruptObject
from polaris_persistence.maintenance.keys import KeyChunk, KeyGroup, KeySet, MaintenanceKeys

NAMES = st.text(max_size=3)
KEYS = st.builds(ObjectKey, NAMES, NAMES, NAMES, st.integers(0, 2**63 - 1) | st.integers(0, 5))
Rows = list[tuple[ObjectKey, int]]
ROWS = st.lists(st.tuples(KEYS, st.integers(1, 3)), max_size=30)


def chunk_of(rows: Rows) -> MaintenanceKeys:
    chunk = KeyChunk()
    for key, parts in rows:
        chunk.add(key, parts)
    assert chunk.count == len({key for key, _ in rows})
    return chunk.value()


@given(st.lists(ROWS, max_size=4), st.sets(KEYS, max_size=5))
def test_a_set_has_exactly_the_keys_of_its_chunks(
    chunks: list[list[tuple[ObjectKey, int]]], others: set[ObjectKey]
) -> None:
    found = KeySet(chunk_of(rows) for rows in chunks)
    keys = {key for rows in chunks for key, _ in rows}
    assert len(found) == len(keys)
    assert all(key in found for key in keys)
    assert not any(key in found for key in others - keys)
    assert [one.key for one in found.unmarked()] == sorted(keys)


@given(ROWS, st.data())
def test_marks_are_exact_and_survive_being_stored(rows: Rows, data: st.DataObject) -> None:
    parts = {key: max(1, count) for key, count in rows}
    chunk = chunk_of(list(parts.items()))
    found = KeySet([chunk])
    marked = data.draw(st.sets(st.sampled_from(sorted(parts)))) if parts else set()
    assert [found.mark(key) for key in marked] == [True] * len(marked)
    assert [found.mark(key) for key in marked] == [False] * len(marked)
    restored = KeySet([MaintenanceKeys.model_validate(chunk.model_dump())])
    restored.restore(found.bits())
    assert restored.marked() == found.marked() == len(marked)
    assert {one.key: one.parts for one in restored.unmarked()} == {
        key: count for key, count in parts.items() if key not in marked
    }


def test_a_key_that_is_not_in_the_set_cannot_be_marked() -> None:
    found = KeySet([chunk_of([(ObjectKey("r", "c", "t", 1), 1)])])
    assert found.mark(ObjectKey("r", "c", "t", 2)) is None
    assert found.mark(ObjectKey("r", "c", "other", 1)) is None


def test_stored_keys_and_marks_of_another_size_are_corrupt() -> None:
    found = KeySet([chunk_of([(ObjectKey("r", "c", "t", 1), 1)])])
    with pytest.raises(CorruptObject, match="2 bytes"):
        found.restore(b"12")
    with pytest.raises(CorruptObject, match="truncated"):
        KeySet([MaintenanceKeys(groups=(KeyGroup(realm="r", catalog="c", type="t", ids=b"1234567"),))])
