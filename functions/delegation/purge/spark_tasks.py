"""What the Spark engine runs in executors: functions over Arrow batches, without a path ever leaving for the driver.

Values of these classes are pickled with the job, so they hold no client and no credential: a workplace opens the stores
where the task runs. Typed errors travel to the driver as rows, for Spark itself would turn them into text.
"""

import base64
import functools
import json
import pickle
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from delegation.errors import DelegationError
from delegation.polaris.model import TableIdentifier
from delegation.purge.avro import ManifestFile
from delegation.purge.context import PurgeOptions, PurgeSettings
from delegation.purge.delete import Deleter
from delegation.purge.errors import EngineFailed
from delegation.purge.execute import Tally, Work, delete_chunk
from delegation.purge.guards import PathGuard
from delegation.purge.locations import Roots
from delegation.purge.plan import Chunk, PlanIndex, read_chunk
from delegation.purge.planning import PlanWriter
from delegation.purge.reach import Fetcher, entries
from delegation.purge.sorting import Row, distinct
from delegation.purge.workplace import Workplace

ROWS = "path string, rank int, size long, mark int"
RESULTS = "result string"

# What a row says of its path; all rows of a path are read before it is judged.
OURS, SHARED, KNOWN = 0, 1, 2
# Rows that are not paths: a manifest that is not there, a typed error on its way to the driver.
MISSING, ERROR = 8, 9


@dataclass(frozen=True, slots=True)
class ReadManifests:
    """Manifests in, rows of their entries out."""

    workplace: Workplace
    identifiers: tuple[TableIdentifier, ...]
    threads: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in range(len(self.identifiers)):
                wanted = {row["path"]: row for row in batch.to_pylist() if row["number"] == number}
                if wanted:
                    yield from self._read(number, wanted)

    def _read(self, number: int, wanted: dict[str, dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        store = _store(self.workplace, self.identifiers[number])
        fetcher = Fetcher(store, threads=self.threads, checkpoint=_go_on)
        mark = OURS if number == 0 else SHARED
        try:
            for path, data in fetcher.fetch((path, row["most"]) for path, row in wanted.items()):
                if data is None:
                    yield _batch([(path, 0, 0)], MISSING)
                    continue
                row = wanted[path]
                # The list's three counts are one number here; only their sum is compared.
                counts = {} if row["entries"] is None else {"added_files_count": row["entries"]} | _NO_MORE
                for rows in entries(path, ManifestFile(path, row["length"], **counts), data):
                    yield _batch(rows, mark)
        except DelegationError as error:
            yield _batch([(encode_error(error), 0, 0)], ERROR)


_NO_MORE = {"existing_files_count": 0, "deleted_files_count": 0}


@dataclass(frozen=True, slots=True)
class ReadChunks:
    """Chunks of earlier segments in, rows of their paths out."""

    workplace: Workplace

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    chunk = Chunk.model_validate_json(row["chunk"])
                    yield _batch(read_chunk(_plans(self.workplace), row["plan_id"], chunk), KNOWN)
                except DelegationError as error:
                    yield _batch([(encode_error(error), 0, 0)], ERROR)


@dataclass(frozen=True, slots=True)
class WriteChunks:
    """Sorted rows of one partition in, its chunks written, one row about them out."""

    workplace: Workplace
    plan_id: str
    chunk_paths: int
    roots: tuple[str, ...]
    covered: tuple[str, ...] | None
    foreign: frozenset[str]
    options: PurgeOptions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = f"p{TaskContext.get().partitionId():05d}-"  # type: ignore[union-attr]
        guard = PathGuard(Roots(self.roots), None if self.covered is None else Roots(self.covered), self.options)
        missing: list[str] = []
        try:
            writer = PlanWriter(_plans(self.workplace), self.plan_id, chunk_paths=self.chunk_paths, part=part)
            for rows, others in _whole_paths(batches):
                for path in sorted(others[ERROR]):
                    yield _result({"error": path})
                missing.extend(sorted(others[MISSING]))
                if rows:
                    for verdict, group in guard.judge_all(rows, shared=others[SHARED], foreign=self.foreign):
                        writer.write(group, verdict)
            chunks, totals = writer.close()
        except DelegationError as error:
            yield _result({"error": encode_error(error)})
            return
        yield _result(
            {
                "chunks": [chunk.model_dump(mode="json") for chunk in chunks],
                "totals": {name: total.model_dump() for name, total in totals.items()},
                "kept": [(verdict, finding.model_dump()) for verdict, finding in guard.counted()],
                "missing": missing,
            }
        )


@dataclass(frozen=True, slots=True)
class DeleteChunks:
    """Chunks in, one row on the outcome of each out."""

    workplace: Workplace
    identifier: TableIdentifier
    settings: PurgeSettings
    plans: dict[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plans = _plans(self.workplace)
        for batch in batches:
            for row in batch.to_pylist():
                chunk = Chunk.model_validate_json(row["chunk"])
                index = PlanIndex.model_validate_json(self.plans[row["plan_id"]])
                try:
                    deleter = _deleter(self.workplace, self.identifier, self.settings)
                    tally = delete_chunk(plans, Work(index, chunk), deleter, _go_on)
                except DelegationError as error:
                    yield _result({"error": encode_error(error)})
                    return
                fields = {name: getattr(tally, name) for name in Tally.__dataclass_fields__}
                yield _result({"plan_id": index.plan_id, "chunk": chunk.name, "tally": fields})


def _whole_paths(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[list[Row], Mapping[int, Set[str]]]]:
    """Sorted rows in lists that part no path: ours once each, unless a plan knows it, and the paths by other marks."""
    rows: list[Row] = []
    marks: list[int] = []
    for batch in batches:
        paths, ranks, sizes, more = (batch.column(number).to_pylist() for number in range(4))
        rows += zip(paths, ranks, sizes, strict=True)
        marks += more
        if rows:
            end = bisect_left(rows, rows[-1][0], key=itemgetter(0))
            yield _resolve(rows[:end], marks[:end])
            rows, marks = rows[end:], marks[end:]
    yield _resolve(rows, marks)


def _resolve(rows: list[Row], marks: list[int]) -> tuple[list[Row], Mapping[int, Set[str]]]:
    others: defaultdict[int, set[str]] = defaultdict(set)
    if any(marks):
        for row, mark in zip(rows, marks, strict=True):
            if mark != OURS:
                others[mark].add(row[0])
        known = others[KNOWN]
        rows = [row for row, mark in zip(rows, marks, strict=True) if mark == OURS and row[0] not in known]
    return (next(distinct([rows])) if rows else []), others


def _batch(rows: Sequence[Row], mark: int) -> pa.RecordBatch:
    columns = [
        pa.array([path for path, _, _ in rows], pa.string()),
        pa.array([rank for _, rank, _ in rows], pa.int32()),
        pa.array([size for _, _, size in rows], pa.int64()),
        pa.array([mark] * len(rows), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["path", "rank", "size", "mark"])


def _result(result: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(result)], pa.string())], names=["result"])


def _go_on() -> None:
    """Executors are stopped from the driver, which cancels the job."""


# One of each per process: clients are costly and hold connections, and the rate found so far must not be forgotten.
@functools.cache
def _store(workplace: Workplace, identifier: TableIdentifier) -> Any:
    return workplace.store(identifier)


@functools.cache
def _plans(workplace: Workplace) -> Any:
    return workplace.plans()


@functools.cache
def _deleter(workplace: Workplace, identifier: TableIdentifier, settings: PurgeSettings) -> Deleter:
    return Deleter(_store(workplace, identifier), settings.delete)


def encode_error(error: DelegationError) -> str:
    return base64.b64encode(pickle.dumps(error)).decode()


def decode_error(text: str) -> DelegationError:
    # Written by our own executors into our own job, as Spark itself pickles functions and rows between these processes.
    error = pickle.loads(base64.b64decode(text))  # noqa: S301
    return error if isinstance(error, DelegationError) else EngineFailed("an executor sent something unreadable")
