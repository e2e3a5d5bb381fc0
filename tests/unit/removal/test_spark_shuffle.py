"""Shuffled rows arrive once, sorted and at one part."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.removal.spark_executors import ReceivedRuns, Spread, pack, unpack

ROWS = st.lists(
    st.tuples(st.text(alphabet="ab/\n\x00é😀", min_size=1, max_size=4), st.integers(0, 8), st.integers(0, 1 << 60)),
    max_size=30,
)


@settings(deadline=None)
@given(ROWS, ROWS, st.integers(1, 4), st.integers(1, 12))
def test_every_path_reaches_one_part_once_with_its_lowest_rank(
    ours: list[tuple[str, int, int]], others: list[tuple[str, int, int]], parts: int, most: int
) -> None:
    spread = Spread(parts, most=most)
    runs = [run for row in ours for run in spread.add([row], 0)]
    runs += [*spread.add(others, 1), *spread.flush()]
    gathered = ReceivedRuns(reversed(runs))
    assert set(gathered.parts) <= set(range(parts))
    for mark, sent in ((0, ours), (1, others)):
        found = [row for part in gathered.parts for rows in gathered.rows(part, mark) for row in rows]
        first = {path: min(row for row in sent if row[0] == path) for path, _, _ in sent}
        assert sorted(found) == sorted(first.values())
        for part in gathered.parts:
            paths = list(gathered.paths(part, mark))
            assert paths == sorted(set(paths))
    parts_of = Counter(path for part in gathered.parts for path in {*gathered.paths(part, 0), *gathered.paths(part, 1)})
    assert set(parts_of.values()) <= {1}


def test_the_part_of_a_path_does_not_depend_on_the_process() -> None:
    """A task that runs again elsewhere must send each path to the same part as before."""
    spread = Spread(3)
    runs = ReceivedRuns([*spread.add([(f"s3://b/{number}", 8, 1) for number in range(6)], 0), *spread.flush()])
    found = [[path[-1] for path in runs.paths(part, 0)] for part in range(3)]
    assert found == [["0", "4"], [], ["1", "2", "3", "5"]]


def test_rows_that_are_alike_up_to_an_end_come_to_one_part_and_ranges_of_paths_are_as_said() -> None:
    alike = [(f"{name}\x00{more}", 8, 1) for name in "abcdefgh" for more in ("", "x", "y\x00z")]
    spread = Spread(3, end="\x00")
    gathered = ReceivedRuns([*spread.add(alike, 0), *spread.flush()])
    parts = [{path.partition("\x00")[0] for path in gathered.paths(part, 0)} for part in range(3)]
    assert sorted(name for names in parts for name in names) == list("abcdefgh")
    assert sum(len(list(gathered.paths(part, 0))) for part in range(3)) == len(alike)

    ranges = Spread(2, part_of=lambda path: int(path >= "d"))
    gathered = ReceivedRuns([*ranges.add(alike, 0), *ranges.flush()])
    assert [{path[0] for path in gathered.paths(part, 0)} for part in range(2)] == [set("abc"), set("defgh")]


def test_packed_values_are_small_and_unpacked_unchanged() -> None:
    value = [[f"s3://bucket/table/data/{number:05d}.parquet" for number in range(500)], [8] * 500]
    assert unpack(pack(value)) == value
    assert len(pack(value)) < 10_000
