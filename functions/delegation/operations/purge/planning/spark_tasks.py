"""What executors run to plan a purge: functions over Arrow batches, without a path ever leaving for the driver.

See `worksets.engines.spark_tasks` for what all such functions have in common.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from delegation.errors import DelegationError
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.files import Row
from delegation.iceberg.reach import Fetcher, entries
from delegation.identifiers import TableIdentifier
from delegation.operations.purge.guards import PathGuard
from delegation.operations.purge.options import PurgeOptions
from delegation.operations.purge.planning.neighbours import reading
from delegation.operations.purge.planning.plan import PlanWriter
from delegation.storage.locations import Roots
from delegation.worksets.chunks import Chunk, read_chunk
from delegation.worksets.engines.resources import ExecutorResources, no_checkpoint
from delegation.worksets.engines.shuffle import Gathered, Spread, pack, unpack
from delegation.worksets.engines.spark_tasks import encode_error, numbers, plans_of, result, store_of
from delegation.worksets.sorting import common, without

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

    resources: ExecutorResources
    identifiers: tuple[TableIdentifier, ...]
    threads: int
    keys: tuple[int, ...]
    sources: tuple[bytes, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spread = Spread(self.keys)
        for number in numbers(batches):
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
            yield read_chunk(plans_of(self.resources), plan_id, Chunk.model_validate_json(chunk)), KNOWN
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
        fetcher = Fetcher(store_of(self.resources, identifier), threads=self.threads, checkpoint=no_checkpoint)
        for path, data in fetcher.fetch((path, most) for path, (most, _, _) in wanted.items()):
            if data is None:
                yield path, None
                continue
            _, length, counted = wanted[path]
            # The list's three counts are one number here; only their sum is compared.
            counts = {} if counted is None else {"added_files_count": counted, **_NO_MORE}
            for rows in entries(path, ManifestFile(path, length, **counts), data):
                yield path, rows


_NO_MORE = {"existing_files_count": 0, "deleted_files_count": 0}


@dataclass(frozen=True, slots=True)
class WriteChunks:
    """Runs of one part or several in, their chunks written, one row about each part out."""

    resources: ExecutorResources
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
                yield result(self._write(runs, key))
            except DelegationError as error:
                yield result({"error": encode_error(error)})
                return

    def _write(self, runs: Gathered, key: int) -> dict[str, Any]:
        failed = next(runs.paths(key, ERROR), None)
        if failed is not None:
            return {"error": failed}
        guard = PathGuard(Roots(self.roots), None if self.covered is None else Roots(self.covered), self.options)
        part = f"p{self.keys.index(key):05d}-"
        writer = PlanWriter(plans_of(self.resources), self.plan_id, chunk_paths=self.chunk_paths, part=part)
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
