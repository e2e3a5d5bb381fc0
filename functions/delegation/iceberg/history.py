"""A table's former metadata files, and the locations that they name.

Each metadata file logs its predecessors (Iceberg Table Spec, Table Metadata Fields), so one file per full log is read:
the oldest, whose own log continues. If two files name the same locations, the files between them are assumed to name
them too; otherwise these are searched for the change. This holds for files of one directory named by successive
versions, as every writer names them (File System Tables and Metastore Tables). Other files, and their neighbours in the
log, are read. Files at a location that only an unread file names are kept and reported.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import MAX_METADATA_BYTES, FormerMetadata, ParsedMetadata, parse_former_metadata
from delegation.iceberg.paths import RANK, FileType, Spelling, TableFile
from delegation.iceberg.reach import STRICT, Fetcher, Tolerance
from polaris_common.errors import DelegationError

_NAME: Final = re.compile(r"(?:v(\d+)|(\d+)-[^/]+?)(?:\.gz)?\.metadata\.json(?:\.gz)?")

MOST_FOR_STATISTICS: Final = 200
"""The number of former metadata files of a log that are read for statistics. Iceberg keeps 100 files by default."""
_MOST_KNOWN: Final = 2_000
_LONGEST_KNOWN: Final = 1_000
"""The limits of `known`: its number of files, and the length of their logs."""


@dataclass(slots=True)
class History:
    """Former metadata files, those of another table (`foreign`), and former locations. Of `files`, those that were read
    (`reads`) have their size, the others 0. `statistics` are from the files read, each with its snapshot; the table may
    have replaced them."""

    files: list[TableFile] = field(default_factory=list)
    foreign: set[str] = field(default_factory=set)
    locations: list[str] = field(default_factory=list)
    reads: int = 0
    statistics: list[tuple[int | None, TableFile]] = field(default_factory=list)


class MetadataVersion(NamedTuple):
    """A metadata file's directory and version number, from its path."""

    directory: str
    number: int


class _Newer(NamedTuple):
    """The metadata file whose log contains a given run."""

    version: MetadataVersion | None
    locations: frozenset[str]


def read_history(
    metadata: ParsedMetadata,
    fetcher: Fetcher,
    covers: Callable[[str], bool],
    tolerance: Tolerance = STRICT,
    *,
    enough: Callable[[], bool] = lambda: False,
    known: dict[str, FormerMetadata] | None = None,
    statistics: bool = False,
) -> History:
    """Follow the metadata log back to its oldest file. No file is read twice, so cycles end.

    Files may be missing. Files that the credentials do not cover are not read. An unreadable file is returned without
    contents if `tolerance` accepts it. Locations in a file with another table's uuid are ignored, because they must not
    extend what may be deleted. `enough` may end the reading between two logs. `known` files are not read again, and
    files read are added to it: clones share most files. With `statistics`, and if any file names some, the newest
    MOST_FOR_STATISTICS files of each log are read: only they name replaced statistics.
    """
    reader = _FormerReader(metadata.table_uuid, fetcher, tolerance, {} if known is None else known)
    spelling = tolerance.spelling
    current = spelling.one(metadata.path)
    seen = {current}
    logs = deque([(metadata.former, _Newer(version_of(current), frozenset(metadata.locations)))])
    named: list[str] = []
    while logs and not enough():
        log, newer = logs.popleft()
        run = _unseen(log, seen, spelling)
        named.extend(run)
        readable = [path for path in run if covers(path)]
        logs.extend(_read_run(readable, newer, reader))
        has_some = metadata.statistics or metadata.partition_statistics
        if statistics and (
            has_some or any(former.statistics or former.partition_statistics for former in reader.own.values())
        ):
            reader.read(readable[-MOST_FOR_STATISTICS:])
    rank = RANK[FileType.FORMER_METADATA]
    files = [TableFile(path, rank, reader.sizes.get(path, 0)) for path in named]
    replaced = _statistics(reader.own.values(), spelling, covers) if statistics else []
    return History(files, reader.foreign, list(reader.locations), len(reader.sizes), replaced)


def _statistics(
    read: Iterable[FormerMetadata], spelling: Spelling, covers: Callable[[str], bool]
) -> list[tuple[int | None, TableFile]]:
    """Return the files' statistics, each once. Paths that are refused or not covered are skipped."""
    statistics: dict[tuple[int | None, TableFile], None] = {}
    for former in read:
        for kind, some in (
            (FileType.STATISTICS, former.statistics),
            (FileType.PARTITION_STATISTICS, former.partition_statistics),
        ):
            for each in some:
                with suppress(GuardRefused):
                    path = spelling.one(each.path)
                    if covers(path):
                        statistics[each.snapshot_id, TableFile(path, RANK[kind], each.size)] = None
    return list(statistics)


def _unseen(paths: Iterable[str], seen: set[str], spelling: Spelling) -> list[str]:
    fresh = []
    for written in paths:
        # Logs repeat each other, so nearly every path was seen before in this spelling.
        if written not in seen and (path := spelling.one(written)) not in seen:
            seen.add(path)
            fresh.append(path)
    return fresh


def version_of(path: str) -> MetadataVersion | None:
    """Return the version in a metadata file's name, None if it has none."""
    directory, _, name = path.rpartition("/")
    match = _NAME.fullmatch(name)
    return None if match is None else MetadataVersion(directory, int(match[1] or match[2]))


class _FormerReader:
    """Reads former metadata files, each once. `own` has the readable ones of the table."""

    def __init__(
        self, table_uuid: str, fetcher: Fetcher, tolerance: Tolerance, known: dict[str, FormerMetadata]
    ) -> None:
        self._known = known
        self._table_uuid = table_uuid
        self._fetcher = fetcher
        self._tolerance = tolerance
        self.own: dict[str, FormerMetadata] = {}
        self.sizes: dict[str, int] = {}
        self.foreign: set[str] = set()
        self.locations: dict[str, None] = {}

    def read(self, paths: Iterable[str]) -> None:
        """Read the files that are not yet read, several at a time."""
        wanted = [path for path in dict.fromkeys(paths) if path not in self.sizes]
        for path in (path for path in wanted if path in self._known):
            self.sizes[path] = 0
            self._keep(path, self._known[path])
        wanted = [path for path in wanted if path not in self.sizes]
        for path, content in self._fetcher.fetch((path, MAX_METADATA_BYTES) for path in wanted):
            self.sizes[path] = len(content) if isinstance(content, bytes) else 0
            if content is not None:
                self._parse(path, content)

    def is_own(self, path: str) -> bool:
        """Read a file; return whether it is the table's."""
        self.read([path])
        return path in self.own

    def locations_of(self, path: str) -> frozenset[str] | None:
        """Return a file's locations, None if it was not read or belongs to another table."""
        return frozenset(self.own[path].locations) if path in self.own else None

    def _parse(self, path: str, content: bytes | DelegationError) -> None:
        try:
            if not isinstance(content, bytes):
                raise content
            former = parse_former_metadata(path, content)
        except DelegationError as error:
            self._tolerance.unreadable(path, error)
            return
        if len(self._known) < _MOST_KNOWN and len(former.former) <= _LONGEST_KNOWN:
            self._known[path] = former
        self._keep(path, former)

    def _keep(self, path: str, former: FormerMetadata) -> None:
        if former.table_uuid not in (None, self._table_uuid):
            self.foreign.add(path)
            return
        self.own[path] = former
        self.locations.update(dict.fromkeys(former.locations))


@dataclass(slots=True)
class _Series:
    """Files of one directory with successive versions, oldest first. `top` are the next file's locations, if known."""

    paths: list[str]
    top: frozenset[str] | None

    @property
    def ends(self) -> list[str]:
        return [self.paths[0]] if self.top is not None else [self.paths[0], self.paths[-1]]


def _read_run(run: Sequence[str], newer: _Newer, reader: _FormerReader) -> list[tuple[tuple[str, ...], _Newer]]:
    """Read the necessary files of a log. Returns the logs of the files read, oldest first."""
    series, others = _series_of(run, newer)
    reader.read([*others, *(path for version_series in series for path in version_series.ends)])
    for version_series in series:
        _search(version_series, reader)
    read = [path for path in run if path in reader.own]
    return [(reader.own[path].former, _Newer(version_of(path), frozenset(reader.own[path].locations))) for path in read]


def _series_of(run: Sequence[str], newer: _Newer) -> tuple[list[_Series], list[str]]:
    """Return the series of a log, and the files whose names have no version."""
    series: list[_Series] = []
    others: list[str] = []
    above, top = newer.version, newer.locations
    for path in reversed(run):
        version = version_of(path)
        if version is None:
            others.append(path)
            continue
        precedes = above is not None and above == (version.directory, version.number + 1)
        if not series or not precedes:
            series.append(_Series([], top if precedes else None))
        series[-1].paths.append(path)
        above = version
    for version_series in series:
        version_series.paths.reverse()
    return series, others


def _search(series: _Series, reader: _FormerReader) -> None:
    """Read the oldest existing file, and the files around each change of locations."""
    paths, end = series.paths, len(series.paths)
    known = {at: where for at, path in enumerate(paths) if (where := reader.locations_of(path)) is not None}
    if series.top is not None:
        known[end] = series.top
    if not known:
        reader.read(paths)
        return
    if 0 not in known:
        # The oldest files expire first.
        absent, oldest = 0, min(known)
        while oldest - absent > 1:
            middle = (absent + oldest) // 2
            if reader.is_own(paths[middle]):
                oldest = middle
            else:
                absent = middle
        if oldest < end:
            known[oldest] = frozenset(reader.own[paths[oldest]].locations)
    between = list(pairwise(sorted(known)))
    while changes := [(low, high) for low, high in between if high - low > 1 and _differ(known, low, high)]:
        middles = [(low + high) // 2 for low, high in changes]
        reader.read(paths[middle] for middle in middles)
        for middle in middles:
            where = reader.locations_of(paths[middle])
            if where is not None:
                known[middle] = where
        between = [
            pair
            for (low, high), middle in zip(changes, middles, strict=True)
            for pair in ((low, middle), (middle, high))
        ]


def _differ(known: Mapping[int, frozenset[str]], low: int, high: int) -> bool:
    """Return whether two files name different locations. An unreadable file differs from every other."""
    return low not in known or known.get(low) != known.get(high)
