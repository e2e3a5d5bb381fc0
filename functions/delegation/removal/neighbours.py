"""Neighbour tables: which live tables overlap the purged one, and which files they reach.

Before files are deleted, a pass over the catalog is required. Before a hand-over to a job the other tables are checked,
because an unreadable one would end the paid job at each retry.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from delegation.errors import GuardRefused, RunHandedOver, RunPaused
from delegation.iceberg import reach
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import CorruptMetadata
from delegation.iceberg.history import History, read_history
from delegation.iceberg.metadata import FormerMetadata, ParsedMetadata, parse_metadata
from delegation.iceberg.paths import ALL_KINDS, CANONICAL, Row, Spelling, TableFile, is_marked
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.attempt import Attempt
from delegation.removal.choice import HandedToSpark
from delegation.removal.chunks import Stored
from delegation.removal.context import RemovalContext
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.index import CheckedNeighbour, FileTally, Finding, PlanIndex
from delegation.removal.neighbourhood import LENIENT_PATHS, Neighbour, ReferenceCheck
from delegation.removal.path_guard import covered_roots
from delegation.removal.unread_neighbours import UnreadNeighbours, reading, usable_roots
from delegation.storage.base import BucketNotFound, FileTooLarge, ObjectStoreDenied
from delegation.storage.locations import Roots, canonical
from polaris_common.errors import DelegationError

SAME_TABLE: Final = "SAME_TABLE"


class Unread(Protocol):
    """Decides on unreadable files of other tables; documented in UnreadNeighbours."""

    def accepts(self, *, exempt: bool = False) -> bool: ...

    def note_former(self, path: str) -> None: ...

    def note_differing(self, who: str, path: str) -> None: ...

    def of(self, neighbour: Neighbour) -> reach.Unreadable: ...


def neighbours_of(
    ctx: RemovalContext,
    roots: Roots,
    earlier: Sequence[PlanIndex],
    unread: UnreadNeighbours,
    *,
    outside: bool | None = None,
) -> tuple[list[Neighbour], list[CheckedNeighbour]]:
    """Return the live tables that overlap `roots`, and all that were checked, for plan and receipt. With `outside` (by
    default the option's choice) every table counts as overlapping, because files outside may belong to any. A table
    that was checked for an `earlier` segment at the same metadata, without overlap, is not checked again."""
    elsewhere = {
        (neighbour.identifier, neighbour.metadata_location)
        for index in earlier
        for neighbour in index.neighbours
        if not neighbour.overlaps and set(roots.uris) <= {*index.roots, *index.taken}
    }
    outside = ctx.options.outside == "delete" if outside is None else outside
    overlapping: list[Neighbour] = []
    checked: list[CheckedNeighbour] = []
    for neighbour in ctx.neighbours(None if outside else roots):
        if isinstance(neighbour, NeighbourUnreadable):
            unread.note(neighbour)
            continue
        if is_itself(ctx, neighbour):
            continue
        name = (str(neighbour.table.identifier), neighbour.table.metadata_location)
        try:
            overlaps = name not in elsewhere and (outside or is_overlapping(roots, neighbour))
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
            overlapping.append(neighbour)
    return overlapping, checked


def locations_of(neighbours: Sequence[Neighbour]) -> Roots:
    """Return the current locations of neighbours, without those that can contain no file of this kind of storage."""
    return usable_roots(metadata_of(neighbour).location for neighbour in neighbours)


def is_itself(ctx: RemovalContext, neighbour: Neighbour) -> bool:
    """Return whether this is the purged table. A `certain` neighbour or a `former` state never is, even with the same
    metadata file."""
    return not (neighbour.certain or neighbour.former) and neighbour.table.identifier == ctx.identifier


def same_table(ctx: RemovalContext, neighbours: Iterable[Neighbour], own: ParsedMetadata) -> tuple[Finding, ...]:
    """Return the finding that other catalogs name the table `own`, by its metadata file, or its uuid and location."""
    tally = FileTally()
    for neighbour in sorted(neighbours, key=lambda neighbour: str(neighbour.table.identifier)):
        if not neighbour.former and neighbour.table.identifier.catalog != ctx.identifier.catalog:
            metadata = metadata_of(neighbour)
            is_clone = neighbour.table.table_uuid == own.table_uuid and metadata.location == own.location
            if metadata.path == own.path or is_clone:
                tally.add(str(neighbour.table.identifier))
    return (tally.finding(SAME_TABLE),) if tally.count else ()


def is_overlapping(roots: Roots, neighbour: Neighbour) -> bool:
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
    lists = (snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list is not None)
    inline = (path for snapshot in metadata.snapshots for path in snapshot.manifests)
    sized = (file.path for file in (*metadata.statistics, *metadata.partition_statistics))
    return any(_contains(roots, path) for path in (metadata.path, *metadata.former, *lists, *inline, *sized))


def _contains(roots: Roots, path: str) -> bool:
    try:
        return roots.contains(canonical(path))
    except GuardRefused:
        return False


@dataclass(slots=True)
class ReadOnce:
    """What was read of a purged table and its neighbours, so that files shared by clones are read once. `manifests` are
    those of neighbours whose entries are already among the shared files."""

    lists: reach.ListsRead = field(default_factory=reach.ListsRead)
    former: dict[str, FormerMetadata] = field(default_factory=dict)
    manifests: set[str] = field(default_factory=set)


def survey_neighbour(
    ctx: RemovalContext, neighbour: Neighbour, unread: Unread, once: ReadOnce
) -> tuple[list[TableFile], dict[str, ManifestFile]]:
    """Return the files that a neighbour reaches except its manifests' entries, and the manifests still to read. Raises
    NeighbourUnreadable unless it is reported, and NeighbourChanged for a missing manifest, whose entries are
    unknown."""
    metadata = metadata_of(neighbour)
    fetcher = reach.Fetcher(neighbour.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    tolerance = tolerance_of(unread.of(neighbour), reported=unread.accepts(exempt=neighbour.exempt))
    with reading(neighbour):
        reached = reach.read_manifest_lists(
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
    fresh = ((path, manifest) for path, manifest in reached.manifests.items() if path not in once.manifests)
    manifests = {path: manifest for path, manifest in fresh if not is_marked(path)}
    return small_files(metadata, history, reached, tolerance.spelling), manifests


def tolerance_of(unreadable: reach.Unreadable, *, reported: bool) -> reach.Tolerance:
    """Return how a neighbour is read. Without a report, an ambiguous or unsupported path is an error too."""
    spelling = Spelling(ALL_KINDS, unreadable) if reported else CANONICAL
    return reach.Tolerance(unreadable, spelling)


def _of_former_metadata(unread: Unread, neighbour: Neighbour, unreadable: reach.Unreadable) -> reach.Unreadable:
    """Return the function for errors in former metadata. It only records damaged files, files in a missing bucket, and
    denied files of an exempt table: no pass reads former metadata, so no exemption names it."""
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
    Raises as `survey_neighbour`."""
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


_LOOK_EVERY: Final = 5.0
"""Seconds between two checks whether another process has made the pass that a job waits for."""


class PassRequest(Stored):
    """Whether a new pass over the references is required, for which the operation waits. A former release stored
    `known_at` when it left the rest to another engine, which requires a pass again."""

    format: int = 1
    asked: bool
    known_at: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether an attempt waits for the required pass."""
        return self.asked and self.known_at is None


class AskedReferences:
    """The passes that an attempt requires of the reference index, recorded in the note of `read` and `write`.

    Each attempt that deletes requires a later pass, but one that waits for the pass does not require another. An
    attempt that deleted with the answer does, and so does each job, because it may have been queued for hours. `look`
    is called before a hand-over, once the references are known. It raises errors that another engine would meet only
    after its start.
    """

    def __init__(
        self,
        ctx: RemovalContext,
        read: Callable[[], PassRequest | None],
        write: Callable[[PassRequest], object],
        *,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        self._ctx = ctx
        self._read = read
        self._write = write
        self._look = look

    def ask(self, left: int, *, is_large: bool = False) -> None:
        """Require a pass. Raises HandedToSpark if too many files are left to delete, or any of a large plan; before
        that ReferencesNotKnown, so that no job has to wait for long."""
        above = self._ctx.spark_above
        self.require()
        if above is not None and (left > above or is_large):
            self.hand_over(left)

    def require(self) -> None:
        """Require a pass, unless one is already required. A job requires one that starts now, and waits for it: if it
        ended instead, it would be queued again, and tables registered meanwhile would be in no pass. Raises the errors
        of a pass and of a checkpoint."""
        references, before = self._ctx.references, self._read()
        if references is None:
            return
        if self._ctx.awaits_references or not (before and before.waits):
            references.renew()
            self._write(PassRequest(asked=True))
        if self._ctx.awaits_references:
            await_references(references, self._ctx.attempt, self._ctx.sleep)

    def hand_over(self, left: int, *, does: str = "deletes the remaining files") -> None:
        """Raise HandedToSpark for this many files once the references are known, before that ReferencesNotKnown or the
        error that `look` raises. The next attempt requires a pass again, with any engine."""
        if self._ctx.references is not None:
            self._ctx.references.ensure_known()
        self.answered()
        self._look()
        raise HandedToSpark(self._ctx.attempt.task_id, left, does=does)

    def answered(self) -> None:
        """Record that the attempt deletes with the answer, or leaves it to another attempt that does."""
        self._write(PassRequest(asked=False))


def await_references(references: ReferenceCheck, attempt: Attempt, sleep: Callable[[float], None]) -> None:
    """Return once the required pass is made: by another process while it makes progress, otherwise by this one. Raises
    the errors of a pass and of a checkpoint."""
    before: tuple[str, int] | None = None
    while True:
        try:
            references.ensure_known()
        except ReferencesNotKnown as error:
            now = error.catalog, error.checked
            attempt.checkpoint(moved=now != before)
            before = now
            sleep(_LOOK_EVERY)
        else:
            return


LONGEST: Final = timedelta(minutes=1)
"""The time limit of the check. A job does the rest, which an attempt has no time for."""
MOST_MANIFESTS: Final = 100_000
"""The number of manifests of one table held meanwhile."""


def look_at_neighbours(ctx: RemovalContext, roots: Roots, unreadable: Callable[[NeighbourUnreadable], object]) -> None:
    """Read metadata and manifest lists of live tables that overlap `roots`, for at most a minute. `unreadable` decides
    on a wholly unreadable table. Raises NeighbourUnreadable and NeighbourChanged for a table with unreadable files,
    ReferencesNotKnown, and the errors of a checkpoint. Returns if the attempt has no time left, because the next would
    have no more."""
    try:
        _look(ctx, roots, unreadable)
    except RunPaused:
        raise
    except RunHandedOver:
        return


def _look(ctx: RemovalContext, roots: Roots, unreadable: Callable[[NeighbourUnreadable], object]) -> None:
    until = ctx.clock() + LONGEST
    for neighbour in ctx.neighbours(roots):
        if isinstance(neighbour, NeighbourUnreadable):
            unreadable(neighbour)
        elif not (is_itself(ctx, neighbour) or neighbour.former or neighbour.exempt):
            try:
                metadata = metadata_of(neighbour) if is_overlapping(roots, neighbour) else None
            except NeighbourUnreadable as error:
                unreadable(error)
                metadata = None
            if metadata is not None:
                _read_lists(ctx, neighbour, metadata, until)
        if ctx.clock() >= until:
            return


def _read_lists(ctx: RemovalContext, neighbour: Neighbour, metadata: ParsedMetadata, until: datetime) -> None:
    fetcher = reach.Fetcher(neighbour.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    unread = UnreadNeighbours(ctx)
    with reading(neighbour):
        reach.read_manifest_lists(
            metadata,
            fetcher,
            limit=ctx.settings.max_file_bytes,
            readable=lambda path: not is_marked(path),
            tolerance=tolerance_of(unread.of(neighbour), reported=unread.accepts()),
            enough=lambda reached: len(reached.manifests) > MOST_MANIFESTS or ctx.clock() >= until,
        )
