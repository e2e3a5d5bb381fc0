"""Neighbour tables: which live tables overlap the purged one, and which files they reach."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from delegation.errors import DelegationError, GuardRefused
from delegation.iceberg import reach
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import CorruptMetadata
from delegation.iceberg.files import Row, TableFile
from delegation.iceberg.history import History, read_history
from delegation.iceberg.metadata import FormerMetadata, ParsedMetadata, parse_metadata
from delegation.iceberg.paths import ALL_KINDS, CANONICAL, Spelling, is_marked
from delegation.operations.purge.context import Neighbour, PurgeContext
from delegation.operations.purge.errors import FilesAtAnotherTable, FilesShared, NeighbourUnreadable
from delegation.operations.purge.guards import covered_roots
from delegation.operations.purge.options import PurgeOptions
from delegation.operations.purge.planning.unread import UnreadNeighbours, reading
from delegation.storage.base import BucketNotFound, FileTooLarge
from delegation.storage.locations import Roots, canonical
from delegation.worksets.chunks import Phase, paths_of
from delegation.worksets.index import SAMPLE, CheckedNeighbour, PlanIndex, planned_paths
from delegation.worksets.sorting import Sorter, common

_DELETED: Final = (Phase.DATA, Phase.META, Phase.ROOT)
LENIENT: Final = PurgeOptions(unsupported="keep", ambiguous="keep")


def neighbours_of(
    ctx: PurgeContext, roots: Roots, earlier: Sequence[PlanIndex], unread: UnreadNeighbours
) -> tuple[list[Neighbour], list[CheckedNeighbour]]:
    """Return the live tables that overlap `roots`, and all that were checked, for plan and receipt.

    With `outside=delete` every table counts as overlapping, because files outside may belong to any. A table that was
    checked for an `earlier` segment at the same metadata, and did not overlap, is not checked again.
    """
    elsewhere = {
        (one.identifier, one.metadata_location)
        for index in earlier
        for one in index.neighbours
        if not one.overlaps and set(roots.uris) <= {*index.roots, *index.taken}
    }
    outside = ctx.options.outside == "delete"
    near: list[Neighbour] = []
    checked: list[CheckedNeighbour] = []
    for neighbour in ctx.neighbours(None if outside else roots):
        if isinstance(neighbour, NeighbourUnreadable):
            unread.note(neighbour)
            continue
        if _is_itself(ctx, neighbour):
            continue
        name = (str(neighbour.table.identifier), neighbour.table.metadata_location)
        try:
            overlaps = name not in elsewhere and (outside or _overlaps(roots, neighbour))
            if overlaps:
                _metadata(neighbour)
        except NeighbourUnreadable as error:
            unread.note(error)
            continue
        uuid = neighbour.table.table_uuid
        checked.append(
            CheckedNeighbour(identifier=name[0], metadata_location=name[1], overlaps=overlaps, table_uuid=uuid)
        )
        if overlaps:
            near.append(neighbour)
    return near, checked


def locations_of(near: Sequence[Neighbour]) -> Roots:
    """Return the present locations of neighbours, without those that can contain no file of this kind of storage."""
    usable = []
    for neighbour in near:
        location = _metadata(neighbour).location
        try:
            Roots([location])
        except GuardRefused:
            continue
        usable.append(location)
    return Roots(usable)


def _is_itself(ctx: PurgeContext, neighbour: Neighbour) -> bool:
    """Return whether this is the purged table; a `certain` neighbour never is, even with the same metadata file."""
    return not neighbour.certain and neighbour.table.identifier == ctx.identifier


def _overlaps(roots: Roots, neighbour: Neighbour) -> bool:
    """Return whether a table's location, or a file that its metadata names, overlaps `roots`."""
    if neighbour.certain:
        return True
    metadata = _metadata(neighbour)
    for location in metadata.locations:
        try:
            if roots.overlaps(Roots([location])):
                return True
        except GuardRefused:
            continue  # another kind of storage, or a location that cannot contain files
    lists = (one.manifest_list for one in metadata.snapshots if one.manifest_list is not None)
    inline = (path for one in metadata.snapshots for path in one.manifests)
    sized = (one.path for one in (*metadata.statistics, *metadata.partition_statistics))
    return any(_contains(roots, path) for path in (metadata.path, *metadata.former, *lists, *inline, *sized))


def _contains(roots: Roots, path: str) -> bool:
    try:
        return roots.contains(canonical(path))
    except GuardRefused:
        return False


def check_still_not_shared(ctx: PurgeContext, indexes: Sequence[PlanIndex], own: Roots) -> None:
    """Check the neighbours again before an earlier plan is executed; raise FilesShared or FilesAtAnotherTable.

    A table with the same metadata as when it was checked is not read again. The plan is not altered: a table that
    shares files since then (a registered clone), or that has its location around planned files that are not at `own`,
    the purged table's, ends the purge, and the operator decides.
    """
    roots = Roots(root for index in indexes for root in (*index.roots, *index.taken))
    outside = any(index.outside == "delete" for index in indexes)
    checked = {(one.identifier, one.metadata_location) for index in indexes for one in index.neighbours}
    near: list[Neighbour] = []
    with Sorter(run_records=ctx.settings.run_records) as shared_files:
        unread, once = UnreadNeighbours(ctx), ReadOnce()
        for neighbour in ctx.neighbours(None if outside else roots):
            if isinstance(neighbour, NeighbourUnreadable):
                unread.note(neighbour)
                continue
            table = neighbour.table
            if _is_itself(ctx, neighbour) or (str(table.identifier), table.metadata_location) in checked:
                continue
            try:
                if not (outside or _overlaps(roots, neighbour)):
                    continue
                _metadata(neighbour)
            except NeighbourUnreadable as error:
                unread.note(error)
                continue
            near.append(neighbour)
            shared_files.extend(reach_of_neighbour(ctx, neighbour, unread, once))
        _check_not_referenced(ctx, indexes, shared_files)
    _check_not_at(ctx, indexes, Roots([*locations_of(near).uris, *unread.located]), own)
    _check_not_at(ctx, indexes, unread.last_known(roots), Roots(()))


def _check_not_referenced(ctx: PurgeContext, indexes: Sequence[PlanIndex], files: Sorter) -> None:
    """Raise FilesShared if any of these files of live tables is planned to be deleted."""
    if files.empty:
        return
    count = 0
    sample: list[str] = []
    for _, both in common(files.batches(), planned_paths(ctx.plans, indexes, _DELETED)):
        count += len(both)
        sample.extend(sorted(both)[: SAMPLE - len(sample)])
    if count:
        raise FilesShared(count, sample)


def _check_not_at(ctx: PurgeContext, indexes: Sequence[PlanIndex], others: Roots, own: Roots) -> None:
    """Raise FilesAtAnotherTable if a planned file is at one of these locations and not at `own`.

    Only chunks whose range of paths meets such a location are read.
    """
    count = 0
    sample: list[str] = []
    for index in indexes:
        chunks = (chunk for chunk in index.chunks if chunk.kind in _DELETED)
        disputed = [
            chunk
            for chunk in chunks
            if others.meet_range(chunk.first, chunk.last) and not own.contain_range(chunk.first, chunk.last)
        ]
        for path in chain.from_iterable(paths_of(ctx.plans, index.plan_id, disputed)):
            if others.contains(path) and not own.contains(path):
                count += 1
                sample.extend([path] if len(sample) < SAMPLE else [])
    if count:
        raise FilesAtAnotherTable(count, sample)


@dataclass(slots=True)
class ReadOnce:
    """What was read of a purged table and its neighbours, so that what clones share is read once for all of them.

    `manifests` are those of neighbours whose entries are among the shared files already.
    """

    lists: reach.ListsRead = field(default_factory=reach.ListsRead)
    former: dict[str, FormerMetadata] = field(default_factory=dict)
    manifests: set[str] = field(default_factory=set)


def survey_neighbour(
    ctx: PurgeContext, neighbour: Neighbour, unread: UnreadNeighbours, once: ReadOnce
) -> tuple[list[TableFile], dict[str, ManifestFile]]:
    """Return the files that a neighbour reaches except its manifests' entries, and the manifests to read still.

    Raises NeighbourUnreadable unless it is reported, and NeighbourChanged for a missing manifest, whose entries are
    unknown.
    """
    metadata = _metadata(neighbour)
    fetcher = reach.Fetcher(neighbour.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    tolerance = tolerance_of(unread.of(neighbour), reported=unread.accepts(exempt=neighbour.exempt))
    with reading(neighbour):
        found = reach.read_manifest_lists(
            metadata,
            fetcher,
            limit=ctx.settings.max_file_bytes,
            readable=lambda path: not is_marked(path),
            tolerance=tolerance,
            read=once.lists,
        )
        covered = covered_roots(neighbour.table, LENIENT) if ctx.settings.vended else None
        history = read_history(
            metadata,
            fetcher,
            lambda path: not is_marked(path) and (covered is None or covered.contains(path)),
            replace(tolerance, unreadable=_of_former_metadata(unread, tolerance.unreadable)),
            known=once.former,
        )
    fresh = ((path, one) for path, one in found.manifests.items() if path not in once.manifests)
    manifests = {path: one for path, one in fresh if not is_marked(path)}
    return small_files(metadata, history, found, tolerance.spelling), manifests


def tolerance_of(unreadable: reach.Unreadable, *, reported: bool) -> reach.Tolerance:
    """Return how a neighbour is read; without a report, an ambiguous or unsupported path is an error as well."""
    spelling = Spelling(ALL_KINDS, unreadable) if reported else CANONICAL
    return reach.Tolerance(unreadable, spelling)


def _of_former_metadata(unread: UnreadNeighbours, unreadable: reach.Unreadable) -> reach.Unreadable:
    """Return the function for errors in former metadata: it only notes what is damaged, or whose bucket is gone."""

    def accepted(path: str, error: DelegationError) -> None:
        if isinstance(error, (CorruptMetadata, FileTooLarge, BucketNotFound)):
            unread.note_former(path)
        else:
            unreadable(path, error)

    return accepted


def small_files(
    metadata: ParsedMetadata, history: History, reached: reach.Manifests, spelling: Spelling
) -> list[TableFile]:
    """Return all files that a table reaches except its manifests' entries."""
    manifests = (reach.manifest_record(path, manifest) for path, manifest in reached.manifests.items())
    return [*reach.named_by_metadata(metadata, spelling), *history.files, *reached.lists, *manifests]


def reach_of_neighbour(
    ctx: PurgeContext, neighbour: Neighbour, unread: UnreadNeighbours, once: ReadOnce
) -> Iterator[Row]:
    """Yield all files that a neighbour reaches except those of manifests in `once`, to which the others are added.

    Raises what `survey_neighbour` raises.
    """
    small, manifests = survey_neighbour(ctx, neighbour, unread, once)
    yield from small
    fetcher = reach.Fetcher(neighbour.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    wanted = [(path, reach.read_limit(manifest, ctx.settings.max_file_bytes)) for path, manifest in manifests.items()]
    unreadable = unread.of(neighbour)
    failed: set[str] = set()

    def noted(path: str, error: DelegationError) -> None:
        failed.add(path)
        unreadable(path, error)

    tolerance = tolerance_of(noted, reported=unread.accepts(exempt=neighbour.exempt))
    with reading(neighbour):
        yield from reach.all_entries(fetcher, manifests, wanted, tolerance)
    once.manifests.update(manifests.keys() - failed)


def _metadata(neighbour: Neighbour) -> ParsedMetadata:
    with reading(neighbour):
        return parse_metadata(neighbour.table.metadata_location, neighbour.table.metadata, experimental=True)
