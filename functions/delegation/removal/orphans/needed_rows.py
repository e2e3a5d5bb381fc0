"""The rows of needed files for the comparison with candidates: of the table, of other tables, of foreign tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.paths import ALL_KINDS, Row, Spelling
from delegation.iceberg.reach import Fetcher, Tolerance, all_entries, refuse
from delegation.removal.chunks import Chunk, Phase
from delegation.removal.errors import PlanLost
from delegation.removal.index import PlanIndex, Sorter, planned_paths
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.neighbours import ReadOnce, reach_of_neighbour
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.foreign import ForeignAtLocation
from delegation.removal.orphans.index import (
    Candidate,
    CandidateWriter,
    candidates_of,
    read_candidates,
)
from delegation.removal.orphans.place import joined_all
from delegation.removal.orphans.subtraction import (
    Orphans,
    Rules,
    Subtraction,
    candidates_in,
    rows_of,
    write_held,
    write_rows,
)
from delegation.removal.unread_neighbours import UnreadNeighbours

ANY_SPELLING: Final = Spelling(ALL_KINDS)
OWN_FILES: Final = Tolerance(refuse, ANY_SPELLING)
"""How the table itself is read: missing, damaged or encrypted files refuse the removal."""
StoredParts = Sequence[tuple[str, Sequence[Chunk]]]
"""Chunks of candidates, with the id below which they are stored."""
_AT_A_TIME: Final = 1_000


class NeededSet(Protocol):
    """Needed files, in any order. After all are added, candidates are compared with them. Added files may be read at
    once or with the first comparison; both raise the errors of reading."""

    def add_files(self, paths: Iterable[str]) -> None:
        """Add files by canonical or marked paths."""
        ...

    def add_entries(self, manifests: Mapping[str, ManifestFile]) -> None:
        """Add the files that all entries of the table's own manifests name."""
        ...

    def add_neighbour(self, neighbour: Neighbour) -> None:
        """Add all that another table reaches. Raises NeighbourUnreadable and NeighbourChanged."""
        ...

    def add_plan(self, index: PlanIndex) -> None:
        """Add the files of another task's plan. Raises PlanTampered."""
        ...

    def add_foreign(self, foreign: ForeignAtLocation) -> None:
        """Add what tables that no catalog lists need. If one is unreadable, everything at its place stays."""
        ...

    def subtracted(self, parts: StoredParts, plan_id: str, rules: Rules) -> Orphans:
        """Store the candidates that nothing needs as sorted chunks of a plan. Raises PrefixMismatch, PlanTampered."""
        ...

    def needed_among(self, parts: StoredParts, rules: Rules) -> Iterator[list[Candidate]]:
        """Yield candidates that are or may be needed. Missing chunks are left out."""
        ...

    def close(self) -> None:
        """Remove everything from the disk."""
        ...


class SortedNeeded:
    """NeededSet in one process: each spelling of each path (`place.joined`), in sorted runs on its disk. Memory is
    bounded by two sort runs and a chunk. `once` has what was read before of the same tables."""

    def __init__(self, ctx: OrphanContext, once: ReadOnce | None = None) -> None:
        self._ctx = ctx
        self._files = Sorter(run_records=ctx.settings.run_records)
        self._unread = UnreadNeighbours(ctx)
        self._once = once or ReadOnce()
        self._foreign: ForeignAtLocation | None = None
        self._foreign_files = Sorter(run_records=ctx.settings.run_records)

    @property
    def added(self) -> int:
        return self._files.added

    def add_files(self, paths: Iterable[str]) -> None:
        self._extend(self._files, paths, 0)

    def _extend(self, files: Sorter, paths: Iterable[str], number: int) -> None:
        equal, left = self._ctx.options.equal, iter(paths)
        while some := list(islice(left, _AT_A_TIME)):
            files.extend([(text, number, 0) for text in joined_all(some, equal)])

    def add_entries(self, manifests: Mapping[str, ManifestFile]) -> None:
        ctx = self._ctx
        fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
        wanted = [(path, ctx.settings.max_file_bytes) for path in manifests]
        tolerance = Tolerance(self._unread.of_itself(), ANY_SPELLING)
        self._add(all_entries(fetcher, dict(manifests), wanted, tolerance))

    def add_neighbour(self, neighbour: Neighbour) -> None:
        self._add(reach_of_neighbour(self._ctx, neighbour, self._unread, self._once))

    def add_plan(self, index: PlanIndex) -> None:
        self.add_files(planned_paths(self._ctx.plans, [index], tuple(Phase)))

    def add_foreign(self, foreign: ForeignAtLocation) -> None:
        self._foreign = foreign
        for number, files in foreign.files():
            self._extend(self._foreign_files, files, number)
        once = ReadOnce(self._once.lists, self._once.former, self._once.manifests | foreign.known)
        for number, head in foreign.heads():
            with foreign.reading(number):
                rows = reach_of_neighbour(self._ctx, head, foreign.unread, once)
                self._extend(self._foreign_files, (path for path, _, _ in rows), number)

    def subtracted(self, parts: StoredParts, plan_id: str, rules: Rules) -> Orphans:
        ctx, subtraction = self._ctx, Subtraction(self._with_areas(rules))
        records, most = ctx.settings.run_records, ctx.settings.lot_paths
        with (
            Sorter(run_records=records) as by_path,
            Sorter(run_records=records) as orphans,
            Sorter(run_records=records) as held,
        ):
            for some in candidates_of(ctx.plans, parts):
                by_path.extend(rows_of(some, ctx.options.equal))
            for rows, stay in subtraction.orphans(by_path.batches(), self._texts(), self._foreign_files.batches()):
                orphans.extend(rows)
                held.extend(stay)
            subtraction.check()
            writer = CandidateWriter(ctx.plans, plan_id, "", chunk_paths=most)
            chunks = write_rows(writer, orphans.batches())
            stays = write_held(ctx.plans, plan_id, "", held.batches(), most)
            return subtraction.result(chunks, stays, self._unread.findings())

    def needed_among(self, parts: StoredParts, rules: Rules) -> Iterator[list[Candidate]]:
        ctx = self._ctx
        with Sorter(run_records=ctx.settings.run_records) as by_path:
            for plan_id, chunk in ((plan_id, chunk) for plan_id, chunks in parts for chunk in chunks):
                ctx.attempt.checkpoint()
                with suppress(PlanLost):
                    by_path.extend(rows_of(read_candidates(ctx.plans, plan_id, chunk), ctx.options.equal))
            subtraction = Subtraction(self._with_areas(rules))
            others = subtraction.others(by_path.batches(), self._texts(), self._foreign_files.batches())
            yield from map(candidates_in, others)

    def close(self) -> None:
        self._files.__exit__()
        self._foreign_files.__exit__()

    def _with_areas(self, rules: Rules) -> Rules:
        return rules if self._foreign is None else replace(rules, places=self._foreign.areas)

    def _texts(self) -> Iterator[list[str]]:
        return ([text for text, _, _ in rows] for rows in self._files.batches())

    def _add(self, rows: Iterable[Row]) -> None:
        self.add_files(path for path, _, _ in rows)
