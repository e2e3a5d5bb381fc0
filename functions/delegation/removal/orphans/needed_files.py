"""What is needed at a location: by the table itself, by other live tables, and by the plans of unfinished tasks."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain, islice
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.history import read_history
from delegation.iceberg.metadata import FormerMetadata, ParsedMetadata, parse_metadata
from delegation.iceberg.paths import FileType
from delegation.iceberg.reach import Fetcher, read_manifest_lists
from delegation.polaris.model import LoadedTable
from delegation.removal.choice import Size
from delegation.removal.errors import NeighbourUnreadable, PlanTampered
from delegation.removal.foreign.metadata import HeadsRead, SeenFile
from delegation.removal.foreign.tables import METADATA_UNREADABLE, OwnTable, find_foreign
from delegation.removal.index import SAMPLE, CheckedNeighbour, Finding, PlanIndex, load_index
from delegation.removal.neighbourhood import LENIENT_PATHS, Neighbour
from delegation.removal.neighbours import SAME_TABLE, is_itself, is_overlapping, look_at_neighbours, small_files
from delegation.removal.neighbours import metadata_of as metadata_of_neighbour
from delegation.removal.orphans.context import Claim, OrphanContext
from delegation.removal.orphans.errors import (
    AreaLeftAlone,
    LocationShared,
    claim_unknown,
    commits_too_frequent,
    places_unknown,
    record_unreadable,
)
from delegation.removal.orphans.foreign import IN_USE, ForeignAtLocation, is_settled, signs_now
from delegation.removal.orphans.index import Candidate, ForeignPart, OrphanIndex
from delegation.removal.orphans.needed_rows import ANY_SPELLING, OWN_FILES, NeededSet, StoredParts
from delegation.removal.orphans.place import Equal, Place, age_in, check_alone, overlap
from delegation.removal.orphans.subtraction import Orphans, Rules
from delegation.removal.path_guard import covered_roots, reads
from delegation.storage.locations import LOCAL, Root, Roots, parse

_MOST_LOOKS: Final = 3
"""Listings of the signs of tables while their metadata files disappear."""


def metadata_of(table: LoadedTable) -> ParsedMetadata:
    """Return a table's parsed metadata. Raises CorruptMetadata, GuardRefused (UNSUPPORTED_FORMAT_VERSION)."""
    return parse_metadata(table.metadata_location, table.metadata)


class NeededAtLocation:
    """Decides what is needed, and compares it with candidates; an engine's `needed` collects it. Use it as a context
    manager.

    `left` are areas at the location in which every file stays. `named` are the manifests of the table whose entries are
    in it, and its files that no manifest names. `age` is the longest minimum age of the added tables: each may write
    files there that it commits later. `foreign` are the tables there that no catalog lists, except those that an
    approval has `included`. `check` is called with the size of what is to be read, and may raise.
    """

    def __init__(
        self, ctx: OrphanContext, root: Root, needed: NeededSet, check: Callable[[Size], object] = lambda _size: None
    ) -> None:
        self._ctx = ctx
        self._check = check
        self._root = root
        self._needed = needed
        self.checked: tuple[CheckedNeighbour, ...] = ()
        self.left = Roots(())
        # A plan named in the request is executed with its own age.
        self.age = timedelta(0) if ctx.options.execute_plan else ctx.options.older_than
        self.named: frozenset[str] = frozenset()
        self._manifests: frozenset[str] = frozenset()
        self.foreign: ForeignAtLocation | None = None
        self.included: frozenset[str] = frozenset()
        self.findings: tuple[Finding, ...] = ()
        self._known: list[str] = []

    def __enter__(self) -> "NeededAtLocation":
        return self

    def __exit__(self, *_: object) -> None:
        self._needed.close()

    def subtracted(self, parts: StoredParts, plan_id: str, index: OrphanIndex) -> Orphans:
        """Store the candidates that nothing needs as chunks of a plan, after all is added; see NeededSet.subtracted.
        Candidates that were younger than `age` at the listing of `index` stay."""
        age = self.seconds
        return self._needed.subtracted(parts, plan_id, self._rules(index.listed_at - age if age > index.age else None))

    @property
    def seconds(self) -> int:
        """The age in whole seconds."""
        return int(self.age.total_seconds())

    def needed_among(self, parts: StoredParts) -> Iterator[Candidate]:
        """Yield the candidates that are or may be needed, after all is added. Missing chunks are left out."""
        return chain.from_iterable(self._needed.needed_among(parts, self._rules()))

    def _rules(self, written_before: int | None = None) -> Rules:
        foreign = self._ctx.settings.delete.foreign
        return Rules(self._ctx.options.mismatch, self.left.uris, written_before, foreign)

    def add_table(
        self, table: LoadedTable, known: Collection[str] = (), former: dict[str, FormerMetadata] | None = None
    ) -> None:
        """Add all that the table names, without `known` files and what `known` lists and manifests name. `former`
        metadata files are not read again, and others are added to them.

        All entries of all snapshots count, including status DELETED, and every metadata file of the logs. Raises the
        error of anything that is missing, damaged, encrypted or not covered: then no file is known to be an orphan.
        """
        ctx, metadata = self._ctx, metadata_of(table)
        self._lengthen(table, metadata, "the table")
        fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
        limit = ctx.settings.max_file_bytes
        reached = read_manifest_lists(
            metadata, fetcher, limit=limit, readable=lambda path: path not in known, tolerance=OWN_FILES
        )
        covered = covered_roots(table, LENIENT_PATHS) if ctx.settings.vended else None
        history = read_history(metadata, fetcher, reads(metadata, covered), OWN_FILES, known=former)
        read = {path: manifest for path, manifest in reached.manifests.items() if path not in known}
        self._check(Size.of(read.values(), len(reached.lists), threads=ctx.settings.read_threads))
        self.named = frozenset(file.path for file in small_files(metadata, history, reached, ANY_SPELLING))
        self._needed.add_files(self.named.difference(known))
        self._needed.add_entries(read)
        self._manifests = frozenset(known).union(reached.manifests)
        self._known += [metadata.path, *(file.path for file in history.files if file.path not in history.foreign)]

    def add_foreign(
        self, table: LoadedTable, index: OrphanIndex, signs: Iterable[SeenFile], known: HeadsRead | None = None
    ) -> None:
        """Add what tables that no catalog lists need, by their signs; after all else is added. Of those that an
        approval includes, only recently written files stay. Raises LocationShared for a table of another format that
        has the table's own metadata, and OrphansError (COMMITS_TOO_FREQUENT) if tables' metadata files are replaced
        faster than they are read."""
        ctx, root, metadata = self._ctx, self._root, metadata_of(table)
        fold = partial(_in_store, equal=ctx.options.equal)
        before = index.listed_at - max(index.age, self.seconds)
        folders = {path.rpartition("/")[0] + "/" for path in self._known}
        folders |= {f"{location.rstrip('/')}/{name}" for location in metadata.locations for name in ("", "metadata/")}
        own = OwnTable(table.table_uuid, frozenset(map(fold, self._known)), _canonical(folders), before, fold)
        seen = list(signs)
        threads = ctx.settings.read_threads
        for looks in range(1, _MOST_LOOKS + 1):
            there = find_foreign(root.uri, seen, own, ctx.store, ctx.attempt.checkpoint, threads=threads, known=known)
            if not there.gone:
                break
            if looks == _MOST_LOOKS:
                raise commits_too_frequent(ctx.identifier, looks)
            seen = signs_now(ctx, root, seen)
        if there.uniform:
            raise LocationShared(root.uri, f"a {there.uniform} table with the same files (UniForm)", root.uri)
        self._needed.add_files(there.unreadable)
        if there.unreadable:
            count, sample = len(there.unreadable), there.unreadable[:SAMPLE]
            self.findings = (Finding(code=METADATA_UNREADABLE, count=count, sample=sample),)
        named = [table for table in there.tables if table.uuid in ctx.options.including]
        busy = {table.uuid for table in named if not is_settled(ctx, root, table, before)}
        self.included = frozenset(table.uuid for table in named) - busy
        stay = (table for table in there.tables if table.uuid not in self.included)
        tables, paths = dict(enumerate(stay, 1)), frozenset(file.path for file in seen)
        self.foreign = ForeignAtLocation(ctx, root, table, tables, paths, self._manifests)
        self._needed.add_foreign(self.foreign)

    def of_approval(self, part: ForeignPart) -> ForeignPart:
        """Return what stays for a table, and why, if an approval includes it."""
        busy = self.foreign is not None and part.uuid in self._ctx.options.including
        return part.model_copy(update={"why": IN_USE}) if busy else part

    def add_neighbours(self) -> None:
        """Add what other live tables name. An exempted table never counts as read: every file in its last known areas
        stays. Raises LocationShared, AreaLeftAlone, NeighbourUnreadable, NeighbourChanged."""
        ctx = self._ctx
        equal, here = ctx.options.equal, Roots([self._root.uri])
        neighbours = iter(ctx.neighbours(here))
        # The first neighbour comes when the references are known. Until then the catalog gets no requests.
        first = list(islice(neighbours, 1))
        check_alone(self._root, ctx.places(), equal)
        overlapping: list[Neighbour] = []
        checked: list[CheckedNeighbour] = []
        for neighbour in chain(first, neighbours):
            if isinstance(neighbour, NeighbourUnreadable):
                self._take_unreadable(neighbour)
                continue
            if is_itself(ctx, neighbour):
                continue
            if neighbour.former:
                overlapping += [neighbour] if is_overlapping(here, neighbour) else []
                self._known.append(neighbour.table.metadata_location)
                continue
            if neighbour.exempt:
                self._leave(neighbour.areas or (neighbour.table.location,), str(neighbour.table.identifier))
            overlaps = is_overlapping(here, neighbour)
            metadata = metadata_of_neighbour(neighbour)
            if overlaps:
                self._lengthen(neighbour.table, metadata, str(neighbour.table.identifier))
            checked.append(
                CheckedNeighbour(
                    identifier=str(neighbour.table.identifier),
                    metadata_location=neighbour.table.metadata_location,
                    overlaps=overlaps,
                    table_uuid=neighbour.table.table_uuid,
                )
            )
            place = Place("table", _name_of(ctx, neighbour), metadata.location)
            check_alone(self._root, [place], equal)
            if overlaps and not neighbour.exempt:
                overlapping.append(neighbour)
        for neighbour in overlapping:
            self._needed.add_neighbour(neighbour)
        self.checked = tuple(checked)

    def look_at_neighbours(self) -> None:
        """Raise what `add_neighbours` would find without reading the tables completely, before a job reads them."""
        look_at_neighbours(self._ctx, Roots([self._root.uri]), self._take_unreadable)

    def add_claims(self) -> None:
        """Add the files at this location in plans of unfinished tasks. Raises LocationShared for a task of another
        table there without a plan, OrphansError (CLAIM_UNKNOWN) for a lost or unreadable plan."""
        here = Roots([self._root.uri])
        for claim in self._ctx.claims():
            index = self._index_of(claim)
            if index is None:
                continue
            if FileType.ORPHAN.value in index.counts:
                continue  # two concurrent removals may find the same orphans, and either may delete them
            if here.overlaps(Roots((*index.roots, *index.taken))):
                self._needed.add_plan(index)

    def _index_of(self, claim: Claim) -> PlanIndex | None:
        """Return the plan of an unfinished task, None if it has none that concerns this location."""
        is_here = overlap(claim.location, self._root.uri, self._ctx.options.equal)
        if claim.unread:
            if is_here or not claim.location:
                raise record_unreadable(claim.what)
            return None
        if claim.segment is None:
            if is_here and claim.table_uuid != self._ctx.table_uuid.lower():
                raise LocationShared(self._root.uri, f"the table of an unfinished {claim.what}", claim.location)
            return None
        try:
            return load_index(self._ctx.plans, claim.segment)
        except PlanTampered as error:  # or written by a newer release
            if is_here:
                raise claim_unknown(claim.what, claim.segment.id) from error
            return None

    def _take_unreadable(self, unreadable: NeighbourUnreadable) -> None:
        if unreadable.is_other_format:
            if not unreadable.areas:
                raise places_unknown(f"the table of another format {unreadable.who}", None)
            places = [Place("table of another format", unreadable.who, area) for area in unreadable.areas]
            check_alone(self._root, places, self._ctx.options.equal)
        elif unreadable.exempt and unreadable.areas:
            self._leave(unreadable.areas, unreadable.who)
        else:
            raise unreadable

    def _lengthen(self, table: LoadedTable, metadata: ParsedMetadata, who: str) -> None:
        self.age = max(self.age, age_in(metadata.properties, who), self._ctx.asked_age(table))

    def _leave(self, areas: Iterable[str], who: str) -> None:
        here = self._root.uri
        for area in areas:
            if here.startswith(area):
                raise AreaLeftAlone(here, who)
            if area.startswith(here):
                self.left = Roots((*self.left.uris, area))


def _name_of(ctx: OrphanContext, neighbour: Neighbour) -> str:
    """Return a neighbour's name, and that it is the table itself if another catalog names that too."""
    identifier = neighbour.table.identifier
    same = neighbour.table.table_uuid == ctx.table_uuid and identifier.catalog != ctx.identifier.catalog
    return f"{identifier}, which is this table itself in another catalog ({SAME_TABLE})" if same else str(identifier)


def _in_store(path: str, equal: Equal) -> str:
    """Return one text for a key, unchanged, in all buckets that are equal."""
    try:
        where = parse(path)
    except GuardRefused:
        return path
    return where.key if where.bucket == LOCAL else f"{equal.prefix('s3', where.bucket)}/{where.key}"


def _canonical(folders: Iterable[str]) -> frozenset[str]:
    canonical_folders = set()
    for folder in folders:
        with suppress(GuardRefused):
            canonical_folders.add(Root.of(folder).uri)
    return frozenset(canonical_folders)
