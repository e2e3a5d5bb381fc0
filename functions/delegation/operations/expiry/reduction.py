"""Taking out of a plan, after the commit, what turns out to be needed: by the table as it is now, or by another table.

A plan is only ever reduced. Snapshots that a writer adds or brings back keep their files, and the snapshots that are
gone reach no more than they did when the plan was made.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from delegation.iceberg.files import RANK, FileType, Row
from delegation.iceberg.reach import ListsRead
from delegation.keeping.neighbours import ReadOnce, locations_of, neighbours_of, reach_of_neighbour
from delegation.keeping.options import LENIENT_PATHS
from delegation.keeping.paths import AT_ANOTHER_TABLE, SHARED, own_root
from delegation.keeping.unread import UnreadNeighbours
from delegation.operations.expiry.context import ExpiryContext
from delegation.operations.expiry.index import ExpiryIndex, ReducedPlan
from delegation.operations.expiry.planning.reach import Retained, metadata_of, retained, with_others_read
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import Roots
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import Chunk, DeleteStep, Phase, paths_of, read_chunk
from delegation.worksets.index import SAMPLE, CheckedNeighbour, Finding, sorted_runs, store_index
from delegation.worksets.marks import Marks
from delegation.worksets.sorting import Sorter, common, merged_lists, sort_rows
from delegation.worksets.writing import PlanWriter

REACHABLE: Final = "STILL_REACHABLE"
"""The code of a finding: files of a plan that the table needs after all."""
_OWN, _SHARED, _AT_ANOTHER = range(3)
# By the rank under which a path that is kept is sorted: the lowest one counts.
_WHY: Final = ("reachable", "shared", "at-another-table")
_CODES: Final = (REACHABLE, SHARED, AT_ANOTHER_TABLE)
_BATCH: Final = 500
_FORMER: Final = RANK[FileType.FORMER_METADATA]


class NeededFiles:
    """The files that are needed now, of the table itself and of others, as a sorted set of paths on disk.

    Use it as a context manager. `manifests` are those of the table whose entries are in it; the manifest lists in
    `read` are not read again.
    """

    def __init__(self, ctx: ExpiryContext, read: ListsRead | None = None) -> None:
        self._ctx = ctx
        self._read = read
        self._files = Sorter(run_records=ctx.settings.run_records)
        self._locations = Roots(())
        self._own = Roots(())
        self._last_known = Roots(())
        self.checked: tuple[CheckedNeighbour, ...] = ()
        self.findings: tuple[Finding, ...] = ()
        self.manifests: frozenset[str] = frozenset()

    def __enter__(self) -> "NeededFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.__exit__()

    def add_table(self, table: LoadedTable, known: Collection[str] = ()) -> Retained:
        """Add what the table reaches as it was loaded, without entries of manifests whose files were added `known`."""
        metadata = metadata_of(table)
        found = retained(self._ctx, metadata, self._read)
        self._files.extend((path, _OWN, 0) for path, _, _ in found.rows(self._ctx, known))
        self._own = own_root(metadata, LENIENT_PATHS)
        self.manifests = frozenset(found.manifests)
        return found

    def add_former_metadata(self, index: ExpiryIndex) -> None:
        """Add the former metadata files of a plan: the table has not given them up, or not any more."""
        if FileType.FORMER_METADATA in index.counts:
            chunks = [chunk for chunk in index.chunks if chunk.step is DeleteStep.META]
            rows = (row for some in _rows(self._ctx, index.plan_id, chunks) for row in some)
            self._files.extend((path, _OWN, 0) for path, rank, _ in rows if rank == _FORMER)

    def add_others(self, roots: Roots) -> None:
        """Add what other live tables reach; raise NeighbourUnreadable, NeighbourChanged, ReferencesNotKnown."""
        unread, once = UnreadNeighbours(self._ctx), ReadOnce()
        near, checked = neighbours_of(self._ctx, roots, (), unread)
        for neighbour in near:
            rows = reach_of_neighbour(self._ctx, neighbour, unread, once)
            self._files.extend((path, _SHARED, 0) for path, _, _ in with_others_read(rows))
        self._locations = Roots([*locations_of(near).uris, *unread.located])
        self._last_known = unread.last_known(roots)
        self.checked, self.findings = tuple(checked), tuple(unread.findings())

    def among(self, batches: Iterable[list[str]], found: Sorter) -> None:
        """Add to `found` which of these sorted paths are needed, with the reason as their rank; call it once."""
        rows = ([(path, 0, 0) for path in paths] for paths in batches)
        for some, needed in _with_reasons(rows, self._files):
            found.extend((path, why, 0) for path, why in needed.items())
            first, last = some[0][0], some[-1][0]
            disputed = self._locations.meet_range(first, last) and not self._own.contain_range(first, last)
            if disputed or self._last_known.meet_range(first, last):
                found.extend((path, _AT_ANOTHER, 0) for path, _, _ in some if self._is_at_another(path))

    def _is_at_another(self, path: str) -> bool:
        at_another = self._locations.contains(path) and not self._own.contains(path)
        return at_another or self._last_known.contains(path)


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


def reduced(
    ctx: ExpiryContext, index: ExpiryIndex, segment: PlanSegment, needed: NeededFiles
) -> tuple[ExpiryIndex, PlanSegment] | None:
    """Write what is left of a published plan without the files that are needed; None if none of them is in it.

    Chunks that are deleted already are left out. The new plan is not published.
    """
    left = index.model_copy(update={"chunks": tuple(_not_done(ctx, index))})
    runs = [run for kind in (Phase.DATA, Phase.META) for run in sorted_runs(left, kind)]
    paths = merged_lists([paths_of(ctx.plans, plan_id, chunks) for plan_id, chunks in runs], list.sort)
    with Sorter(run_records=ctx.settings.run_records) as kept:
        needed.among(paths, kept)
        if kept.empty:
            return None
        plan_id = ctx.new_plan_id()
        writer = PlanWriter(ctx.plans, plan_id, chunk_paths=ctx.settings.chunk_paths)
        tally = [_ReasonCount(code) for code in _CODES]
        rows = merged_lists([_rows(ctx, of, chunks) for of, chunks in runs], sort_rows)
        for some, reasons in _with_reasons(rows, kept):
            for why, group in groupby(some, lambda row: _why(reasons, row)):  # noqa: B023 - used within the step
                writer.write(list(group), why)
            for path, rank in sorted(reasons.items()):
                tally[rank].add(path)
        chunks, totals = writer.close()
    found = [one.finding() for one in tally if one.count]
    fresh = index.model_copy(
        update={
            "plan_id": plan_id,
            "attempt": ctx.attempt.attempt,
            "created_at": ctx.clock().isoformat(),
            "chunks": tuple(chunks),
            "counts": totals,
            "findings": (*found, *needed.findings),
            "neighbours": needed.checked or index.neighbours,
            "reduces": (*index.reduces, ReducedPlan(id=segment.id, sha256=segment.sha256)),
        }
    )
    return fresh, store_index(ctx.plans, fresh)


class _ReasonCount:
    """How many files are kept for one reason, and the first of them."""

    def __init__(self, code: str) -> None:
        self._code = code
        self.count = 0
        self._sample: list[str] = []

    def add(self, path: str) -> None:
        self.count += 1
        if len(self._sample) < SAMPLE:
            self._sample.append(path)

    def finding(self) -> Finding:
        return Finding(code=self._code, count=self.count, sample=tuple(self._sample))


def _why(reasons: Mapping[str, int], row: Row) -> str:
    rank = reasons.get(row[0])
    return "" if rank is None else _WHY[rank]


def _not_done(ctx: ExpiryContext, index: ExpiryIndex) -> Sequence[Chunk]:
    done = Marks(ctx.plans, index.plan_id).done()
    return [chunk for chunk in index.chunks if chunk.kind is not Phase.KEPT and chunk.name not in done]


def _rows(ctx: ExpiryContext, plan_id: str, chunks: Sequence[Chunk]) -> Iterator[list[Row]]:
    for chunk in chunks:
        rows: list[Row] = list(read_chunk(ctx.plans, plan_id, chunk))
        for at in range(0, len(rows), _BATCH):
            yield rows[at : at + _BATCH]
