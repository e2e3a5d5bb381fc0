"""Reading other tables' files on Spark executors: what `keeping.neighbours` reads in one process, spread over tasks."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from delegation.errors import RunStopped
from delegation.iceberg.files import Row
from delegation.iceberg.paths import ALL_KINDS, Spelling
from delegation.iceberg.reach import Tolerance, is_whole_otherwise, refuse_cut_off
from delegation.identifiers import TableIdentifier
from delegation.keeping.model import Neighbour, Search
from delegation.keeping.neighbours import ReadOnce, Unread, survey_neighbour, tolerance_of
from delegation.keeping.paths import PathGuard
from delegation.keeping.unread import reading, reading_of
from delegation.references.reading import digest
from delegation.worksets.engines.parts import ManifestToRead, entries_of, expected_rows, part_writer
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.spark_tasks import decode_error, encode_error, store_of
from delegation.worksets.writing import PlanWriter
from polaris_common.errors import DelegationError

OWN: Final = 0
"""The number of the table itself among those whose manifests are read."""
UNREAD: Final = 8
"""The mark of an encoded error in another table's files, on which the driver decides; no path of a file."""


@dataclass(frozen=True, slots=True)
class WritesPlan:
    """Writes the chunks of a plan's parts, of the files that the guard lets go; a subclass chooses them."""

    resources: ExecutorResources
    plan_id: str
    chunk_paths: int
    guard: PathGuard
    foreign: frozenset[str]

    def writer(self, part: int) -> PlanWriter:
        """Return what writes a part."""
        return part_writer(self.resources, self.plan_id, part, chunk_paths=self.chunk_paths)


@dataclass(frozen=True, slots=True)
class ReadNear:
    """Yields the entries of other tables' manifests, which have the numbers of the `identifiers`, from 1.

    What cannot be read of those in `reported` is accepted, of those in `noted` it is the driver's to decide, of some
    only files with these digests; of others it is raised, as NeighbourUnreadable or NeighbourChanged.
    """

    resources: ExecutorResources
    identifiers: tuple[TableIdentifier, ...]
    reported: frozenset[int]
    noted: Mapping[int, frozenset[bytes] | None]
    threads: int

    def __call__(self, listed: Iterable[tuple[int, ManifestToRead]], mark: int) -> Iterator[tuple[Sequence[Row], int]]:
        """Yield rows with this mark, and those for the driver with UNREAD."""
        of_tables: dict[int, list[ManifestToRead]] = {}
        for number, manifest in listed:
            of_tables.setdefault(number, []).append(manifest)
        for number, manifests in of_tables.items():
            identifier, unread = self.identifiers[number - 1], list[Row]()
            # An error in another table's files has another type, which may be retryable.
            with reading_of(identifier):
                store, tolerance = store_of(self.resources, identifier), self._tolerance(number, unread)
                for rows in entries_of(store, manifests, tolerance, threads=self.threads):
                    yield rows, mark
            yield unread, UNREAD

    def _tolerance(self, number: int, unread: list[Row]) -> Tolerance:
        only = self.noted.get(number, frozenset())

        def unreadable(path: str, error: DelegationError) -> None:
            if not (only is None or digest(path) in only or is_whole_otherwise(error)):
                raise error
            unread.append((json.dumps([number, path, encode_error(error)]), 0, 0))

        return tolerance_of(unreadable, reported=number in self.reported)


def noting(noted: list[Row]) -> Tolerance:
    """Return how an executor reads what the table itself needs: it notes manifests that differ, as rows of UNREAD."""

    def unreadable(path: str, error: DelegationError) -> None:
        refuse_cut_off(path, error)
        noted.append((json.dumps([OWN, path, encode_error(error)]), 0, 0))

    return Tolerance(unreadable, Spelling(ALL_KINDS))


class NearTables:
    """Other tables whose manifests executors read; `add` reads all else of them in this process.

    `rows` are the files found so, `listed` the manifests that are left, each with its table's number.
    """

    def __init__(self, ctx: Search, unread: Unread, once: ReadOnce | None = None) -> None:
        self._ctx = ctx
        self._unread = unread
        self._once = once or ReadOnce()
        self._tables: list[Neighbour] = []
        self.rows: list[Row] = []
        self.listed: list[tuple[int, ManifestToRead]] = []
        self.expected = 0

    def add(self, neighbour: Neighbour, *, slim: bool = False) -> None:
        """Read a table but for its manifests; raise what `survey_neighbour` raises. A `slim` one's metadata is left."""
        self._tables.append(replace(neighbour, table=replace(neighbour.table, metadata={})) if slim else neighbour)
        small, manifests = survey_neighbour(self._ctx, neighbour, self._unread, self._once)
        if not self._is_noted(neighbour):
            # Whatever cannot be read ends the plan, so what is asked for once is read for all tables.
            self._once.manifests.update(manifests)
        self.rows.extend(small)
        limit, number = self._ctx.settings.max_file_bytes, len(self._tables)
        self.listed.extend((number, ManifestToRead(path, limit, one)) for path, one in manifests.items())
        self.expected += expected_rows(manifests.values())

    def reading(self, resources: ExecutorResources) -> ReadNear:
        """Return what executors read the manifests with."""
        numbered = list(enumerate(self._tables, 1))
        accepts = self._unread.accepts
        return ReadNear(
            resources,
            tuple(one.table.identifier for one in self._tables),
            reported=frozenset(number for number, one in numbered if accepts(exempt=one.exempt)),
            noted={number: one.unread for number, one in numbered if self._is_noted(one)},
            threads=self._ctx.settings.read_threads,
        )

    def take(self, unread: Iterable[str]) -> None:
        """Decide on what executors could not read, by the texts of their rows of UNREAD; raise what is not accepted."""
        for number, path, encoded in map(json.loads, unread):
            error = decode_error(encoded)
            if isinstance(error, RunStopped):
                raise error
            if number == OWN:
                self._unread.note_differing("the table", path)
                continue
            neighbour = self._tables[number - 1]
            with reading(neighbour):
                self._unread.of(neighbour)(path, error)

    def _is_noted(self, neighbour: Neighbour) -> bool:
        """Return whether damage may be accepted, so that a table with the same manifest has to read it, too."""
        return neighbour.former or self._unread.accepts(exempt=neighbour.exempt)
