"""The engines of an expiry, and the one that plans, subtracts and deletes in this process."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol, Self

from delegation.iceberg.files import RANK, FileType, Row
from delegation.keeping.model import Neighbour
from delegation.keeping.neighbours import ReadOnce, reach_of_neighbour
from delegation.keeping.unread import UnreadNeighbours
from delegation.operations.expiry.context import ExpiryContext
from delegation.operations.expiry.index import ExpiryIndex
from delegation.operations.expiry.planning.plan import make_plan
from delegation.operations.expiry.planning.reach import Retained, with_others_read
from delegation.operations.expiry.reduction import (
    REACHABLE_NOW,
    SHARED_NOW,
    NeededRows,
    OtherPlaces,
    Rest,
    write_rest,
)
from delegation.operations.expiry.retention import Expired
from delegation.polaris.model import LoadedTable
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import Chunk, DeleteStep, Phase, paths_of, read_chunk
from delegation.worksets.engines.deleting import DeleteEngine, InlineDeletes
from delegation.worksets.engines.inline import Work
from delegation.worksets.index import sorted_runs
from delegation.worksets.sorting import Sorter, common, merged_lists, sort_rows
from delegation.worksets.writing import PlanWriter

FORMER: Final = RANK[FileType.FORMER_METADATA]
_BATCH: Final = 500


class ExpiryEngine(DeleteEngine, Protocol):
    """Makes the plan of an expiry, takes out of it what is needed, and deletes the rest."""

    def plan(self, ctx: ExpiryContext, table: LoadedTable, gone: Expired) -> tuple[ExpiryIndex, PlanSegment]:
        """Write the plan, without publishing it; see `make_plan`."""
        ...

    def needed(self, ctx: ExpiryContext) -> NeededRows:
        """Return what collects the rows of files that are needed now."""
        ...


class InlineExpiry(InlineDeletes):
    """ExpiryEngine of this process: rows are sorted on its disk."""

    def plan(self, ctx: ExpiryContext, table: LoadedTable, gone: Expired) -> tuple[ExpiryIndex, PlanSegment]:
        """See ExpiryEngine.plan."""
        return make_plan(ctx, table, gone, self.name)

    def needed(self, ctx: ExpiryContext) -> NeededRows:
        """See ExpiryEngine.needed."""
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

    def add_own(self, found: Retained, known: Collection[str]) -> None:
        """See NeededRows.add_own: of manifests that a later commit names every entry counts."""
        rows = found.rows(self._ctx, known, live=not known)
        self._files.extend((path, REACHABLE_NOW, 0) for path, _, _ in rows)

    @property
    def added(self) -> int:
        """How many rows were added."""
        return self._files.added

    def need_any(self, work: Sequence[Work]) -> bool:
        """Return whether any file of these chunks is needed; more rows may be added afterwards."""
        if self._files.empty:
            return False
        paths = merged_lists([paths_of(self._ctx.plans, one.index.plan_id, [one.chunk]) for one in work], list.sort)
        rows = ([(path, 0, 0) for path in some] for some in paths)
        return any(both for _, both in common(rows, (one.path for one in self._files.sorted())))

    def add_former_metadata(self, index: ExpiryIndex) -> None:
        """See NeededRows.add_former_metadata."""
        chunks = [chunk for chunk in index.chunks if chunk.step is DeleteStep.META]
        rows = (row for some in _rows(self._ctx, index.plan_id, chunks) for row in some)
        self._files.extend((path, REACHABLE_NOW, 0) for path, rank, _ in rows if rank == FORMER)

    def add_others(self, near: Iterable[Neighbour], unread: UnreadNeighbours) -> None:
        """See NeededRows.add_others."""
        once = ReadOnce()
        for neighbour in near:
            rows = reach_of_neighbour(self._ctx, neighbour, unread, once)
            self._files.extend((path, SHARED_NOW, 0) for path, _, _ in with_others_read(rows))

    def subtracted(self, left: ExpiryIndex, places: Callable[[], OtherPlaces]) -> Rest | None:
        """See NeededRows.subtracted."""
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
            found = write_rest(writer, _with_reasons(rows, kept))
            chunks, totals = writer.close()
        return Rest(plan_id, chunks, totals, dict(found))

    def _add_kept(self, batches: Iterable[list[str]], places: OtherPlaces, kept: Sorter) -> None:
        """Add to `kept` which of these sorted paths are needed, with the reason as their rank."""
        rows = ([(path, 0, 0) for path in paths] for paths in batches)
        for some, needed in _with_reasons(rows, self._files):
            kept.extend((path, why, 0) for path, why in needed.items())
            kept.extend((path, why, 0) for path, why in places.among(some).items())


def _with_reasons(batches: Iterable[list[Row]], files: Sorter) -> Iterator[tuple[list[Row], dict[str, int]]]:
    """Yield sorted rows with those of their paths that are among `files`, and the ranks of these."""
    ranks: dict[str, int] = {}

    def paths() -> Iterator[str]:
        for one in files.sorted():
            ranks[one.path] = one.rank
            yield one.path

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
