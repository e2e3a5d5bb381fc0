"""Live tables at overlapping locations: which there are, what they reach, and what of it is ours (DESIGN §5)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from delegation.errors import GuardRefused
from delegation.iceberg import reach
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import CorruptManifestError, CorruptMetadata, ManifestMismatchError, ManifestMissing
from delegation.iceberg.files import Row, TableFile
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.operations.purge.context import Neighbour, PurgeContext
from delegation.operations.purge.errors import FilesShared, NeighbourChanged, NeighbourUnreadable
from delegation.operations.purge.guards import covered_roots
from delegation.polaris.errors import CredentialVendingFailed, PolarisForbidden
from delegation.storage.base import FileTooLarge, ObjectStoreDenied
from delegation.storage.locations import Roots, canonical
from delegation.worksets.chunks import Phase
from delegation.worksets.index import SAMPLE, Asked, PlanIndex, planned_paths
from delegation.worksets.sorting import Sorter, common

# What stays as it is however often it is tried. A manifest that is not there is another matter: tables move on.
_UNREADABLE = (
    PolarisForbidden,
    CredentialVendingFailed,
    ObjectStoreDenied,
    FileTooLarge,
    CorruptMetadata,
    CorruptManifestError,
    ManifestMismatchError,
    GuardRefused,
)


def neighbours_of(ctx: PurgeContext, roots: Roots, earlier: Sequence[PlanIndex]) -> tuple[list[Neighbour], list[Asked]]:
    """Live tables under another identifier that overlap `roots`, and all that were looked at, for plan and receipt.

    With `outside=delete` each of them does: files outside lie where other tables are. One that an `earlier` segment
    found elsewhere, at the same metadata, is not examined again.
    """
    elsewhere = {
        (one.identifier, one.metadata_location)
        for index in earlier
        for one in index.neighbours
        if not one.overlaps and set(roots.uris) <= set(index.roots)
    }
    anywhere = ctx.options.outside == "delete"
    near: list[Neighbour] = []
    asked: list[Asked] = []
    for neighbour in ctx.neighbours():
        if _is_itself(ctx, neighbour):
            continue
        name = (str(neighbour.table.identifier), neighbour.table.metadata_location)
        overlaps = name not in elsewhere and (anywhere or _concerns(roots, neighbour))
        asked.append(Asked(identifier=name[0], metadata_location=name[1], overlaps=overlaps))
        if overlaps:
            near.append(neighbour)
    return near, asked


def _is_itself(ctx: PurgeContext, neighbour: Neighbour) -> bool:
    """Whether it is the table that is purged; never one that has to stay, whatever it shares, its root included."""
    return not neighbour.certain and neighbour.table.identifier == ctx.identifier


def _concerns(roots: Roots, neighbour: Neighbour) -> bool:
    """Whether a table lies, or by a file that its metadata names once lay, at a location that overlaps ours."""
    if neighbour.certain:
        return True
    theirs = _metadata(neighbour)
    for location in theirs.locations:
        try:
            if roots.overlaps(Roots([location])):
                return True
        except GuardRefused:
            continue  # another kind of storage, or one where nothing can lie below
    lists = (one.manifest_list for one in theirs.snapshots if one.manifest_list is not None)
    inline = (path for one in theirs.snapshots for path in one.manifests)
    sized = (one.path for one in (*theirs.statistics, *theirs.partition_statistics))
    return any(_lies_below(roots, path) for path in (theirs.path, *theirs.former, *lists, *inline, *sized))


def _lies_below(roots: Roots, path: str) -> bool:
    try:
        return roots.contains(canonical(path))
    except GuardRefused:
        return False


def check_still_not_shared(ctx: PurgeContext, indexes: Sequence[PlanIndex]) -> None:
    """Ask the neighbours again before a plan that was made earlier is executed; raises FilesShared.

    One that has not moved since it was looked at is not read again. The plan itself is never changed: a table that came
    to share files in between (a register clone) stops the purge, for a person to decide.
    """
    roots = Roots(root for index in indexes for root in index.roots)
    anywhere = any(index.outside == "delete" for index in indexes)
    looked_at = {(one.identifier, one.metadata_location) for index in indexes for one in index.neighbours}
    with Sorter(run_records=ctx.settings.run_records) as theirs:
        for neighbour in ctx.neighbours():
            table = neighbour.table
            if _is_itself(ctx, neighbour) or (str(table.identifier), table.metadata_location) in looked_at:
                continue
            if anywhere or _concerns(roots, neighbour):
                theirs.extend(reach_of_neighbour(ctx, neighbour))
        if theirs.empty:
            return
        planned = planned_paths(ctx.plans, indexes, (Phase.DATA, Phase.META, Phase.ROOT))
        count = 0
        sample: list[str] = []
        for _, both in common(theirs.batches(), planned):
            count += len(both)
            sample.extend(sorted(both)[: SAMPLE - len(sample)])
    if count:
        raise FilesShared(count, sample)


def survey_neighbour(ctx: PurgeContext, neighbour: Neighbour) -> tuple[list[TableFile], dict[str, ManifestFile]]:
    """What a live table reaches but for its manifests' entries, and those manifests.

    Raises NeighbourUnreadable, and NeighbourChanged: what a missing manifest protects is unknown.
    """
    metadata = _metadata(neighbour)
    fetcher = reach.Fetcher(neighbour.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    with reading(str(neighbour.table.identifier)):
        found = reach.read_manifest_lists(
            metadata,
            fetcher,
            limit=ctx.settings.max_file_bytes,
            readable=lambda _path: True,
            missing=_missing,
        )
        covered = covered_roots(neighbour.table) if ctx.settings.vended else None
        history = reach.read_history(metadata, fetcher, lambda path: covered is None or covered.contains(path))
    return small_files(metadata, history, found), found.manifests


def small_files(metadata: ParsedMetadata, history: reach.History, reached: reach.Manifests) -> list[TableFile]:
    """All files that a table reaches but for its manifests' entries."""
    manifests = (reach.manifest_record(path, manifest) for path, manifest in reached.manifests.items())
    return [*reach.named_by_metadata(metadata), *history.files, *reached.lists, *manifests]


def reach_of_neighbour(ctx: PurgeContext, neighbour: Neighbour) -> Iterator[Row]:
    """All that a live table reaches; raises what `survey_neighbour` does."""
    small, manifests = survey_neighbour(ctx, neighbour)
    yield from small
    fetcher = reach.Fetcher(neighbour.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    wanted = [(path, reach.read_limit(manifest, ctx.settings.max_file_bytes)) for path, manifest in manifests.items()]
    with reading(str(neighbour.table.identifier)):
        yield from reach.all_entries(fetcher, manifests, wanted, _missing)


def _metadata(neighbour: Neighbour) -> ParsedMetadata:
    with reading(str(neighbour.table.identifier)):
        return parse_metadata(neighbour.table.metadata_location, neighbour.table.metadata, experimental=True)


@contextmanager
def reading(who: str) -> Iterator[None]:
    """Tell what is wrong with a neighbour's files as such; raises NeighbourUnreadable and NeighbourChanged."""
    try:
        yield
    except ManifestMissing as error:
        raise NeighbourChanged(who, error.path) from error
    except _UNREADABLE as error:
        raise NeighbourUnreadable(who, error) from error


def _missing(path: str) -> None:
    raise ManifestMissing(path)
