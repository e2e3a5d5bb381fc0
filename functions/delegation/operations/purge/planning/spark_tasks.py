"""Functions that executors run to plan a purge; no path is sent to the driver.

`worksets.engines.spark_tasks` describes what all such functions have in common.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

from delegation.errors import DelegationError
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.files import Row
from delegation.iceberg.paths import Spelling
from delegation.iceberg.reach import Tolerance
from delegation.identifiers import TableIdentifier
from delegation.keeping.neighbours import tolerance_of
from delegation.keeping.paths import GuardVerdict, PathGuard, kept_spellings
from delegation.keeping.unread import reading_of
from delegation.operations.purge.guards import kept_for
from delegation.operations.purge.options import PurgeOptions
from delegation.operations.purge.planning.kept import kept_rows
from delegation.storage.locations import Roots
from delegation.worksets.chunks import Chunk, read_chunk
from delegation.worksets.engines.parts import ManifestToRead, entries_of, name_of, written
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.shuffle import Gathered
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
# Rows for the driver: the path of a missing manifest, and an encoded error in a neighbour's file.
MISSING, UNREAD = 7, 8


class Source(NamedTuple):
    """What one Spark task reads.

    `manifests` are (table's number, then as in `ManifestToRead`), `chunks` of earlier segments
    (plan id, chunk as JSON), `rows` that the driver has read (origin, path, rank, size), `kept` chunks that are taken
    over (index without chunks and chunk, as JSON).
    """

    manifests: Sequence[tuple[int, str, int, int | None, int | None]] = ()
    chunks: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[int, str, int, int]] = ()
    kept: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Yields the rows of a source with their origin. Table 0 is the purged one.

    `explained` are manifests that an earlier purge of the task deleted, if the options keep missing ones; with
    `excused` this purge had deleted all that are missing, before its plan was lost. What cannot be read of the `exempt`
    identifiers, by number, is accepted.
    """

    resources: ExecutorResources
    identifiers: tuple[TableIdentifier, ...]
    threads: int
    options: PurgeOptions = field(default_factory=PurgeOptions)
    explained: frozenset[str] = frozenset()
    excused: bool = False
    exempt: frozenset[int] = frozenset()

    def __call__(self, stored: Sequence[Any]) -> Iterator[tuple[Sequence[Row], int]]:
        source = Source(*stored)
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
            listed = [ManifestToRead(*one[1:]) for one in source.manifests if one[0] == number]
            if not listed:
                continue
            noted: dict[tuple[str, int], int] = {}
            # An error in a neighbour's files has another type, which may be retryable.
            with nullcontext() if number == 0 else reading_of(str(identifier)):
                store, tolerance = store_of(self.resources, identifier), self._tolerance(number, noted)
                for rows in entries_of(store, listed, tolerance, threads=self.threads):
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


@dataclass(frozen=True, slots=True)
class WriteChunks:
    """Writes the chunks of a part from its sorted runs; returns its result."""

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

    def __call__(self, runs: Gathered, part: int) -> Result:
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
        writer = PlanWriter(plans, self.plan_id, chunk_paths=self.chunk_paths, part=name_of(part))
        fresh = without(runs.rows(part, TABLE), runs.paths(part, EARLIER))
        for rows, shared, taken in common_of_two(fresh, runs.paths(part, SHARED), runs.paths(part, TAKEN)):
            for verdict, group in guard.judge_all(rows, shared=shared, foreign=self.foreign, taken=taken):
                writer.write(group, verdict)
        return {
            **written(writer, guard.counted()),
            "missing": list(runs.paths(part, MISSING)),
            "unread": list(runs.paths(part, UNREAD)),
        }


def _damaged(runs: Gathered, part: int) -> dict[str, GuardVerdict]:
    return {path: VERDICTS[rank] for rows in runs.rows(part, DAMAGED) for path, rank, _ in rows}
