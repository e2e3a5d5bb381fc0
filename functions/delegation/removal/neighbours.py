"""Neighbour tables: which live tables overlap the purged one, and which files they reach."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from delegation.errors import GuardRefused
from delegation.iceberg import reach
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import CorruptMetadata
from delegation.iceberg.history import History, read_history
from delegation.iceberg.metadata import FormerMetadata, ParsedMetadata, parse_metadata
from delegation.iceberg.paths import ALL_KINDS, CANONICAL, Row, Spelling, TableFile, is_marked
from delegation.removal.context import RemovalContext
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.index import SAMPLE, CheckedNeighbour, Finding, PlanIndex
from delegation.removal.model import LENIENT_PATHS, Neighbour
from delegation.removal.paths import covered_roots
from delegation.removal.unread import UnreadNeighbours, reading
from delegation.storage.base import BucketNotFound, FileTooLarge, ObjectStoreDenied
from delegation.storage.locations import Roots, canonical
from polaris_common.errors import DelegationError

SAME_TABLE: Final = "SAME_TABLE"


class Unread(Protocol):
    """What becomes of other tables' files that cannot be read; UnreadNeighbours documents it."""

    def accepts(self, *, exempt: bool = False) -> bool: ...

    def note_former(self, path: str) -> None: ...

    def note_differing(self, who: str, path: str) -> None: ...

    def of(self, neighbour: Neighbour) -> reach.Unreadable: ...


def neighbours_of(
    ctx: RemovalContext, roots: Roots, earlier: Sequence[PlanIndex], unread: UnreadNeighbours
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
        if is_itself(ctx, neighbour):
            continue
        name = (str(neighbour.table.identifier), neighbour.table.metadata_location)
        try:
            overlaps = name not in elsewhere and (outside or is_near(roots, neighbour))
            if overlaps:
                metadata_of(neighbour)
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
        location = metadata_of(neighbour).location
        try:
            Roots([location])
        except GuardRefused:
            continue
        usable.append(location)
    return Roots(usable)


def is_itself(ctx: RemovalContext, neighbour: Neighbour) -> bool:
    """Return whether this is the purged table; a `certain` neighbour never is, even with the same metadata file.

    Nor is a `former` state, even one of the same table.
    """
    return not (neighbour.certain or neighbour.former) and neighbour.table.identifier == ctx.identifier


def same_table(ctx: RemovalContext, near: Iterable[Neighbour], own: ParsedMetadata) -> tuple[Finding, ...]:
    """Return the finding of other catalogs that name the table itself, none without one."""
    same = sorted(str(one.table.identifier) for one in near if is_same_table(ctx, one, own))
    return (Finding(code=SAME_TABLE, count=len(same), sample=tuple(same[:SAMPLE])),) if same else ()


def is_same_table(ctx: RemovalContext, one: Neighbour, own: ParsedMetadata) -> bool:
    """Return whether another catalog names the table `own`: by its metadata file, or by its uuid and location."""
    if one.former or one.table.identifier.catalog == ctx.identifier.catalog:
        return False
    found = metadata_of(one)
    return found.path == own.path or (one.table.table_uuid == own.table_uuid and found.location == own.location)


def is_near(roots: Roots, neighbour: Neighbour) -> bool:
    """Return whether a table's location, or a file that its metadata names, overlaps `roots`."""
    if neighbour.certain:
        return True
    metadata = metadata_of(neighbour)
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


@dataclass(slots=True)
class ReadOnce:
    """What was read of a purged table and its neighbours, so that what clones share is read once for all of them.

    `manifests` are those of neighbours whose entries are among the shared files already.
    """

    lists: reach.ListsRead = field(default_factory=reach.ListsRead)
    former: dict[str, FormerMetadata] = field(default_factory=dict)
    manifests: set[str] = field(default_factory=set)


def survey_neighbour(
    ctx: RemovalContext, neighbour: Neighbour, unread: Unread, once: ReadOnce
) -> tuple[list[TableFile], dict[str, ManifestFile]]:
    """Return the files that a neighbour reaches except its manifests' entries, and the manifests to read still.

    Raises NeighbourUnreadable unless it is reported, and NeighbourChanged for a missing manifest, whose entries are
    unknown.
    """
    metadata = metadata_of(neighbour)
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
        covered = covered_roots(neighbour.table, LENIENT_PATHS) if ctx.settings.vended else None
        history = read_history(
            metadata,
            fetcher,
            lambda path: not is_marked(path) and (covered is None or covered.contains(path)),
            replace(tolerance, unreadable=_of_former_metadata(unread, neighbour, tolerance.unreadable)),
            known=once.former,
        )
    fresh = ((path, one) for path, one in found.manifests.items() if path not in once.manifests)
    manifests = {path: one for path, one in fresh if not is_marked(path)}
    return small_files(metadata, history, found, tolerance.spelling), manifests


def tolerance_of(unreadable: reach.Unreadable, *, reported: bool) -> reach.Tolerance:
    """Return how a neighbour is read; without a report, an ambiguous or unsupported path is an error as well."""
    spelling = Spelling(ALL_KINDS, unreadable) if reported else CANONICAL
    return reach.Tolerance(unreadable, spelling)


def _of_former_metadata(unread: Unread, neighbour: Neighbour, unreadable: reach.Unreadable) -> reach.Unreadable:
    """Return the function for errors in former metadata: it only notes what is damaged, or whose bucket is gone.

    And what may not be read of an exempt table: no pass reads former metadata, so no exemption names it.
    """
    noted = (CorruptMetadata, FileTooLarge, BucketNotFound, *((ObjectStoreDenied,) if neighbour.exempt else ()))

    def accepted(path: str, error: DelegationError) -> None:
        if isinstance(error, noted):
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


def reach_of_neighbour(ctx: RemovalContext, neighbour: Neighbour, unread: Unread, once: ReadOnce) -> Iterator[Row]:
    """Yield all files that a neighbour reaches except those of manifests in `once`, to which the others are added.

    Raises what `survey_neighbour` raises.
    """
    small, manifests = survey_neighbour(ctx, neighbour, unread, once)
    yield from small
    fetcher = reach.Fetcher(neighbour.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    wanted = [(path, ctx.settings.max_file_bytes) for path in manifests]
    unreadable = unread.of(neighbour)
    failed: set[str] = set()

    def noted(path: str, error: DelegationError) -> None:
        failed.add(path)
        unreadable(path, error)

    tolerance = tolerance_of(noted, reported=unread.accepts(exempt=neighbour.exempt))
    with reading(neighbour):
        yield from reach.all_entries(fetcher, manifests, wanted, tolerance)
    once.manifests.update(manifests.keys() - failed)


def metadata_of(neighbour: Neighbour) -> ParsedMetadata:
    with reading(neighbour):
        return parse_metadata(neighbour.table.metadata_location, neighbour.table.metadata, experimental=True)
