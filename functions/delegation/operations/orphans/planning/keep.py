"""What is needed at a location, by the table itself, by other live tables, and by the plans of unfinished tasks."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice

from delegation.iceberg.files import FileType, Row
from delegation.iceberg.history import read_history
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.paths import ALL_KINDS, Spelling
from delegation.iceberg.reach import Fetcher, Tolerance, all_entries, read_limit, read_manifest_lists, refuse
from delegation.keeping.errors import NeighbourUnreadable
from delegation.keeping.model import Neighbour
from delegation.keeping.neighbours import ReadOnce, is_itself, is_near, reach_of_neighbour, small_files
from delegation.keeping.neighbours import metadata_of as metadata_of_neighbour
from delegation.keeping.options import LENIENT_PATHS
from delegation.keeping.paths import covered_roots, reads
from delegation.keeping.unread import UnreadNeighbours
from delegation.operations.orphans.context import Claim, OrphanContext
from delegation.operations.orphans.errors import AreaLeftAlone, ClaimUnknown, LocationShared
from delegation.operations.orphans.place import Place, check_alone
from delegation.operations.orphans.spelling import joined_all, overlap
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import Root, Roots
from delegation.worksets.chunks import Phase
from delegation.worksets.engines.size import Size
from delegation.worksets.errors import PlanLost
from delegation.worksets.index import CheckedNeighbour, PlanIndex, load_index, planned_paths
from delegation.worksets.sorting import Sorter

_ANY_SPELLING = Spelling(ALL_KINDS)
_AT_A_TIME = 1_000


def metadata_of(table: LoadedTable) -> ParsedMetadata:
    """Return the parsed metadata of a table; raise CorruptMetadata, GuardRefused (UNSUPPORTED_FORMAT_VERSION)."""
    return parse_metadata(table.metadata_location, table.metadata)


class KeepSet:
    """The needed files as a sorted set of texts on disk, each a spelling of a path (`spelling.joined`).

    Use it as a context manager. `left` are areas at the location in which every file stays; `manifests` are those of
    the table whose entries are in it. `check` is called with the size of what is to be read, and may raise.
    """

    def __init__(self, ctx: OrphanContext, root: Root, check: Callable[[Size], object] = lambda _size: None) -> None:
        self._ctx = ctx
        self._check = check
        self._root = root
        self._files = Sorter(run_records=ctx.settings.run_records)
        self.checked: tuple[CheckedNeighbour, ...] = ()
        self.left = Roots(())
        self.manifests: frozenset[str] = frozenset()

    def __enter__(self) -> "KeepSet":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.__exit__()

    def texts(self) -> Iterator[list[str]]:
        """Yield the spellings in order, in lists; call it once, after all is added."""
        return ([text for text, _, _ in rows] for rows in self._files.batches())

    def add_table(self, table: LoadedTable, known: Collection[str] = ()) -> None:
        """Add all that the table names, without entries of manifests whose files were added as `known`.

        All entries of all snapshots count, those with status DELETED too, and every metadata file of the logs. Raises
        the error of anything that is missing, damaged, encrypted or not covered: then nothing is known to be an orphan.
        """
        ctx, metadata = self._ctx, metadata_of(table)
        fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
        tolerance = Tolerance(refuse, _ANY_SPELLING)
        limit = ctx.settings.max_file_bytes
        found = read_manifest_lists(metadata, fetcher, limit=limit, readable=lambda _path: True, tolerance=tolerance)
        covered = covered_roots(table, LENIENT_PATHS) if ctx.settings.vended else None
        history = read_history(metadata, fetcher, reads(metadata, covered), tolerance)
        read = [one for path, one in found.manifests.items() if path not in known]
        self._check(Size.of(read, len(found.lists), threads=ctx.settings.read_threads))
        self._add(small_files(metadata, history, found, _ANY_SPELLING))
        wanted = [(path, read_limit(one, limit)) for path, one in found.manifests.items() if path not in known]
        self._add(all_entries(fetcher, found.manifests, wanted, tolerance))
        self.manifests = frozenset(found.manifests)

    def add_others(self) -> None:
        """Add what other live tables name; raise LocationShared, AreaLeftAlone, NeighbourUnreadable, NeighbourChanged.

        An exempted table never counts as read: every file in its last known areas stays.
        """
        ctx, unread, once = self._ctx, UnreadNeighbours(self._ctx), ReadOnce()
        equal, here = ctx.options.equal, Roots([self._root.uri])
        others = iter(ctx.neighbours(here))
        # The first one comes when the references are known: until then the catalog is asked for nothing.
        first = list(islice(others, 1))
        check_alone(self._root, ctx.places(), equal)
        near: list[Neighbour] = []
        checked: list[CheckedNeighbour] = []
        for one in chain(first, others):
            if isinstance(one, NeighbourUnreadable):
                self._take_unreadable(one)
                continue
            if is_itself(ctx, one):
                continue
            if one.former:
                near += [one] if is_near(here, one) else []
                continue
            if one.exempt:
                self._leave(one.areas or (one.table.location,), str(one.table.identifier))
            overlaps = is_near(here, one)
            metadata = metadata_of_neighbour(one)
            checked.append(
                CheckedNeighbour(
                    identifier=str(one.table.identifier),
                    metadata_location=one.table.metadata_location,
                    overlaps=overlaps,
                    table_uuid=one.table.table_uuid,
                )
            )
            check_alone(self._root, [Place("table", str(one.table.identifier), metadata.location)], equal)
            if overlaps and not one.exempt:
                near.append(one)
        for neighbour in near:
            self._add(reach_of_neighbour(ctx, neighbour, unread, once))
        self.checked = tuple(checked)

    def add_claims(self) -> None:
        """Add what plans of unfinished tasks have of this location.

        Raises LocationShared for a task of another table there that has no plan yet, ClaimUnknown for one whose plan is
        lost, and PlanTampered.
        """
        here = Roots([self._root.uri])
        for claim in self._ctx.claims():
            index = self._index_of(claim)
            if index is None:
                continue
            if FileType.ORPHAN.value in index.counts:
                continue  # two removals at once may find the same orphans, and either may delete them
            if here.overlaps(Roots((*index.roots, *index.taken))):
                paths = planned_paths(self._ctx.plans, [index], tuple(Phase))
                self._add((path, 0, 0) for path in paths)

    def _index_of(self, claim: Claim) -> PlanIndex | None:
        """Return the plan of an unfinished task, None if it has none that concerns this location."""
        is_here = overlap(claim.location, self._root.uri, self._ctx.options.equal)
        if claim.segment is None:
            if is_here and claim.table_uuid != self._ctx.table_uuid.lower():
                raise LocationShared(self._root.uri, f"the table of an unfinished {claim.what}", claim.location)
            return None
        try:
            return load_index(self._ctx.plans, claim.segment)
        except PlanLost as error:
            if is_here:
                raise ClaimUnknown(claim.what, claim.segment.id) from error
            return None

    def _add(self, rows: Iterable[Row]) -> None:
        equal, left = self._ctx.options.equal, iter(rows)
        while some := [path for path, _, _ in islice(left, _AT_A_TIME)]:
            self._files.extend([(text, 0, 0) for text in joined_all(some, equal)])

    def _take_unreadable(self, one: NeighbourUnreadable) -> None:
        if one.is_other_format:
            places = [Place("table of another format", one.who, area) for area in one.areas]
            check_alone(self._root, places, self._ctx.options.equal)
        elif one.exempt and one.areas:
            self._leave(one.areas, one.who)
        else:
            raise one

    def _leave(self, areas: Iterable[str], who: str) -> None:
        here = self._root.uri
        for area in areas:
            if here.startswith(area):
                raise AreaLeftAlone(here, who)
            if area.startswith(here):
                self.left = Roots((*self.left.uris, area))
