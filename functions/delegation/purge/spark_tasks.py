"""What the Spark engine runs in executors: functions over Arrow batches, without a path ever leaving for the driver.

Values of these classes are pickled with the job, so they hold no client and no credential: a workplace opens the stores
where the task runs. Typed errors travel to the driver as rows, for Spark itself would turn them into text.
"""

import base64
import functools
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from delegation.errors import DelegationError
from delegation.polaris.model import TableIdentifier
from delegation.purge.avro import ManifestFile
from delegation.purge.context import PurgeOptions, PurgeSettings
from delegation.purge.delete import Deleter
from delegation.purge.errors import EngineFailed, ManifestMissing
from delegation.purge.execute import Tally, Work, delete_chunks
from delegation.purge.guards import PathGuard
from delegation.purge.locations import Roots
from delegation.purge.neighbours import reading
from delegation.purge.plan import Chunk, PlanIndex, read_chunk
from delegation.purge.planning import PlanWriter
from delegation.purge.reach import Fetcher, entries
from delegation.purge.shuffle import Gathered, Spread, pack, unpack
from delegation.purge.sorting import Row, common, without
from delegation.purge.workplace import Workplace, go_on

RESULTS = "result string"

# What a row says of its path; all rows of a path come to one part, and are read before it is judged.
OURS, SHARED, KNOWN = 0, 1, 2
# Rows that are not paths: a manifest that is not there, a typed error on its way to the driver.
MISSING, ERROR = 8, 9


@dataclass(frozen=True, slots=True)
class Source:
    """What one task reads. A `manifest` is (number of its table, path, most bytes, length and entries by its list), a
    `chunk` of an earlier segment (plan id, the chunk as JSON), a `row` is known already: a mark, then path, rank, size.
    """

    manifests: Sequence[tuple[int, str, int, int | None, int | None]] = ()
    chunks: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[int, str, int, int]] = ()

    def packed(self) -> bytes:
        return pack((self.manifests, self.chunks, self.rows))


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Numbers of `sources` in, runs of the rows that they hold out. Table 0 is ours."""

    workplace: Workplace
    identifiers: tuple[TableIdentifier, ...]
    threads: int
    keys: tuple[int, ...]
    sources: tuple[bytes, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spread = Spread(self.keys)
        for number in _numbers(batches):
            source = Source(*unpack(self.sources[number]))
            try:
                for rows, mark in self._rows(source):
                    yield from spread.add(rows, mark)
            except DelegationError as error:
                yield from spread.add([(encode_error(error), 0, 0)], ERROR)
        yield from spread.flush()

    def _rows(self, source: Source) -> Iterator[tuple[Sequence[Row], int]]:
        for mark, path, rank, size in source.rows:
            yield [(path, rank, size)], mark
        for plan_id, chunk in source.chunks:
            yield read_chunk(_plans(self.workplace), plan_id, Chunk.model_validate_json(chunk)), KNOWN
        for number, identifier in enumerate(self.identifiers):
            listed = (one[1:] for one in source.manifests if one[0] == number)
            wanted = {path: (most, length, counted) for path, most, length, counted in listed}
            if not wanted:
                continue
            # What is wrong with a neighbour is no fault of ours, and may pass.
            with nullcontext() if number == 0 else reading(str(identifier)):
                for path, rows in self._entries(identifier, wanted):
                    if rows is not None:
                        yield rows, OURS if number == 0 else SHARED
                    elif number == 0:
                        yield [(path, 0, 0)], MISSING
                    else:
                        raise ManifestMissing(path)

    def _entries(
        self, identifier: TableIdentifier, wanted: Mapping[str, tuple[int, int | None, int | None]]
    ) -> Iterator[tuple[str, Sequence[Row] | None]]:
        """The files of a table's manifests, None for one that is not there."""
        fetcher = Fetcher(_store(self.workplace, identifier), threads=self.threads, checkpoint=go_on)
        for path, data in fetcher.fetch((path, most) for path, (most, _, _) in wanted.items()):
            if data is None:
                yield path, None
                continue
            _, length, counted = wanted[path]
            # The list's three counts are one number here; only their sum is compared.
            counts = {} if counted is None else {"added_files_count": counted} | _NO_MORE
            for rows in entries(path, ManifestFile(path, length, **counts), data):
                yield path, rows


_NO_MORE = {"existing_files_count": 0, "deleted_files_count": 0}


@dataclass(frozen=True, slots=True)
class WriteChunks:
    """Runs of one part or several in, their chunks written, one row about each part out."""

    workplace: Workplace
    plan_id: str
    keys: tuple[int, ...]
    chunk_paths: int
    roots: tuple[str, ...]
    covered: tuple[str, ...] | None
    foreign: frozenset[str]
    options: PurgeOptions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runs = Gathered(batches)
        for key in runs.keys:
            try:
                yield _result(self._write(runs, key))
            except DelegationError as error:
                yield _result({"error": encode_error(error)})
                return

    def _write(self, runs: Gathered, key: int) -> dict[str, Any]:
        failed = next(runs.paths(key, ERROR), None)
        if failed is not None:
            return {"error": failed}
        guard = PathGuard(Roots(self.roots), None if self.covered is None else Roots(self.covered), self.options)
        part = f"p{self.keys.index(key):05d}-"
        writer = PlanWriter(_plans(self.workplace), self.plan_id, chunk_paths=self.chunk_paths, part=part)
        fresh = without(runs.rows(key, OURS), runs.paths(key, KNOWN))
        for rows, shared in common(fresh, runs.paths(key, SHARED)):
            for verdict, group in guard.judge_all(rows, shared=shared, foreign=self.foreign):
                writer.write(group, verdict)
        chunks, totals = writer.close()
        return {
            "chunks": [chunk.model_dump(mode="json") for chunk in chunks],
            "totals": {name: total.model_dump() for name, total in totals.items()},
            "kept": [(verdict, finding.model_dump()) for verdict, finding in guard.counted()],
            "missing": list(runs.paths(key, MISSING)),
        }


@dataclass(frozen=True, slots=True)
class DeleteChunks:
    """Numbers of `shares` (plan ids and chunks) in, one row on the outcome of each chunk out."""

    workplace: Workplace
    identifier: TableIdentifier
    settings: PurgeSettings
    plans: dict[str, str]
    shares: tuple[bytes, ...]
    task_id: str
    attempt: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plans = _plans(self.workplace)
        try:
            deleter = _deleter(self.workplace, self.identifier, self.settings)
            checkpoint = _checkpoint(self.workplace, self.task_id, self.attempt)
            for work, tally in delete_chunks(plans, self._works(batches), deleter, checkpoint):
                fields = {name: getattr(tally, name) for name in Tally.__dataclass_fields__}
                yield _result({"plan_id": work.index.plan_id, "chunk": work.chunk.name, "tally": fields})
        except DelegationError as error:
            yield _result({"error": encode_error(error)})

    def _works(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Work]:
        for number in _numbers(batches):
            for plan_id, stored in unpack(self.shares[number]):
                yield Work(PlanIndex.model_validate_json(self.plans[plan_id]), Chunk.model_validate_json(stored))


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _result(result: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(result)], pa.string())], names=["result"])


# One of each per process: clients are costly and hold connections, and the rate found so far must not be forgotten.
@functools.cache
def _store(workplace: Workplace, identifier: TableIdentifier) -> Any:
    return workplace.store(identifier)


@functools.cache
def _plans(workplace: Workplace) -> Any:
    return workplace.plans()


@functools.cache
def _checkpoint(workplace: Workplace, task_id: str, attempt: int) -> Callable[[], None]:
    return workplace.checkpoint(task_id, attempt)


@functools.cache
def _deleter(workplace: Workplace, identifier: TableIdentifier, settings: PurgeSettings) -> Deleter:
    return Deleter(_store(workplace, identifier), settings.delete)


def encode_error(error: DelegationError) -> str:
    return base64.b64encode(pickle.dumps(error)).decode()


def decode_error(text: str) -> DelegationError:
    # Written by our own executors into our own job, as Spark itself pickles functions and rows between these processes.
    error = pickle.loads(base64.b64decode(text))  # noqa: S301
    return error if isinstance(error, DelegationError) else EngineFailed("an executor sent something unreadable")
