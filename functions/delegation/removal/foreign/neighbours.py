"""The foreign tables beside a table's own metadata, whose files a purge and an expiry keep. One bounded listing of the
folders with the table's metadata files finds them (`removal.foreign.tables`). They are read like neighbours, with the
table's own credentials. What cannot be listed or read is a finding, and refuses nothing."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.history import read_history, version_of
from delegation.iceberg.metadata import (
    FormerMetadata,
    ParsedMetadata,
    parse_metadata,
)
from delegation.iceberg.paths import ALL_KINDS, Spelling
from delegation.iceberg.reach import Fetcher, Tolerance, Unreadable
from delegation.polaris.model import LoadedTable
from delegation.removal.context import RemovalContext
from delegation.removal.errors import NeighbourChanged
from delegation.removal.foreign.metadata import HeadsRead, ReadBounds, SeenFile, signs
from delegation.removal.foreign.tables import ForeignTable, OwnTable, find_foreign, heads_of
from delegation.removal.index import SAMPLE, Finding
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.neighbours import metadata_of, same_table
from delegation.storage.locations import FOREIGN_TABLE, Root, canonical, split, uri_of
from polaris_common.errors import DelegationError, printable

FOREIGN_NOT_KNOWN: Final = "FOREIGN_NOT_KNOWN"
"""The code of a finding: what tables that no catalog lists need is not completely known."""
PAGES: Final = 10
"""The maximum number of requests of the listing, each for 1,000 objects. Versions sort before most manifests."""
_FOLDERS: Final = 8
_BOUNDS: Final = ReadBounds(heads=200, files=100, size=64 * 1024 * 1024)
_HEAD_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all tables' metadata files that are read as neighbours."""
_ANY_AGE: Final = 2**62
_LENIENT: Final = Tolerance(lambda _path, _error: None, Spelling(ALL_KINDS))


class ForeignNeighbours:
    """The tables beside one table's metadata that no catalog lists; used once.

    `neighbours` are those that the catalog lists, and `own` the paths of the table's metadata files beside those that
    its logs name. `former` has what was read of former metadata files. Without `forks` every file with the table's uuid
    counts as the table's, because its history is unknown after some of its metadata files were deleted.
    """

    def __init__(
        self,
        ctx: RemovalContext,
        table: LoadedTable,
        neighbours: Sequence[Neighbour] = (),
        own: Iterable[str] = (),
        former: dict[str, FormerMetadata] | None = None,
        *,
        forks: bool = True,
    ) -> None:
        self._ctx = ctx
        self._table = table
        self._metadata = parse_metadata(table.metadata_location, table.metadata, experimental=True)
        self._neighbours = neighbours
        self._known = set(_canonical([self._metadata.path, *self._metadata.former, *own]))
        self._former = {} if former is None else former
        self._forks = forks
        self._folders: tuple[str, ...] = ()
        self._seen: frozenset[str] = frozenset()
        self._found: list[ForeignTable] = []
        self._problems: dict[str, None] = {}
        self._moved: bool | None = None

    def heads(self) -> Iterator[Neighbour]:
        """Yield the versions of such tables whose files stay, one at a time. Raises the retryable errors of the store,
        those of a checkpoint, and of loading the table."""
        seen = self._listed()
        self._seen, self._found = frozenset(file.path for file in seen), self._tables(seen)
        left = _HEAD_BYTES
        for table in self._found:
            if table.why:
                self._note(f"at {table.place}: {table.why}")
                continue
            heads = tuple(head for head in table.heads if head.size <= left)
            left -= sum(head.size for head in heads)
            if len(heads) < len(table.heads) or left < 0:
                self._note(f"{table.uuid} at {table.place}: its metadata files are larger than the limit")
            try:
                for neighbour in heads_of(replace(table, heads=heads), self._table, self._ctx.store):
                    metadata_of(neighbour)
                    yield replace(neighbour, unlisted=True, exempt=True)
            except DelegationError as error:
                if error.retryable:
                    raise
                self._note(f"{table.uuid} at {table.place}: it cannot be read ({error.code})")

    def unreadable_of(self, neighbour: Neighbour) -> Unreadable:
        """Return a function for errors in the files of one of these versions. It raises errors that a retry may
        resolve. A missing manifest names nothing that anybody can read, unless the table was committed to since the
        listing."""
        who = f"{neighbour.table.table_uuid} by {neighbour.table.metadata_location}"

        def unreadable(path: str, error: DelegationError) -> None:
            if error.retryable:
                raise error
            if not isinstance(error, ManifestMissing):
                self._note(f"{who}: {printable(path)} cannot be read ({error.code})")
            elif self._has_moved():
                raise NeighbourChanged(who, path) from error

        return unreadable

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of such tables, with the number of their metadata files, of what is unknown, and of
        neighbours that are the table itself in another catalog. A neighbour's metadata files that its log does not name
        are usually lost commits: they stay, and are not reported."""
        listed = {neighbour.table.table_uuid for neighbour in self._neighbours} - {self._table.table_uuid}
        tables = [table for table in self._found if table.uuid not in listed]
        files = sum(len(table.files) for table in tables)
        names = tuple(dict.fromkeys(f"{table.uuid} at {table.place}" for table in tables))
        foreign = [Finding(code=FOREIGN_TABLE, count=files, sample=names[:SAMPLE])] if files else []
        count, sample = len(self._problems), tuple(self._problems)[:SAMPLE]
        unknown = [Finding(code=FOREIGN_NOT_KNOWN, count=count, sample=sample)] if count else []
        return (*foreign, *unknown, *same_table(self._ctx, self._neighbours, self._metadata))

    def _note(self, problem: str) -> None:
        if len(self._problems) < _BOUNDS.heads:
            self._problems[problem] = None

    def _listed(self) -> list[SeenFile]:
        """List the folders of the table's metadata files within the bound; return the signs of tables there."""
        folders = {path.rpartition("/")[0] + "/" for path in self._known}
        with suppress(GuardRefused):
            folders.add(f"{Root.of(self._metadata.location).uri}metadata/")
        outer = [
            folder for folder in sorted(folders) if not any(folder != of and folder.startswith(of) for of in folders)
        ]
        self._folders = tuple(outer[:_FOLDERS])
        if len(outer) > _FOLDERS:
            self._note(f"{len(outer) - _FOLDERS} more folders with metadata files were not listed")
        return list(self._signs(self._note))

    def _signs(self, note: Callable[[str], object]) -> Iterator[SeenFile]:
        left = PAGES
        for folder in self._folders:
            bucket, prefix = split(folder)
            root = split(_above(folder))[1]
            after, is_last = "", False
            while not is_last and left:
                self._ctx.attempt.checkpoint()
                left -= 1
                try:
                    page = self._ctx.store.page(bucket, prefix, after=after)
                except DelegationError as error:
                    if error.retryable:
                        raise
                    note(f"{folder} cannot be listed ({error.code})")
                    break
                yield from signs(uri_of(bucket, ""), root, page.objects)
                is_last = page.is_last or not page.objects
                after = "" if is_last else page.objects[-1].key
            else:
                if not is_last:
                    note(f"{folder} has more objects than the limit ({PAGES:,},000 in all folders)")

    def _tables(self, seen: Sequence[SeenFile]) -> list[ForeignTable]:
        """Return such tables by their signs, without those that the catalog lists."""
        if not self._unknown(seen):
            return []
        for neighbour in self._neighbours:
            metadata = metadata_of(neighbour)
            self._learn(metadata, Fetcher(neighbour.store, threads=1, checkpoint=self._ctx.attempt.checkpoint))
        fetcher = Fetcher(self._ctx.store, threads=self._ctx.settings.read_threads, checkpoint=self._checkpoint)
        if self._unknown(seen):
            self._learn(self._metadata, fetcher)
        heads: HeadsRead = {}
        tables = self._searched(seen, heads)
        if any(table.uuid == self._table.table_uuid for table in tables):
            # Commits between the load and the listing look like a fork. A later load has them in its log.
            now = self._ctx.tables.load()
            metadata = parse_metadata(now.metadata_location, now.metadata, experimental=True)
            self._learn(metadata, fetcher)
            tables = self._searched(seen, heads)
        return tables

    def _searched(self, seen: Sequence[SeenFile], heads: HeadsRead) -> list[ForeignTable]:
        if not self._unknown(seen):
            return []
        ctx, tables = self._ctx, list[ForeignTable]()
        own = OwnTable(self._table.table_uuid, frozenset(self._known), frozenset(self._folders), young_from=_ANY_AGE)
        for folder in self._folders:
            mine = [file for file in seen if file.path.startswith(folder)]
            threads, root = ctx.settings.read_threads, _above(folder)
            there = find_foreign(
                root, mine, own, ctx.store, self._checkpoint, threads=threads, bounds=_BOUNDS, known=heads
            )
            tables += (table for table in map(self._without_history, there.tables) if table.why or table.heads)
            for path in there.unreadable:
                self._note(f"{printable(path)} cannot be read")
        return tables

    def _without_history(self, table: ForeignTable) -> ForeignTable:
        """Return a fork without versions older than the table's known history, because files in between may be gone."""
        if table.uuid != self._table.table_uuid:
            return table
        versions = [version.number for path in self._known if (version := version_of(path)) is not None]
        first = min(versions, default=0)
        heads = (head for head in table.heads if (version := version_of(head.path)) is None or version.number >= first)
        return replace(table, heads=tuple(heads) if self._forks else ())

    def _unknown(self, seen: Sequence[SeenFile]) -> bool:
        return any(file.path not in self._known and not file.path.endswith(".text") for file in seen)

    def _learn(self, metadata: ParsedMetadata, fetcher: Fetcher) -> None:
        """Add the metadata files of a table that the catalog lists, as far back as its logs lead."""
        self._known.update(_canonical([metadata.path, *metadata.former]))
        here = self._folders
        history = read_history(metadata, fetcher, lambda path: path.startswith(here), _LENIENT, known=self._former)
        self._known.update(file.path for file in history.files)

    def _has_moved(self) -> bool:
        """Return whether there are metadata files now that were not listed."""
        if self._moved is None:
            self._moved = any(file.path not in self._seen for file in self._signs(lambda _problem: None))
        return self._moved

    def _checkpoint(self) -> None:
        self._ctx.attempt.checkpoint()


def _above(folder: str) -> str:
    """Return the parent folder, or for a folder directly below the bucket the bucket."""
    bucket, prefix = split(folder)
    above = prefix[:-1].rpartition("/")[0]
    return uri_of(bucket, f"{above}/" if above else "")


def _canonical(paths: Iterable[str]) -> Iterator[str]:
    """Yield the canonical forms of paths. Paths that name no object are skipped: a listing shows none of them."""
    for path in paths:
        with suppress(GuardRefused):
            yield canonical(path)
