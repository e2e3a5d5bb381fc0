"""Foreign tables, which no catalog lists, found by the metadata files below a location.

These are tables that are unregistered, dropped with their name or location used again, in a second catalog or an
engine's own catalog (path tables), or hidden, and tables of other formats. A listing shows their metadata files
(`metadata.signs`). Only files that are not known to be the table's own are read, within bounds (`ReadBounds`).

*Another uuid* is another table: its newest three versions stay, and each file that no other file's log names. *The same
uuid* is a fork if a file outside the table's own log names another one as a predecessor: a second registration with
commits. A single file is a lost commit and protects nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from delegation.errors import GuardRefused
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.history import read_history, version_of
from delegation.iceberg.metadata import TABLE_UUID, decode_metadata, parse_metadata
from delegation.iceberg.paths import ALL_KINDS, Spelling
from delegation.iceberg.reach import Tolerance, Unreadable, is_whole_otherwise
from delegation.polaris.model import LoadedTable, with_uuid
from delegation.removal.foreign.metadata import (
    FORMATS,
    HINT,
    LARGEST,
    HeadsRead,
    MetadataHead,
    MetadataReads,
    ReadBounds,
    SeenFile,
    location_of,
)
from delegation.removal.neighbourhood import Neighbour
from delegation.storage.base import ObjectNotFound
from delegation.storage.listing.model import ListableStore
from delegation.storage.locations import canonical
from polaris_common.errors import DelegationError

_USUAL_BOUNDS: Final = ReadBounds()
METADATA_UNREADABLE: Final = "METADATA_UNREADABLE"
"""The code of a finding: metadata files beside the table's own cannot be read, and were kept."""
_NEWEST: Final = 3
_MOST_TABLES: Final = 1_000
_BY_PATH: Final = re.compile(r"(?:^|/)v(\d{1,18})(?:\.gz)?\.metadata\.json(?:\.gz)?\Z", re.ASCII)


def _canonical(path: str) -> str:
    try:
        return canonical(path)
    except GuardRefused:
        return path


@dataclass(frozen=True, slots=True)
class OwnTable:
    """The table at the location: its uuid, and the metadata files of its known history or in the catalog. `fold`
    returns one text for all spellings of a path, and `known` has such texts. `folders` are those of its metadata. Files
    written at `young_from` or later, in seconds since 1970, may belong to a commit in progress."""

    table_uuid: str
    known: frozenset[str]
    folders: frozenset[str]
    young_from: int
    fold: Callable[[str], str] = _canonical


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table that no catalog lists. What its `heads` reach stays, and so do all its metadata `files`. `place` is the
    folder above its metadata, with a trailing slash, at or below the location. With `why` the table is not read, and
    everything at the place stays. An unknown uuid is replaced by one made from the place."""

    uuid: str
    place: str
    heads: tuple[SeenFile, ...] = ()
    files: tuple[SeenFile, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class FoundForeign:
    """The foreign tables at a location. `unreadable` are metadata files in the table's own folder, each of which stays.
    `uniform` names the other format whose root has the table's own metadata. With `gone` a file disappeared before it
    was read: list the signs again, because a table may have newer files."""

    tables: tuple[ForeignTable, ...] = ()
    unreadable: tuple[str, ...] = ()
    uniform: str = ""
    gone: bool = False


def find_foreign(
    root: str,
    seen: Iterable[SeenFile],
    own: OwnTable,
    store: ListableStore,
    checkpoint: Callable[[], None],
    *,
    threads: int = 8,
    bounds: ReadBounds = _USUAL_BOUNDS,
    known: "HeadsRead | None" = None,
) -> FoundForeign:
    """Return the tables at a location (canonical, with a trailing slash) by the signs in its whole listing. `known`
    heads are not read again. Raises the store's retryable errors and those of `checkpoint`."""
    return _ForeignSearch(
        root, own, MetadataReads(store, checkpoint, threads, bounds, {} if known is None else known)
    ).run(seen)


@dataclass(slots=True)
class _ForeignGroup:
    """The files of one uuid in one folder. `tips` are those that no other file's log names, of the files read."""

    tips: list[SeenFile] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    why: str = ""


class _ForeignSearch:
    def __init__(self, root: str, own: OwnTable, reads: MetadataReads) -> None:
        self._root = root
        self._own = own
        self._reads = reads
        self._off: list[tuple[SeenFile, MetadataHead]] = []
        self._tables: list[ForeignTable] = []
        self._unreadable: list[str] = []
        self._whole: dict[str, tuple[str, list[SeenFile]]] = {}
        self._gone = False

    def run(self, seen: Iterable[SeenFile]) -> FoundForeign:
        folders: dict[str, list[SeenFile]] = {}
        hints: dict[str, SeenFile] = {}
        for seen_file in seen:
            if seen_file.path.endswith("/"):
                above, _, name = seen_file.path[:-1].rpartition("/")
                if any(f"{above}/" == self._root or own.startswith(f"{above}/") for own in self._own.folders):
                    return FoundForeign(uniform=FORMATS[name])
                why = f"it is a table of {FORMATS[name]}, which the service does not read"
                self._leave(f"{above}/", why, [seen_file])
            elif seen_file.path.endswith(f"/{HINT}"):
                hints[seen_file.folder] = seen_file
            elif self._own.fold(seen_file.path) not in self._own.known:
                folders.setdefault(seen_file.folder, []).append(seen_file)
        for folder, files in sorted(folders.items()):
            self._search(folder, files, hints.get(folder))
        self._add_forks()
        tables = [*self._tables]
        for place, (why, files) in self._whole.items():
            tables.append(ForeignTable(str(uuid5(NAMESPACE_URL, place)), place, files=tuple(files), why=why))
        if len(tables) > _MOST_TABLES:
            here = str(uuid5(NAMESPACE_URL, self._root))
            files = [file for table in tables for file in table.files]
            tables = [
                ForeignTable(here, self._root, files=tuple(files), why=f"more than {_MOST_TABLES:,} tables are there")
            ]
        return FoundForeign(tuple(tables), tuple(self._unreadable), gone=self._gone)

    def _leave(self, place: str, why: str, files: Iterable[SeenFile]) -> None:
        self._whole.setdefault(place, (why, []))[1].extend(files)

    def _search(self, folder: str, files: list[SeenFile], hint: SeenFile | None) -> None:
        """Read files of a folder, newest first, without those that the logs of newer ones name."""
        fold, groups = self._own.fold, dict[str, _ForeignGroup]()
        files.sort(key=lambda file: (_number(file), file.modified), reverse=True)
        left, most = files[::-1], 2 * _NEWEST
        while left:
            some: list[SeenFile] = []
            while left and len(some) < most:
                file = left.pop()
                if not any(fold(file.path) in group.named for group in groups.values()):
                    some.append(file)
            most = min(2 * most, 128)
            if self._reads.heads < len(some) or self._reads.files < 0:
                self._leave(self._above(folder), "it has more metadata files than the limit", files)
                break
            for file, head in zip(some, self._reads.heads_of(some), strict=True):
                self._take(file, head, groups)
        for uuid, group in groups.items():
            self._tables.append(self._table(folder, uuid, group, files, hint))

    def _take(self, file: SeenFile, head: MetadataHead, groups: dict[str, _ForeignGroup]) -> None:
        if head.gone:
            self._gone = True
        elif head.uuid is None or (not head.uuid and file.folder not in self._own.folders):
            self._set_aside(file)
        elif not head.uuid or head.uuid == self._own.table_uuid:
            # A file without a uuid beside the table's own may be the table's. Lost commits of a busy table are many,
            # and take one request each.
            self._reads.heads += 1
            self._off.append((file, head))
        else:
            self._reads.files -= 1
            group = groups.setdefault(head.uuid, _ForeignGroup())
            if self._own.fold(file.path) not in group.named:
                group.tips.append(file)
                self._follow(file, group)

    def _set_aside(self, file: SeenFile) -> None:
        """Keep an unreadable file: alone in the table's own folder, elsewhere with everything around it."""
        if file.folder not in self._own.folders:
            self._leave(self._above(file.folder), f"its metadata file {file.path} cannot be read", [file])
        elif file.modified < self._own.young_from:
            self._unreadable.append(file.path)

    def _follow(self, file: SeenFile, group: _ForeignGroup) -> None:
        """Add the predecessors of a file. Unreadable ones are read as files of their own."""
        try:
            data = self._reads.read(location_of(file), limit=LARGEST)
            metadata = parse_metadata(file.path, decode_metadata(file.path, data), experimental=True)
        except ObjectNotFound:
            self._gone = True
            return
        except DelegationError as error:
            if error.retryable:
                raise
            group.why = f"its metadata file {file.path} cannot be read"
            return
        lenient = Tolerance(lambda _path, _error: None, Spelling(ALL_KINDS))
        history = read_history(metadata, self._reads.fetcher(), lambda path: path.startswith(self._root), lenient)
        group.named.update(self._own.fold(former.path) for former in history.files)

    def _table(
        self, folder: str, uuid: str, group: _ForeignGroup, files: Sequence[SeenFile], hint: SeenFile | None
    ) -> ForeignTable:
        tips = set(group.tips)
        mine = [file for file in files if file in tips or self._own.fold(file.path) in group.named]
        # Concurrent writers may write one version several times, so the newest three files may all be lost commits.
        newest = sorted({_number(file) for file in mine}, reverse=True)[:_NEWEST]
        wanted = {*newest, *([] if hint is None else [self._hinted(hint)])}
        heads = tuple(file for file in mine if file in tips or _number(file) in wanted)
        place = self._above(folder)
        if not TABLE_UUID.fullmatch(uuid):
            uuid = str(uuid5(NAMESPACE_URL, f"{place} {uuid}"))
        return ForeignTable(uuid, place, heads, (*mine, *([] if hint is None else [hint])), why=group.why)

    def _hinted(self, hint: SeenFile) -> int:
        try:
            text = self._reads.text(hint).strip()
        except DelegationError as error:
            if error.retryable:
                raise
            return -1
        return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else -1

    def _add_forks(self) -> None:
        """Add the files with the table's own uuid of which one names another, for each of their folders. Also a single
        file of a commit by path, which replaces no file: a reader by path takes it as the newest."""
        fold = self._own.fold
        newest = max(map(_path_version, self._own.known), default=-1)
        off = {fold(file.path): (file, head) for file, head in self._off}
        logs: dict[str, set[str]] = {}
        for text, (file, head) in off.items():
            try:
                logs[text] = {fold(path) for path in self._reads.log_of(file, head)} & off.keys() - {text}
            except ObjectNotFound:
                self._gone = True
            except DelegationError as error:
                if error.retryable:
                    raise
                self._set_aside(file)
        named = set(chain.from_iterable(logs.values()))
        of_folder: dict[str, _ForeignGroup] = {}
        for text in (text for text in off if text in named or logs.get(text) or _path_version(text) > newest):
            group = of_folder.setdefault(off[text][0].folder, _ForeignGroup())
            if text in named:
                group.named.add(text)
            else:
                group.tips.append(off[text][0])
        for folder, group in of_folder.items():
            here = [file for file, _ in self._off if file.folder == folder]
            self._tables.append(self._table(folder, self._own.table_uuid, group, here, None))

    def _above(self, folder: str) -> str:
        """Return the parent folder, at or below the location."""
        above = folder[:-1].rpartition("/")[0] + "/"
        return above if above.startswith(self._root) else self._root


def _number(file: SeenFile) -> int:
    version = version_of(file.path)
    return -1 if version is None else version.number


def _path_version(path: str) -> int:
    """Return the version of a file as named by HadoopTables, -1 for other names."""
    match = _BY_PATH.search(path)
    return -1 if match is None else int(match[1])


class UnreadForeign:
    """Decides on unreadable files of foreign tables, in place of UnreadNeighbours. `numbers` maps each head's path to
    its table's number, and `why` gets for a number why everything at the table's place stays. A missing manifest names
    nothing that anybody can read, unless the table was committed to since the listing, which `moved` returns."""

    def __init__(self, numbers: Mapping[str, int], moved: Callable[[int], bool]) -> None:
        self._numbers = numbers
        self._moved = moved
        self._missing: dict[int, bool] = {}
        self.why: dict[int, str] = {}

    def accepts(self, *, exempt: bool = False) -> bool:  # noqa: ARG002 - as UnreadNeighbours has it
        return True

    def note_former(self, path: str) -> None:
        """Accept an unreadable former metadata file: nothing that only it names belongs to its table."""

    def note_differing(self, who: str, path: str) -> None:
        """Accept a manifest that differs from its list's description. All that it names stays."""

    def of(self, neighbour: Neighbour) -> Unreadable:
        """Return a function for errors in the files of a head."""
        number = self._numbers[neighbour.table.metadata_location]

        def unreadable(path: str, error: DelegationError) -> None:
            if is_whole_otherwise(error):
                return
            if error.retryable:
                raise error
            if isinstance(error, ManifestMissing):
                if number not in self._missing:
                    self._missing[number] = self._moved(number)
                if not self._missing[number]:
                    return
            self.why.setdefault(number, f"its file {path} cannot be read ({error.code})")

        return unreadable


def heads_of(table: ForeignTable, like: LoadedTable, store: ListableStore) -> Iterator[Neighbour]:
    """Yield the versions of a foreign table whose files stay, one at a time, with the credentials of the table `like`.
    Raises CorruptMetadata, FileTooLarge and the errors of the store."""
    for head in table.heads:
        data = store.read(location_of(head), limit=LARGEST)
        metadata = with_uuid(decode_metadata(head.path, data), like.identifier.catalog, head.path)
        loaded = replace(like, metadata_location=head.path, metadata=metadata, etag=None)
        yield Neighbour(loaded, store, certain=True)
