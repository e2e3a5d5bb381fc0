"""Makes a plan before anything is deleted: from the table's metadata to chunks in the plan bucket. Both engines use
these steps. One process writes the chunks with a sort run and a chunk in memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.history import read_history
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.paths import RANK, FileType, Spelling, TableFile, is_marked
from delegation.iceberg.reach import Fetcher, Tolerance, all_entries, read_manifest_lists
from delegation.polaris.model import LoadedTable
from delegation.removal import path_guard
from delegation.removal.attempt import PlanSegment
from delegation.removal.choice import Size
from delegation.removal.chunks import Chunk, Phase, Total, read_chunk
from delegation.removal.deletes import InlineDeletes, PlanEngine
from delegation.removal.errors import PlanLost
from delegation.removal.index import (
    SAMPLE,
    CheckedNeighbour,
    Finding,
    PlanIndex,
    PlanWriter,
    Sorter,
    planned_paths,
    read_index,
    store_index,
)
from delegation.removal.marks import Marks, plan_ids
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.neighbours import ReadOnce, locations_of, neighbours_of, reach_of_neighbour, small_files
from delegation.removal.path_guard import GuardVerdict, PathGuard, reads, unknown_findings
from delegation.removal.purge.context import PurgeContext, check_not_replaced, check_table, kept_for, refuse_findings
from delegation.removal.purge.directory_markers import with_markers
from delegation.removal.purge.errors import CredentialsDoNotCover
from delegation.removal.purge.kept_files import kept_paths, kept_rows, refuse_kept_root, roots_of, taken_over
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.unread_neighbours import UnreadNeighbours
from delegation.storage.base import BucketNotFound
from delegation.storage.locations import Roots, canonical, parse, uri_of
from polaris_common.errors import DelegationError, counted

if TYPE_CHECKING:
    from delegation.removal.foreign.neighbours import ForeignNeighbours


_FORMER: Final = RANK[FileType.FORMER_METADATA]
_MOST_ASKED: Final = 3
"""Objects of a bucket that are read to find out whether it keeps versions."""


@dataclass(slots=True)
class Survey:
    """What a plan needs except the manifests' entries, read from metadata and manifest lists."""

    table: LoadedTable
    metadata: ParsedMetadata
    guard: PathGuard
    small: list[TableFile]
    foreign: frozenset[str]
    manifests: dict[str, ManifestFile]
    known: frozenset[str]
    tolerance: Tolerance
    unread: UnreadNeighbours
    earlier: Sequence[PlanIndex]
    former_unreadable: tuple[str, ...] = ()
    taken: tuple[PlanIndex, ...] = ()
    once: ReadOnce = field(default_factory=ReadOnce)
    neighbours: list[Neighbour] = field(default_factory=list)
    checked: list[CheckedNeighbour] = field(default_factory=list)
    unlisted: "ForeignNeighbours | None" = None

    def readable_manifests(self, limit: int) -> list[tuple[str, int]]:
        """Return the manifests to read and their size limits, without those of earlier segments and unreadable ones."""
        readable = reads(self.metadata, self.guard.covered)
        return [
            (path, limit)
            for path in self.manifests
            if path not in self.known and path not in self.guard.damaged and readable(path)
        ]

    @property
    def taken_roots(self) -> tuple[str, ...]:
        """The locations of the tables that kept files for this one."""
        return tuple(dict.fromkeys(root for index in self.taken for root in roots_of(index)))

    def check_neighbours(self, ctx: PurgeContext) -> Iterator[Neighbour]:
        """Return the neighbours whose files must be read, and set their locations in the guard. Tables that no catalog
        lists come last, with metadata beside the table's own."""
        roots = Roots((*self.guard.roots.uris, *self.taken_roots))
        self.neighbours, self.checked = neighbours_of(ctx, roots, self.earlier, self.unread)
        self.guard.neighbour_roots = Roots([*locations_of(self.neighbours).uris, *self.unread.located])
        self.guard.last_known = self.unread.last_known(self.guard.roots, self.metadata.path)
        from delegation.removal.foreign.neighbours import ForeignNeighbours  # noqa: PLC0415 - not to choose an engine

        own = [file.path for file in self.small if file.rank == _FORMER]
        forks, former = ctx.lost_plan is None, self.once.former
        unlisted = self.unlisted = ForeignNeighbours(ctx, self.table, self.neighbours, own, former, forks=forks)
        self.unread.unlisted = unlisted.unreadable_of
        return chain(self.neighbours, unlisted.heads())


def survey(ctx: PurgeContext, table: LoadedTable, earlier: Sequence[PlanIndex] = ()) -> Survey:
    """Read metadata, former metadata and manifest lists. Manifests in `earlier` segments of the plan are not read
    again, and may be deleted already. Raises the errors of guards and of corrupt files."""
    metadata = parse_metadata(table.metadata_location, table.metadata, experimental=ctx.options.experimental_format)
    check_table(metadata, ctx.options, table_uuid=ctx.table_uuid)
    check_not_replaced(ctx.plans, metadata, earlier)
    covered = path_guard.covered_roots(table, ctx.options) if ctx.settings.vended else None
    lost = ctx.lost_plan
    if lost is not None:
        lost.check_continues(ctx.plans, metadata)
    known = frozenset(planned_paths(ctx.plans, earlier, (Phase.META,)))
    fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    readable = reads(metadata, covered)
    spelling = Spelling(path_guard.kept_spellings(ctx.options))
    former: dict[str, DelegationError] = {}
    once = ReadOnce()
    lenient = Tolerance(former.__setitem__, spelling)
    history = read_history(metadata, fetcher, readable, lenient, known=once.former, statistics=True)
    former_roots = [*(root for index in earlier for root in index.roots), *(lost.roots if lost else ())]
    roots = path_guard.table_roots(metadata, [*history.locations, *former_roots], ctx.options)
    own, foreign = path_guard.own_root(metadata, ctx.options), ctx.settings.delete.foreign
    guard = PathGuard(roots, covered, ctx.options, own=own, foreign=foreign)
    gone = (path for path, error in former.items() if isinstance(error, BucketNotFound))
    guard.damaged.update(dict.fromkeys(gone, "former-unreadable"))
    damage = TableDamage(ctx, guard.damaged, lost.excuses(metadata, spelling) if lost else None)
    tolerance = Tolerance(damage.keep, spelling, whole=ctx.options.damaged == "keep")
    reached = read_manifest_lists(
        metadata,
        fetcher,
        limit=ctx.settings.max_file_bytes,
        readable=lambda path: path not in known and readable(path),
        tolerance=tolerance,
        read=once.lists,
    )
    size = Size.of(reached.manifests.values(), len(reached.lists), threads=ctx.settings.read_threads)
    fits = size.fits_a_function(ctx.settings)
    ctx.note_size(f"{counted(size.files, 'file')} or more, {size.objects} manifests and lists", fits)
    maps = [*(record.path for record in reached.lists), *reached.manifests]
    _refuse_unread(guard, ctx.options, [path for path in maps if path not in known])
    return Survey(
        table=table,
        metadata=metadata,
        guard=guard,
        small=[
            *small_files(metadata, history, reached, spelling),
            *(file for _, file in history.statistics),
            *(lost.files(ctx.plans) if lost else ()),
        ],
        foreign=frozenset(history.foreign),
        manifests=reached.manifests,
        known=known,
        tolerance=tolerance,
        unread=UnreadNeighbours(ctx),
        earlier=earlier,
        former_unreadable=tuple(path for path in former if path not in known),
        taken=taken_over(ctx.plans, ctx.table_uuid, earlier),
        once=once,
    )


def _refuse_unread(guard: PathGuard, options: PurgeOptions, maps: Sequence[str]) -> None:
    """Raise CredentialsDoNotCover for unreadable manifest lists and manifests outside the table. They are kept anyway,
    but the table's files that they name would remain. The guard decides on those in another kind of storage."""
    ours = [path for path in maps if path.startswith(guard.storage)]
    unread = [path for path in ours if not guard.covers(path) and not guard.roots.contains(path)]
    if unread and options.uncovered == "refuse":
        raise CredentialsDoNotCover(len(unread), sorted(unread)[:SAMPLE])


class TableDamage:
    """Decides on unreadable manifest lists and manifests of the table. `verdicts` gets those that are kept.

    A registered clone has its original's uuid and so its task: if the clone was purged first, manifests of the original
    may be deleted. A manifest in a marked META chunk was deleted after all its files, so its entries are not needed. If
    the plan of a half deleted table was lost, `excuses` returns which of these its purge had deleted. Any other error
    is raised, because entries would be unknown, unless the operator's setting keeps such files.
    """

    def __init__(
        self,
        ctx: PurgeContext,
        verdicts: dict[str, GuardVerdict],
        excuses: Callable[[str], bool] | None = None,
    ) -> None:
        self._ctx = ctx
        self._verdicts = verdicts
        self._excuses = excuses

    def keep(self, path: str, error: DelegationError) -> None:
        """Take a file out of the plan. Raises its error unless it is explained or kept."""
        if not (isinstance(error, ManifestMissing) and self._is_explained(path)):
            self._verdicts[path] = kept_for(error, self._ctx.options)

    def _is_explained(self, path: str) -> bool:
        return (self._excuses is not None and self._excuses(path)) or path in self.explained

    @cached_property
    def explained(self) -> frozenset[str]:
        """The manifests and lists that an earlier purge of this task deleted after all files that they name."""
        plans = self._ctx.plans
        paths: set[str] = set()
        for plan_id in plan_ids(plans, self._ctx.attempt.task_id):
            index = read_index(plans, plan_id)
            if index.table_uuid != self._ctx.table_uuid.lower():
                continue
            # A chunk that was ever deleted may be gone although its mark is void.
            done = Marks(plans, index.plan_id).once_done()
            for chunk in index.chunks:
                if chunk.kind is Phase.META and chunk.name in done:
                    with suppress(PlanLost):
                        paths.update(record.path for record in read_chunk(plans, index.plan_id, chunk))
        return frozenset(paths)


def write_here(ctx: PurgeContext, surveyed: Survey, plan_id: str) -> tuple[Sequence[Chunk], dict[str, Total]]:
    """Write the chunks of a plan in this process: read every manifest, sort, apply the guard."""
    fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    run_records = ctx.settings.run_records
    with Sorter(run_records=run_records) as table_files, Sorter(run_records=run_records) as shared_files:
        table_files.extend(surveyed.small)
        wanted = surveyed.readable_manifests(ctx.settings.max_file_bytes)
        table_files.extend(all_entries(fetcher, surveyed.manifests, wanted, surveyed.tolerance))
        for index in surveyed.taken:
            table_files.extend(kept_rows(ctx.plans, index))
        for neighbour in surveyed.check_neighbours(ctx):
            shared_files.extend(reach_of_neighbour(ctx, neighbour, surveyed.unread, surveyed.once))
        writer = PlanWriter(ctx.plans, plan_id, chunk_paths=ctx.settings.chunk_paths)
        surveyed.guard.write(
            writer,
            table_files.batches(),
            planned_paths(ctx.plans, surveyed.earlier, Phase),
            surveyed.foreign,
            shared=(record.path for record in shared_files.sorted()),
            taken=kept_paths(ctx.plans, surveyed.taken),
        )
        return writer.close()


class InlineEngine(InlineDeletes):
    """Plans and deletes with threads of one process."""

    write = staticmethod(write_here)


def make_plan(
    ctx: PurgeContext,
    table: LoadedTable,
    earlier: Sequence[PlanIndex],
    engine: PlanEngine[PurgeContext, Survey],
) -> tuple[PlanIndex, PlanSegment]:
    """Make a plan, without publishing it. Files in `earlier` segments are left out. Raises the errors of guards, of
    findings that the options refuse, and of corrupt files."""
    surveyed = survey(ctx, table, earlier)
    plan_id = ctx.new_plan_id()
    chunks, totals = engine.write(ctx, surveyed, plan_id)
    metadata, covered = surveyed.metadata, surveyed.guard.covered
    findings = _findings(ctx, surveyed, chunks)
    index = PlanIndex(
        **ctx.plan_head(plan_id, metadata),
        snapshots=len(metadata.snapshots),
        extends=tuple(index.plan_id for index in earlier),
        engine=engine.name,
        roots=surveyed.guard.roots.uris,
        covered=None if covered is None else covered.uris,
        directory_markers=ctx.options.remove_directory_markers,
        chunks=tuple(chunks),
        counts=totals,
        findings=findings,
        neighbours=tuple(surveyed.checked),
        taken=surveyed.taken_roots,
    )
    refuse_kept_root(ctx.plans, index, earlier)
    if ctx.options.remove_directory_markers:
        index = with_markers(ctx, index, earlier)
    return index, store_index(ctx.plans, index)


def _findings(ctx: PurgeContext, surveyed: Survey, chunks: Sequence[Chunk]) -> tuple[Finding, ...]:
    kept = (finding for _, finding in surveyed.guard.counted() if finding.code != path_guard.FORMER_UNREADABLE)
    unlisted = () if surveyed.unlisted is None else surveyed.unlisted.findings()
    findings = [*kept, *surveyed.unread.findings(), *unlisted]
    if ctx.lost_plan is not None:
        findings.append(ctx.lost_plan.finding())
    findings += unknown_findings(surveyed.metadata.properties)
    former = (*surveyed.former_unreadable, *surveyed.unread.former)
    if former:
        findings.append(Finding(code=path_guard.FORMER_UNREADABLE, count=len(former), sample=former[:SAMPLE]))
    buckets = sorted({root.bucket for root in surveyed.guard.roots.roots})
    versioned = tuple(uri_of(bucket, "") for bucket in buckets if _keeps_versions(ctx, bucket, surveyed, chunks))
    if versioned:
        findings.append(Finding(code=path_guard.VERSIONED_BUCKET, count=len(versioned), sample=versioned))
    refuse_findings(findings, ctx.options)
    return tuple(findings)


def _keeps_versions(ctx: PurgeContext, bucket: str, surveyed: Survey, chunks: Sequence[Chunk]) -> bool:
    """Ask a bucket, or without permission its objects: the metadata file, else files of the plan."""
    planned = (path for chunk in chunks for path in (chunk.first, chunk.last))
    paths = (canonical(surveyed.metadata.path), *(path for path in planned if not is_marked(path)))
    known = (where for path in paths if (where := parse(path)).bucket == bucket)
    # A file of the plan may be missing.
    answers = (ctx.store.versioned(bucket, seen=seen) for seen in (*islice(known, _MOST_ASKED), None))
    return next((answer for answer in answers if answer is not None), False)
