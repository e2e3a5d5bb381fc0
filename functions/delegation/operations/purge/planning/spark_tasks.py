"""Functions that executors run to plan a purge; no path is sent to the driver.

`worksets.engines.spark_tasks` describes what all such functions have in common.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import get_args

from delegation.errors import DelegationError
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.files import Row
from delegation.iceberg.paths import Spelling
from delegation.iceberg.reach import Fetcher, Tolerance, tolerated_entries
from delegation.identifiers import TableIdentifier
from delegation.keeping.neighbours import tolerance_of
from delegation.keeping.paths import GuardVerdict, PathGuard, kept_spellings
from delegation.keeping.unread import reading_of
from delegation.operations.purge.guards import kept_for
from delegation.operations.purge.options import PurgeOptions
from delegation.operations.purge.planning.kept import kept_rows
from delegation.storage.locations import Roots
from delegation.worksets.chunks import Chunk, read_chunk
from delegation.worksets.collection import collect_seldom
from delegation.worksets.engines.resources import ExecutorResources, no_checkpoint
from delegation.worksets.engines.shuffle import Gathered, Run, Spread, pack, unpack
from delegation.worksets.engines.spark_tasks import Result, encode_error, plans_of, store_of
from delegation.worksets.index import PlanIndex
from delegation.worksets.sorting import common_of_two, without
from delegation.worksets.writing import PlanWriter

# The origin of a row: the table, a neighbour, or an earlier segment. All rows of a path come to one part.
TABLE, SHARED, EARLIER = 0, 1, 2
# A manifest that is kept because it cannot be read; the rank is the verdict's number in VERDICTS.
DAMAGED = 3
# A file that a table which was purged before kept for this one; it has a row of TABLE too.
TAKEN = 4
VERDICTS = get_args(GuardVerdict)
# Rows for the driver: the path of a missing manifest, an encoded error in a neighbour's file, an encoded error.
MISSING, UNREAD, ERROR = 7, 8, 9


@dataclass(frozen=True, slots=True)
class Source:
    """What one Spark task reads.

    `manifests` are (table's number, path, size limit, length and entries by its list), `chunks` of earlier segments
    (plan id, chunk as JSON), `rows` that the driver has read (origin, path, rank, size), `kept` chunks that are taken
    over (index without chunks and chunk, as JSON).
    """

    manifests: Sequence[tuple[int, str, int, int | None, int | None]] = ()
    chunks: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[int, str, int, int]] = ()
    kept: Sequence[tuple[str, str]] = ()

    def packed(self) -> bytes:
        return pack((self.manifests, self.chunks, self.rows, self.kept))


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Read the `sources` with the given numbers and return sorted runs of their rows. Table 0 is the purged one.

    `explained` are manifests that an earlier purge of the task deleted, if the options keep missing ones; with
    `excused` this purge had deleted all that are missing, before its plan was lost. What cannot be read of the `exempt`
    identifiers, by number, is accepted.
    """

    resources: ExecutorResources
    identifiers: tuple[TableIdentifier, ...]
    threads: int
    parts: int
    sources: tuple[bytes, ...]
    options: PurgeOptions = field(default_factory=PurgeOptions)
    explained: frozenset[str] = frozenset()
    excused: bool = False
    exempt: frozenset[int] = frozenset()

    def __call__(self, numbers: Iterable[int]) -> Iterator[Run]:
        collect_seldom()
        spread = Spread(self.parts)
        for number in numbers:
            source = Source(*unpack(self.sources[number]))
            try:
                for rows, origin in self._rows(source):
                    yield from spread.add(rows, origin)
            except DelegationError as error:
                yield from spread.add([(encode_error(error), 0, 0)], ERROR)
        yield from spread.flush()

    def _rows(self, source: Source) -> Iterator[tuple[Sequence[Row], int]]:
        for origin, path, rank, size in source.rows:
            yield [(path, rank, size)], origin
        for index, chunk in source.kept:
            taken = PlanIndex.model_validate_json(index).model_copy(
                update={"chunks": (Chunk.model_validate_json(chunk),)}
            )
            named = list(kept_rows(plans_of(self.resources), taken))
            yield named, TABLE
            yield named, TAKEN
        for plan_id, chunk in source.chunks:
            yield read_chunk(plans_of(self.resources), plan_id, Chunk.model_validate_json(chunk)), EARLIER
        for number, identifier in enumerate(self.identifiers):
            listed = (one[1:] for one in source.manifests if one[0] == number)
            wanted = {path: (most, length, counted) for path, most, length, counted in listed}
            if not wanted:
                continue
            noted: dict[tuple[str, int], int] = {}
            # An error in a neighbour's files has another type, which may be retryable.
            with nullcontext() if number == 0 else reading_of(str(identifier)):
                for rows in self._entries(identifier, wanted, self._tolerance(number, noted)):
                    yield rows, TABLE if number == 0 else SHARED
            for (text, rank), origin in noted.items():
                yield [(text, rank, 0)], origin

    def _tolerance(self, number: int, noted: dict[tuple[str, int], int]) -> Tolerance:
        """Return how a table's manifests are read; `noted` gets rows of what could not be read, with their origin."""

        accepted = self.options.neighbour == "report" or number in self.exempt

        def ours(path: str, error: DelegationError) -> None:
            if isinstance(error, ManifestMissing) and self.excused:
                return
            if not isinstance(error, ManifestMissing):
                noted[path, VERDICTS.index(kept_for(error, self.options))] = DAMAGED
            elif self.options.damaged == "refuse":
                noted[path, 0] = MISSING
            elif path not in self.explained:
                noted[path, VERDICTS.index(kept_for(error, self.options))] = DAMAGED

        def theirs(path: str, error: DelegationError) -> None:
            if not accepted:
                raise error
            noted[json.dumps([number, path, encode_error(error)]), 0] = UNREAD

        if number:
            return tolerance_of(theirs, reported=accepted)
        return Tolerance(ours, Spelling(kept_spellings(self.options)), whole=self.options.damaged == "keep")

    def _entries(
        self,
        identifier: TableIdentifier,
        wanted: Mapping[str, tuple[int, int | None, int | None]],
        tolerance: Tolerance,
    ) -> Iterator[Sequence[Row]]:
        """Yield the entries of a table's manifests."""
        fetcher = Fetcher(store_of(self.resources, identifier), threads=self.threads, checkpoint=no_checkpoint)
        for path, content in fetcher.fetch((path, most) for path, (most, _, _) in wanted.items()):
            _, length, counted = wanted[path]
            # Only the sum of the three counts is known and compared.
            counts = {} if counted is None else {"added_files_count": counted, **_NO_MORE}
            yield from tolerated_entries(path, ManifestFile(path, length, **counts), content, tolerance)


_NO_MORE = {"existing_files_count": 0, "deleted_files_count": 0}


@dataclass(frozen=True, slots=True)
class WriteChunks:
    """Write the chunks of one or more parts from their sorted runs; return one result for each part."""

    resources: ExecutorResources
    plan_id: str
    chunk_paths: int
    roots: tuple[str, ...]
    covered: tuple[str, ...] | None
    own: tuple[str, ...]
    others: tuple[str, ...]
    foreign: frozenset[str]
    damaged: Mapping[str, GuardVerdict]
    options: PurgeOptions
    last_known: tuple[str, ...] = ()

    def __call__(self, runs: Iterable[Run]) -> Iterator[Result]:
        collect_seldom()
        gathered = Gathered(runs)
        for part in gathered.parts:
            try:
                yield self._write(gathered, part)
            except DelegationError as error:
                yield {"error": encode_error(error)}
                return

    def _write(self, runs: Gathered, part: int) -> Result:
        failed = next(runs.paths(part, ERROR), None)
        if failed is not None:
            return {"error": failed}
        guard = PathGuard(
            Roots(self.roots),
            None if self.covered is None else Roots(self.covered),
            self.options,
            own=Roots(self.own),
            others=Roots(self.others),
            last_known=Roots(self.last_known),
        )
        guard.damaged = {**self.damaged, **_damaged(runs, part)}
        plans = plans_of(self.resources)
        writer = PlanWriter(plans, self.plan_id, chunk_paths=self.chunk_paths, part=f"p{part:05d}-")
        fresh = without(runs.rows(part, TABLE), runs.paths(part, EARLIER))
        for rows, shared, taken in common_of_two(fresh, runs.paths(part, SHARED), runs.paths(part, TAKEN)):
            for verdict, group in guard.judge_all(rows, shared=shared, foreign=self.foreign, taken=taken):
                writer.write(group, verdict)
        chunks, totals = writer.close()
        return {
            "chunks": [chunk.model_dump(mode="json") for chunk in chunks],
            "totals": {name: total.model_dump() for name, total in totals.items()},
            "kept": [(verdict, finding.model_dump()) for verdict, finding in guard.counted()],
            "missing": list(runs.paths(part, MISSING)),
            "unread": list(runs.paths(part, UNREAD)),
        }


def _damaged(runs: Gathered, part: int) -> dict[str, GuardVerdict]:
    return {path: VERDICTS[rank] for rows in runs.rows(part, DAMAGED) for path, rank, _ in rows}
