"""Functions that executors run to plan a purge; no path is sent to the driver.

`worksets.engines.spark_tasks` describes what all such functions have in common.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.files import Row
from delegation.iceberg.paths import Spelling
from delegation.iceberg.reach import Tolerance
from delegation.identifiers import TableIdentifier
from delegation.keeping.executors import UNREAD, ReadNear, WritesPlan
from delegation.keeping.paths import GuardVerdict, kept_spellings
from delegation.operations.purge.guards import kept_for
from delegation.operations.purge.options import PurgeOptions
from delegation.operations.purge.planning.kept import kept_rows
from delegation.worksets.chunks import Chunk, read_chunk
from delegation.worksets.engines.parts import ManifestToRead, entries_of, written
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.shuffle import Gathered
from delegation.worksets.engines.spark_tasks import Result, plans_of, store_of
from delegation.worksets.index import PlanIndex
from delegation.worksets.sorting import common_of_two, without
from polaris_common.errors import DelegationError

# The origin of a row: the table, a neighbour, or an earlier segment. All rows of a path come to one part.
TABLE, SHARED, EARLIER = 0, 1, 2
# A manifest that is kept because it cannot be read; the rank is the verdict's number in VERDICTS.
DAMAGED = 3
# A file that a table which was purged before kept for this one; it has a row of TABLE too.
TAKEN = 4
VERDICTS = get_args(GuardVerdict)
# A row for the driver, as those of UNREAD are: the path of a missing manifest.
MISSING = 7
OWN = 0
"""The number of the purged table among those whose manifests are read; its neighbours have the numbers after it."""


class Source(NamedTuple):
    """What one Spark task reads.

    `manifests` are (table's number, then as in `ManifestToRead`), `chunks` of earlier segments
    (plan id, chunk as JSON), `rows` that the driver has read (origin, path, rank, size), `kept` chunks that are taken
    over (index without chunks and chunk, as JSON).
    """

    manifests: Sequence[tuple[int, str, int, Sequence[Any]]] = ()
    chunks: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[int, str, int, int]] = ()
    kept: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Yields the rows of a source with their origin; `near` reads the neighbours' manifests.

    `explained` are manifests that an earlier purge of the task deleted, if the options keep missing ones; with
    `excused` this purge had deleted all that are missing, before its plan was lost.
    """

    resources: ExecutorResources
    identifier: TableIdentifier
    near: ReadNear
    threads: int
    options: PurgeOptions = field(default_factory=PurgeOptions)
    explained: frozenset[str] = frozenset()
    excused: bool = False

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
        listed = [(one[0], ManifestToRead(*one[1:])) for one in source.manifests]
        yield from self._own([one for number, one in listed if number == OWN])
        yield from self.near([one for one in listed if one[0] != OWN], SHARED)

    def _own(self, listed: Sequence[ManifestToRead]) -> Iterator[tuple[Sequence[Row], int]]:
        noted: dict[tuple[str, int], int] = {}

        def unreadable(path: str, error: DelegationError) -> None:
            """Note what could not be read of the table, with the origin of its row."""
            if isinstance(error, ManifestMissing) and self.excused:
                return
            if not isinstance(error, ManifestMissing):
                noted[path, VERDICTS.index(kept_for(error, self.options))] = DAMAGED
            elif self.options.damaged == "refuse":
                noted[path, 0] = MISSING
            elif path not in self.explained:
                noted[path, VERDICTS.index(kept_for(error, self.options))] = DAMAGED

        tolerance = Tolerance(unreadable, Spelling(kept_spellings(self.options)), whole=self.options.damaged == "keep")
        if listed:
            store = store_of(self.resources, self.identifier)
            for rows in entries_of(store, listed, tolerance, threads=self.threads):
                yield rows, TABLE
        for (text, rank), origin in noted.items():
            yield [(text, rank, 0)], origin


@dataclass(frozen=True, slots=True)
class WriteChunks(WritesPlan):
    """Writes the chunks of a part from its sorted runs; returns its result."""

    def __call__(self, runs: Gathered, part: int) -> Result:
        guard = self.guard.fresh()
        guard.damaged.update(_damaged(runs, part))
        writer = self.writer(part)
        fresh = without(runs.rows(part, TABLE), runs.paths(part, EARLIER))
        for rows, shared, taken in common_of_two(fresh, runs.paths(part, SHARED), runs.paths(part, TAKEN)):
            for verdict, group in guard.verdicts(rows, shared=shared, foreign=self.foreign, taken=taken):
                writer.write(group, verdict)
        return {
            **written(writer, guard.counted()),
            "missing": list(runs.paths(part, MISSING)),
            "unread": list(runs.paths(part, UNREAD)),
        }


def _damaged(runs: Gathered, part: int) -> dict[str, GuardVerdict]:
    return {path: VERDICTS[rank] for rows in runs.rows(part, DAMAGED) for path, rank, _ in rows}
