"""Rows that are spread over parts, the parts that are written of them, and errors on the way."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.paths import RANK, FileType, Row
from delegation.identifiers import TableIdentifier
from delegation.removal.chunks import Phase, read_chunk
from delegation.removal.errors import PlanLost
from delegation.removal.index import SAMPLE, Finding
from delegation.removal.spark_executors import (
    ReceivedRuns,
    Result,
    SpreadSources,
    WriteParts,
    WrittenParts,
    decode_error,
    part_writer,
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
