"""Rows that are spread over parts, the parts that are written of them, and errors on the way."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.paths import RANK, FileType, Row
from delegation.identifiers import TableIdentifier
from delegation.removal.chunks import Phase, read_chunk
from delegation.removal.errors import PlanLost
from delegation.removal.index import SAMPLE, Finding
from delegation.removal.spark_executors import (
    ReceivedRuns,
    Result,
    Spread,
    SpreadSources,
    WriteParts,
    WrittenParts,
    decode_error,
    pack,
    part_writer,
    unpack,
    written,
)
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.memory import MemoryPlanStore
from polaris_common.errors import DelegationError

DATA = RANK[FileType.DATA]
MARK, OTHER = 0, 1
PATHS = [f"s3://lake/t/{number:03d}.parquet" for number in range(100)]


class InMemory:
    """The plans of an executor; nothing else is opened."""

    def __init__(self, plans: MemoryPlanStore) -> None:
        self._plans = plans

    def plans(self) -> PlanStore:
        return self._plans

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        raise NotImplementedError

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        raise NotImplementedError


def numbers(source: Any) -> Iterator[tuple[Sequence[Row], int]]:
    """Yield a row for each number of a source; a missing manifest for a negative one."""
    for number in source:
        if number < 0:
            raise ManifestMissing("s3://lake/t/m.avro")
        yield [(PATHS[number], DATA, 1)], MARK
        yield [(PATHS[number], DATA, 1)], OTHER


def results(sources: Sequence[Sequence[int]], write: Any, parts: int = 3) -> list[Result]:
    reading = SpreadSources.of(numbers, parts, sources)
    runs = [run for number in range(len(sources)) for run in reading([number])]
    return [one for part in range(parts) for one in WriteParts(write)([run for run in runs if run[0] == part])]


def test_each_path_is_written_once_in_one_part_and_the_parts_are_added_up() -> None:
    plans = MemoryPlanStore()

    def write(runs: ReceivedRuns, part: int) -> Result:
        writer = part_writer(InMemory(plans), "plan", part, chunk_paths=10)
        kept = []
        for rows in runs.rows(part, MARK):
            writer.write(rows, "")
            kept += [path for path, _, _ in rows]
        assert list(runs.paths(part, OTHER)) == kept
        sample = tuple(kept[:SAMPLE])
        return written(writer, [("why", Finding(code="WHY", count=len(kept), sample=sample))] if kept else [])

    found = WrittenParts.of(results([list(range(60)), list(range(40, 100)), []], write))

    files = [one.path for chunk in found.chunks for one in read_chunk(plans, "plan", chunk)]
    assert (sorted(files), len(files)) == (PATHS, len(PATHS))
    assert [chunk.name for chunk in found.chunks] == sorted(chunk.name for chunk in found.chunks)
    assert {chunk.kind for chunk in found.chunks} == {Phase.DATA}
    assert found.totals[FileType.DATA].files == len(PATHS)
    assert found.kept == {"why": Finding(code="WHY", count=len(PATHS), sample=tuple(PATHS[:SAMPLE]))}


def lost(_runs: ReceivedRuns, _part: int) -> Result:
    raise PlanLost("plan/DATA-00000.jsonl.gz", "the object is missing")


def nothing(_runs: ReceivedRuns, _part: int) -> Result:
    return {}


@pytest.mark.parametrize(
    ("sources", "write", "error"), [([[1, 2, -1], [3]], nothing, ManifestMissing), ([[1]], lost, PlanLost)]
)
def test_an_error_of_a_task_is_a_result(sources: list[list[int]], write: Any, error: type[DelegationError]) -> None:
    errors = [decode_error(one["error"]) for one in results(sources, write) if "error" in one]
    assert [type(one) for one in errors] == [error]


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
