"""Removes from a plan, after the commit, the files that are needed by the current table or another table. A plan is
only ever reduced. Snapshots that a writer adds or restores keep their files, and removed snapshots reach no more than
when the plan was made."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Final, Protocol, Self

from delegation.iceberg.paths import RANK, FileType, Row
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Chunk, DeleteStep, Phase, Total, paths_of, read_chunk
from delegation.removal.deletes import InlineDeletes, PlanEngine, Work
from delegation.removal.expiry.context import ExpiryContext, ExpiryIndex
from delegation.removal.expiry.planning import (
    ExpirySurvey,
    Retained,
    metadata_of,
    retained,
    with_others_read,
    write_here,
)
from delegation.removal.foreign.neighbours import ForeignNeighbours
from delegation.removal.index import (
    CheckedNeighbour,
    FileTally,
    Finding,
    PlanWriter,
    ReplacedPlan,
    Sorter,
    common,
    merged_lists,
    sort_rows,
    sorted_runs,
    store_index,
)
from delegation.removal.marks import Marks
from delegation.removal.neighbourhood import LENIENT_PATHS, Neighbour
from delegation.removal.neighbours import ReadOnce, locations_of, neighbours_of, reach_of_neighbour
from delegation.removal.path_guard import AT_ANOTHER_TABLE, NOBODYS, SHARED, own_root
from delegation.removal.unread_neighbours import UnreadNeighbours
from delegation.storage.locations import FOREIGN_LOCATION, ForeignLocations, Roots

REACHABLE: Final = "STILL_REACHABLE"
"""The code of a finding: files of a plan that the table still needs."""
REACHABLE_NOW, SHARED_NOW, AT_ANOTHER, AT_FOREIGN = range(4)
REASONS: Final = ("reachable", "shared", "at-another-table", "foreign-location")
_CODES: Final = (REACHABLE, SHARED, AT_ANOTHER_TABLE, FOREIGN_LOCATION)


@dataclass(frozen=True, slots=True)
class OtherPlaces:
    """Places where files stay even if no table names them: `locations` of neighbours outside the table's `own` one, the
    `last_known` areas of wholly unreadable tables, and `foreign` locations."""

    locations: Roots = field(default_factory=lambda: Roots(()))
    own: Roots = field(default_factory=lambda: Roots(()))
    last_known: Roots = field(default_factory=lambda: Roots(()))
    foreign: ForeignLocations = NOBODYS

    def among(self, rows: list[Row]) -> dict[str, int]:
        """Return the paths of sorted rows that are in one of these places, with the number of the reason."""
        first, last = rows[0][0], rows[-1][0]
        reasons: dict[str, int] = {}
        disputed = self.locations.meet_range(first, last) and not self.own.contain_range(first, last)
        if disputed or self.last_known.meet_range(first, last):
            reasons = {path: AT_ANOTHER for path, _, _ in rows if self._contain(path)}
        if self.foreign.uris:
            reasons |= {path: AT_FOREIGN for path, _, _ in rows if self.foreign.contain(path)}
        return reasons

    def _contain(self, path: str) -> bool:
        at_another = self.locations.contains(path) and not self.own.contains(path)
        return at_another or self.last_known.contains(path)


@dataclass(frozen=True, slots=True)
class RemainingPlan:
    """The rest of a plan, written as another plan, and what is kept of it, by reason."""

    plan_id: str
    chunks: Sequence[Chunk]
    totals: dict[str, Total]
    kept: Mapping[str, Finding]


class NeededRows(Protocol):
    """Collects the rows of files that are needed now, as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def add_own(self, files: Retained, known: Collection[str]) -> None:
        """Add what the table needs, without `known` files and the entries of `known` manifests."""
        ...

    def add_former_metadata(self, index: ExpiryIndex) -> None:
        """Add the former metadata files of a plan."""
        ...

    def add_neighbours(self, neighbours: Iterable[Neighbour], unread: UnreadNeighbours) -> None:
        """Add what other tables reach. Raises NeighbourUnreadable, NeighbourChanged, at the latest in `subtracted`."""
        ...

    def subtracted(self, left: ExpiryIndex, places: Callable[[], OtherPlaces]) -> RemainingPlan | None:
        """Write the rest of a plan's chunks; None if none of it is needed. Call it once, after all is added. `places`
        has more areas if more turned out to be unreadable. Raises ManifestMissing if the table has a newer commit,
        after which other rows may be added."""
        ...


class NeededFiles:
    """The files that are needed now, by the table itself and by others, and the rest of a plan without them. Use it as
    a context manager. `named` are the manifests of the table whose entries it has, and the files that no manifest
    names."""

    def __init__(self, ctx: ExpiryContext, rows: NeededRows) -> None:
        self._ctx = ctx
        self._rows = rows
        self._places: Callable[[], OtherPlaces] = OtherPlaces
        self._own = Roots(())
        self._unread = UnreadNeighbours(ctx)
        self.checked: tuple[CheckedNeighbour, ...] = ()
        self.named: frozenset[str] = frozenset()

    def __enter__(self) -> "NeededFiles":
        self._rows.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._rows.__exit__(*error)

    def add_table(self, table: LoadedTable, known: Collection[str] = ()) -> None:
        """Add what the loaded table reaches, without `known` files and the entries of `known` manifests."""
        metadata = metadata_of(table)
        files = retained(self._ctx, metadata, known)
        self._rows.add_own(files, known)
        self._own = own_root(metadata, LENIENT_PATHS)
        self.named = frozenset(row.path for row in files.small)

    def add_former_metadata(self, index: ExpiryIndex) -> None:
        """Add the former metadata files of a plan, because the table keeps them after all."""
        if FileType.FORMER_METADATA in index.counts:
            self._rows.add_former_metadata(index)

    def add_neighbours(self, roots: Roots, table: LoadedTable) -> ForeignNeighbours:
        """Add what other live tables reach, and tables beside the table's metadata that no catalog lists. Returns the
        latter, whose findings are complete after the comparison. Raises NeighbourUnreadable, NeighbourChanged,
        ReferencesNotKnown."""
        unread = self._unread
        neighbours, checked = neighbours_of(self._ctx, roots, (), unread)
        unlisted = ForeignNeighbours(self._ctx, table, neighbours)
        unread.unlisted = unlisted.unreadable_of
        self._rows.add_neighbours(chain(neighbours, unlisted.heads()), unread)

        def places() -> OtherPlaces:
            locations = Roots([*locations_of(neighbours).uris, *unread.located])
            return OtherPlaces(locations, self._own, unread.last_known(roots), self._ctx.settings.delete.foreign)

        self._places = places
        self.checked = tuple(checked)
        return unlisted

    def reduced(self, index: ExpiryIndex, segment: PlanSegment) -> tuple[ExpiryIndex, PlanSegment] | None:
        """Write the rest of a published plan without needed files and deleted chunks; None if none of it is needed. The
        new plan is not published."""
        ctx, done = self._ctx, Marks(self._ctx.plans, index.plan_id).done()
        rest_of = [chunk for chunk in index.chunks if chunk.kind is not Phase.KEPT and chunk.name not in done]
        left = index.model_copy(update={"chunks": tuple(rest_of)})
        rest = self._rows.subtracted(left, self._places)
        if rest is None:
            return None
        replaced = ReplacedPlan(id=segment.id, sha256=segment.sha256, done=tuple(sorted(done)))
        findings = [rest.kept[why] for why in REASONS if why in rest.kept]
        fresh = index.model_copy(
            update={
                "plan_id": rest.plan_id,
                "attempt": ctx.attempt.attempt,
                "created_at": ctx.clock().isoformat(),
                "chunks": tuple(rest.chunks),
                "counts": rest.totals,
                "findings": (*findings, *self._unread.findings()),
                "neighbours": self.checked or index.neighbours,
                "reduces": (*index.reduces, replaced),
            }
        )
        return fresh, store_index(ctx.plans, fresh)


def write_rest(writer: PlanWriter, batches: Iterable[tuple[list[Row], dict[str, int]]]) -> list[tuple[str, Finding]]:
    """Write sorted rows, each list with the kept paths and the numbers of their REASONS; return kept by reason."""
    tally = [FileTally() for _ in _CODES]
    for some, reasons in batches:
        for why, group in groupby(some, lambda row: _why(reasons, row)):  # noqa: B023 - used within the step
            writer.write(list(group), why)
        for path, rank in sorted(reasons.items()):
            tally[rank].add(path)
    return [(why, kept.finding(code)) for why, code, kept in zip(REASONS, _CODES, tally, strict=True) if kept.count]


def _why(reasons: Mapping[str, int], row: Row) -> str:
    rank = reasons.get(row[0])
    return "" if rank is None else REASONS[rank]


FORMER: Final = RANK[FileType.FORMER_METADATA]
_BATCH: Final = 500


class ExpiryEngine(PlanEngine[ExpiryContext, ExpirySurvey], Protocol):
    """Writes the plan of an expiry, removes needed files from it, and deletes the rest."""

    def needed(self, ctx: ExpiryContext) -> NeededRows:
        """Return a collector of the files that are needed now."""
        ...


class InlineExpiry(InlineDeletes):
    """ExpiryEngine of this process. Rows are sorted on its disk."""

    write = staticmethod(write_here)

    def needed(self, ctx: ExpiryContext) -> NeededRows:
        return SortedRows(ctx)


INLINE: Final = InlineExpiry()


class SortedRows:
    """NeededRows as a sorted set of paths on disk."""

    def __init__(self, ctx: ExpiryContext) -> None:
        self._ctx = ctx
        self._files = Sorter(run_records=ctx.settings.run_records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.__exit__()

    def add_own(self, files: Retained, known: Collection[str]) -> None:
        """See NeededRows.add_own. Of manifests named by a later commit every entry counts."""
        rows = files.rows(self._ctx, known, live=not known)
        self._files.extend((path, REACHABLE_NOW, 0) for path, _, _ in rows)

    @property
    def added(self) -> int:
        return self._files.added

    def need_any(self, work: Sequence[Work]) -> bool:
        """Return whether any file of these chunks is needed. More rows may be added afterwards."""
        if self._files.empty:
            return False
        paths = merged_lists([paths_of(self._ctx.plans, item.index.plan_id, [item.chunk]) for item in work], list.sort)
        rows = ([(path, 0, 0) for path in some] for some in paths)
        return any(both for _, both in common(rows, (row.path for row in self._files.sorted())))

    def add_former_metadata(self, index: ExpiryIndex) -> None:
        chunks = [chunk for chunk in index.chunks if chunk.step is DeleteStep.META]
        rows = (row for some in _rows(self._ctx, index.plan_id, chunks) for row in some)
        self._files.extend((path, REACHABLE_NOW, 0) for path, rank, _ in rows if rank == FORMER)

    def add_neighbours(self, neighbours: Iterable[Neighbour], unread: UnreadNeighbours) -> None:
        once = ReadOnce()
        for neighbour in neighbours:
            rows = reach_of_neighbour(self._ctx, neighbour, unread, once)
            self._files.extend((path, SHARED_NOW, 0) for path, _, _ in with_others_read(rows))

    def subtracted(self, left: ExpiryIndex, places: Callable[[], OtherPlaces]) -> RemainingPlan | None:
        ctx = self._ctx
        runs = [run for kind in (Phase.DATA, Phase.META) for run in sorted_runs(left, kind)]
        paths = merged_lists([paths_of(ctx.plans, plan_id, chunks) for plan_id, chunks in runs], list.sort)
        with Sorter(run_records=ctx.settings.run_records) as kept:
            self._add_kept(paths, places(), kept)
            if kept.empty:
                return None
            plan_id = ctx.new_plan_id()
            writer = PlanWriter(ctx.plans, plan_id, chunk_paths=ctx.settings.lot_paths)
            rows = merged_lists([_rows(ctx, of, chunks) for of, chunks in runs], sort_rows)
            tallies = write_rest(writer, _with_reasons(rows, kept))
            chunks, totals = writer.close()
        return RemainingPlan(plan_id, chunks, totals, dict(tallies))

    def _add_kept(self, batches: Iterable[list[str]], places: OtherPlaces, kept: Sorter) -> None:
        """Add the sorted paths that are needed to `kept`, with the reason as their rank."""
        rows = ([(path, 0, 0) for path in paths] for paths in batches)
        for some, needed in _with_reasons(rows, self._files):
            kept.extend((path, why, 0) for path, why in needed.items())
            kept.extend((path, why, 0) for path, why in places.among(some).items())


def _with_reasons(batches: Iterable[list[Row]], files: Sorter) -> Iterator[tuple[list[Row], dict[str, int]]]:
    """Yield sorted rows with those of their paths that are among `files`, and the ranks of these."""
    ranks: dict[str, int] = {}

    def paths() -> Iterator[str]:
        for row in files.sorted():
            ranks[row.path] = row.rank
            yield row.path

    for rows, both in common(batches, paths()):
        yield rows, {path: ranks[path] for path in both}
        last = rows[-1][0]
        for path in [path for path in ranks if path <= last]:
            del ranks[path]


def _rows(ctx: ExpiryContext, plan_id: str, chunks: Sequence[Chunk]) -> Iterator[list[Row]]:
    for chunk in chunks:
        rows: list[Row] = list(read_chunk(ctx.plans, plan_id, chunk))
        for at in range(0, len(rows), _BATCH):
            yield rows[at : at + _BATCH]
