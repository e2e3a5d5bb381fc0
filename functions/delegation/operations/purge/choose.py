"""Choosing the engine by the size of a purge, which is read from manifest lists before any manifest."""

from dataclasses import dataclass

from delegation.errors import DelegationError
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.paths import Spelling
from delegation.iceberg.reach import Fetcher, Manifests, Tolerance, read_manifest_lists
from delegation.operations.purge.context import PurgeContext
from delegation.operations.purge.errors import PlanOutdated, TooLargeForInline
from delegation.operations.purge.guards import check_table, covered_roots, kept_for, kept_spellings, reads
from delegation.operations.purge.options import EngineChoice
from delegation.operations.purge.planning.succession import check_stated
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import canonical
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import Phase
from delegation.worksets.index import load_index
from delegation.worksets.marks import Marks

# Assumed for a manifest without counts, which are optional in version 1 (Iceberg Table Spec, Manifest Lists).
UNCOUNTED_ENTRIES = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """The number of files to delete and of distinct manifests, and the engine.

    `files` is a lower bound, because counting stops once the engine is known. With `planned` it is exactly what is
    left of the plan; without it `table` is what was loaded to count them.
    """

    files: int
    manifests: int
    engine: EngineChoice
    planned: bool
    table: LoadedTable | None = None


def estimate(ctx: PurgeContext) -> Estimate:
    """Choose the engine: the requested one, else inline up to `inline_max_files` files, else Spark.

    With a published plan, the files left of it are counted and the table is not loaded; otherwise the manifests'
    entries (added + existing + deleted). Raises TooLargeForInline, PlanOutdated and the errors of guards and of corrupt
    metadata, so that no job is started for a table that must not be purged.
    """
    segments = ctx.attempt.plan() or _requested_plan(ctx)
    most = ctx.settings.inline_max_files
    if segments:
        left = 0
        manifests = 0
        for index in (load_index(ctx.plans, segment) for segment in segments):
            done = Marks(ctx.plans, index.plan_id).done()
            left += sum(one.count for one in index.chunks if one.kind is not Phase.KEPT and one.name not in done)
            manifests += index.counts["manifest"].files if "manifest" in index.counts else 0
        return Estimate(left, manifests, _engine(ctx, left), planned=True)
    table = ctx.tables.load()
    found = _manifests(ctx, table, most)
    files = _entries(found)
    return Estimate(files, len(found.manifests), _engine(ctx, files), planned=False, table=table)


def _requested_plan(ctx: PurgeContext) -> tuple[PlanSegment, ...]:
    """Return the plan that the options name, if any; raise PlanOutdated unless the table still has its metadata."""
    if ctx.options.execute_plan is None:
        return ()
    segment = ctx.named_plan(ctx.options.execute_plan)
    index = load_index(ctx.plans, segment)
    table = ctx.tables.load()
    if canonical(table.metadata_location) != canonical(index.metadata_location):
        raise PlanOutdated(index.plan_id)
    check_stated(ctx.stated, _metadata_of(ctx, table))
    return (segment,)


def _metadata_of(ctx: PurgeContext, table: LoadedTable) -> ParsedMetadata:
    return parse_metadata(table.metadata_location, table.metadata, experimental=ctx.options.experimental_format)


def _engine(ctx: PurgeContext, files: int) -> EngineChoice:
    small = files <= ctx.settings.inline_max_files
    if ctx.options.engine == "inline" and not small:
        raise TooLargeForInline(files, ctx.settings.inline_max_files)
    return ctx.options.engine or ("inline" if small else "spark")


def _manifests(ctx: PurgeContext, table: LoadedTable, most: int) -> Manifests:
    """Return the table's distinct manifests, or enough of them to have more than `most` entries."""
    metadata = _metadata_of(ctx, table)
    check_table(metadata, ctx.options, table_uuid=ctx.table_uuid)
    check_stated(ctx.stated, metadata)
    covered = covered_roots(table, ctx.options) if ctx.settings.vended else None

    def unreadable(_path: str, error: DelegationError) -> None:
        # Planning decides whether a missing list is an error.
        if not isinstance(error, ManifestMissing):
            kept_for(error, ctx.options)

    return read_manifest_lists(
        metadata,
        Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint),
        limit=ctx.settings.max_file_bytes,
        readable=reads(metadata, covered),
        tolerance=Tolerance(unreadable, Spelling(kept_spellings(ctx.options))),
        enough=lambda found: _entries(found) > most,
    )


def _entries(found: Manifests) -> int:
    return sum(UNCOUNTED_ENTRIES if one.entries is None else one.entries for one in found.manifests.values())
