"""Making a plan: from the table's metadata to chunks in the plan bucket, before anything is deleted.

The steps are functions that both engines use; `make_plan` strings them together in one process, with memory bounded
by a sort run and a chunk however many files the table has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.files import Row, TableFile
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.reach import Fetcher, all_entries, read_history, read_limit, read_manifest_lists
from delegation.operations.purge import guards
from delegation.operations.purge.context import PurgeContext
from delegation.operations.purge.errors import CredentialsDoNotCover, MetadataReplaced
from delegation.operations.purge.guards import GuardVerdict, PathGuard
from delegation.operations.purge.options import EngineChoice, PurgeOptions
from delegation.operations.purge.planning.directory_markers import with_markers
from delegation.operations.purge.planning.neighbours import neighbours_of, reach_of_neighbour, small_files
from delegation.polaris.model import LoadedTable
from delegation.storage.base import PlanStore
from delegation.storage.locations import uri_of
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import Chunk, ChunkWriter, Phase, Total, add_totals, phase_of, read_chunk
from delegation.worksets.index import SAMPLE, Asked, Finding, PlanIndex, planned_paths, read_index, store_index
from delegation.worksets.marks import Marks, plan_ids
from delegation.worksets.sorting import Sorter, common, without


@dataclass(slots=True)
class Survey:
    """What metadata and manifest lists say, before any manifest is read: all that a plan needs but the entries."""

    metadata: ParsedMetadata
    guard: PathGuard
    small: list[TableFile]
    foreign: frozenset[str]
    manifests: dict[str, ManifestFile]
    known: frozenset[str]
    asked: list[Asked] = field(default_factory=list)

    def readable_manifests(self, limit: int) -> list[tuple[str, int]]:
        """Manifests to read, with the most bytes each may have: not those of earlier segments, nor uncovered ones."""
        return [
            (path, read_limit(manifest, limit))
            for path, manifest in self.manifests.items()
            if path not in self.known and self.guard.covers(path)
        ]


def survey(ctx: PurgeContext, table: LoadedTable, earlier: Sequence[PlanIndex] = ()) -> Survey:
    """Read metadata, former metadata and manifest lists; raises what a guard or a corrupt file raises.

    `earlier` segments of the same plan account for manifests that may be gone by now; they are not read again.
    """
    metadata = parse_metadata(table.metadata_location, table.metadata, experimental=ctx.options.experimental_format)
    guards.check_table(metadata, ctx.options, table_uuid=ctx.table_uuid)
    check_not_replaced(metadata, earlier)
    covered = guards.covered_roots(table) if ctx.settings.vended else None
    known = frozenset(planned_paths(ctx.plans, earlier, (Phase.META,)))
    fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    history = read_history(metadata, fetcher, lambda path: covered is None or covered.contains(path))
    former_roots = [root for index in earlier for root in index.roots]
    guard = PathGuard(guards.table_roots(metadata, [*history.locations, *former_roots]), covered, ctx.options)
    accounted = Accounted(ctx)
    reached = read_manifest_lists(
        metadata,
        fetcher,
        limit=ctx.settings.max_file_bytes,
        readable=lambda path: path not in known and guard.covers(path),
        missing=accounted.check,
    )
    maps = [*(record.path for record in reached.lists), *reached.manifests]
    _refuse_unread(guard, ctx.options, [path for path in maps if path not in known])
    small = small_files(metadata, history, reached)
    return Survey(metadata, guard, small, frozenset(history.foreign), reached.manifests, known)


def _refuse_unread(guard: PathGuard, options: PurgeOptions, maps: Sequence[str]) -> None:
    """Raise CredentialsDoNotCover for lists and manifests that lie outside the table and cannot be read.

    Files outside are kept anyway, but what such a one names may well be the table's own, and would be left behind.
    """
    unread = [path for path in maps if not guard.covers(path) and not guard.roots.contains(path)]
    if unread and options.uncovered == "refuse":
        raise CredentialsDoNotCover(len(unread), sorted(unread)[:SAMPLE])


def check_not_replaced(metadata: ParsedMetadata, earlier: Sequence[PlanIndex]) -> None:
    """Raise MetadataReplaced when the catalog names metadata older than what a segment was planned from."""
    newest = max((index.last_updated_ms for index in earlier), default=None)
    if newest is not None and metadata.last_updated_ms < newest:
        raise MetadataReplaced(f"the catalog went back to older metadata, {metadata.path}")


class Accounted:
    """Knows which manifests earlier purges of the same table deleted.

    A register clone shares its original's uuid and so its task: when the clone was purged first, manifests of the
    original may be gone. A manifest that a plan of this task lists in a META chunk marked done went after all its
    files did; one missing for any other reason stops the purge, for what it named cannot be known.
    """

    def __init__(self, ctx: PurgeContext) -> None:
        self._ctx = ctx

    def check(self, path: str) -> None:
        if path not in self._deleted:
            raise ManifestMissing(path)

    @cached_property
    def _deleted(self) -> frozenset[str]:
        plans = self._ctx.plans
        paths: set[str] = set()
        for plan_id in plan_ids(plans, self._ctx.attempt.task_id):
            index = read_index(plans, plan_id)
            if index.table_uuid != self._ctx.table_uuid.lower():
                continue
            done = Marks(plans, index.plan_id).done()
            for chunk in index.chunks:
                if chunk.kind is Phase.META and chunk.name in done:
                    paths.update(record.path for record in read_chunk(plans, index.plan_id, chunk))
        return frozenset(paths)


class PlanWriter:
    """Sorts judged records into chunks by kind; `part` keeps several writers of one plan apart."""

    def __init__(self, plans: PlanStore, plan_id: str, *, chunk_paths: int, part: str = "") -> None:
        self._writers = {kind: ChunkWriter(plans, plan_id, kind, chunk_paths=chunk_paths, part=part) for kind in Phase}

    def write(self, rows: list[Row], verdict: GuardVerdict) -> None:
        """Add rows that all have this verdict, in order after those written before."""
        if verdict:
            self._writers[Phase.KEPT].extend(rows, verdict)
            return
        for kind, group in groupby(rows, lambda row: phase_of(row[1])):
            self._writers[kind].extend(list(group))

    def close(self) -> tuple[list[Chunk], dict[str, Total]]:
        """Store what is left; the chunks, and the totals by type of what is to be deleted."""
        chunks: list[Chunk] = []
        totals: dict[str, Total] = {}
        for kind, writer in self._writers.items():
            writer.flush()
            chunks.extend(writer.chunks)
            if kind is not Phase.KEPT:
                add_totals(totals, {name: Total(files=n, bytes=size) for name, (n, size) in writer.totals.items()})
        return chunks, totals


def new_plan_id(ctx: PurgeContext) -> str:
    """Where a plan is written: an attempt that is repeated, or that wakes up late, never writes over another's."""
    return f"{ctx.attempt.task_id}/{ctx.attempt.attempt}/{ctx.nonce()}"


def make_plan(
    ctx: PurgeContext, table: LoadedTable, earlier: Sequence[PlanIndex] = ()
) -> tuple[PlanIndex, PlanSegment]:
    """Plan in this process: read every manifest, sort, judge, write. Not yet published.

    With `earlier` segments only what they do not hold already is planned. Raises what guards and corrupt files raise.
    """
    found = survey(ctx, table, earlier)
    fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    plan_id = new_plan_id(ctx)
    run_records = ctx.settings.run_records
    with Sorter(run_records=run_records) as ours, Sorter(run_records=run_records) as theirs:
        ours.extend(found.small)
        wanted = found.readable_manifests(ctx.settings.max_file_bytes)
        ours.extend(all_entries(fetcher, found.manifests, wanted, Accounted(ctx).check))
        near, found.asked = neighbours_of(ctx, found.guard.roots, earlier)
        for neighbour in near:
            theirs.extend(reach_of_neighbour(ctx, neighbour))
        writer = PlanWriter(ctx.plans, plan_id, chunk_paths=ctx.settings.chunk_paths)
        planned = planned_paths(ctx.plans, earlier, Phase)
        fresh = without(ours.batches(), planned)
        for rows, shared in common(fresh, (record.path for record in theirs.sorted())):
            for verdict, group in found.guard.judge_all(rows, shared=shared, foreign=found.foreign):
                writer.write(group, verdict)
        chunks, totals = writer.close()
    return finish_plan(ctx, found, earlier, plan_id=plan_id, engine="inline", chunks=chunks, totals=totals)


def finish_plan(
    ctx: PurgeContext,
    found: Survey,
    earlier: Sequence[PlanIndex],
    *,
    plan_id: str,
    engine: EngineChoice,
    chunks: Sequence[Chunk],
    totals: dict[str, Total],
) -> tuple[PlanIndex, PlanSegment]:
    """Refuse what the options say to refuse, then write the index over the chunks written so far."""
    metadata, covered = found.metadata, found.guard.covered
    findings = _findings(ctx, found.guard)
    index = PlanIndex(
        plan_id=plan_id,
        task_id=ctx.attempt.task_id,
        attempt=ctx.attempt.attempt,
        table_uuid=metadata.table_uuid,
        identifier=str(ctx.identifier),
        metadata_location=metadata.path,
        last_updated_ms=metadata.last_updated_ms,
        format_version=metadata.format_version,
        snapshots=len(metadata.snapshots),
        extends=tuple(one.plan_id for one in earlier),
        engine=engine,
        created_at=ctx.clock().isoformat(),
        roots=found.guard.roots.uris,
        covered=None if covered is None else covered.uris,
        outside=ctx.options.outside,
        chunks=tuple(chunks),
        counts=totals,
        findings=findings,
        neighbours=tuple(found.asked),
    )
    if ctx.options.remove_directory_markers:
        index = with_markers(ctx, index, earlier)
    return index, store_index(ctx.plans, index)


def _findings(ctx: PurgeContext, guard: PathGuard) -> tuple[Finding, ...]:
    findings = [finding for _, finding in guard.counted()]
    buckets = sorted({root.bucket for root in guard.roots.roots})
    versioned = tuple(uri_of(bucket, "") for bucket in buckets if ctx.store.versioned(bucket))
    if versioned:
        findings.append(Finding(code=guards.VERSIONED_BUCKET, count=len(versioned), sample=versioned))
    guards.refuse_findings(findings, ctx.options)
    return tuple(findings)
