"""Shuffled rows arrive once, sorted and at one part; every part has its partition."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.worksets.engines.shuffle import Gathered, Spread, _murmur3, pack, part_keys, unpack

ROWS = st.lists(
    st.tuples(st.text(alphabet="ab/\n\x00é😀", min_size=1, max_size=4), st.integers(0, 8), st.integers(0, 1 << 60)),
    max_size=30,
)


@settings(deadline=None)
@given(ROWS, ROWS, st.integers(1, 4), st.integers(1, 12))
def test_every_path_reaches_one_part_once_with_its_lowest_rank(
    ours: list[tuple[str, int, int]], others: list[tuple[str, int, int]], parts: int, most: int
) -> None:
    spread = Spread(part_keys(parts), most=most)
    batches = [batch for row in ours for batch in spread.add([row], 0)]
    batches += [*spread.add(others, 1), *spread.flush()]
    gathered = Gathered(reversed(batches))
    assert set(gathered.keys) <= set(part_keys(parts))
    for mark, sent in ((0, ours), (1, others)):
        found = [row for key in gathered.keys for rows in gathered.rows(key, mark) for row in rows]
        first = {path: min(row for row in sent if row[0] == path) for path, _, _ in sent}
        assert sorted(found) == sorted(first.values())
        for key in gathered.keys:
            paths = list(gathered.paths(key, mark))
            assert paths == sorted(set(paths))
    parts_of = Counter(path for key in gathered.keys for path in {*gathered.paths(key, 0), *gathered.paths(key, 1)})
    assert set(parts_of.values()) <= {1}


def test_the_part_of_a_path_does_not_depend_on_the_process() -> None:
    """A task that runs again elsewhere must send each path to the same part as before."""
    spread = Spread(part_keys(3))
    batches = [*spread.add([(f"s3://b/{number}", 8, 1) for number in range(6)], 0), *spread.flush()]
    runs = Gathered(batches)
    found = [[path[-1] for path in runs.paths(key, 0)] for key in part_keys(3)]
    assert found == [["0", "4"], [], ["1", "2", "3", "5"]]


@pytest.mark.parametrize(("value", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574), (42, 29417773)])
def test_parts_are_hashed_as_spark_does(value: int, hashed: int) -> None:
    assert _murmur3(value) == hashed


@pytest.mark.parametrize("count", [1, 2, 7, 200])
def test_each_part_has_a_partition(count: int) -> None:
    assert [_murmur3(key) % count for key in part_keys(count)] == list(range(count))


def test_packed_values_are_small_and_unpacked_unchanged() -> None:
    value = [[f"s3://bucket/table/data/{number:05d}.parquet" for number in range(500)], [8] * 500]
    assert unpack(pack(value)) == value
    assert len(pack(value)) < 10_000
