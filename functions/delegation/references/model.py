"""The reference index's records: the areas of storage with the files of each live table. A table's areas are its
current and former locations and the directories of files outside them, folded into a few parents. They cover all its
files and more; the manifests decide whether a file is really shared. An area is a canonical directory URI with a
trailing slash, at least a bucket, except EVERYWHERE, which contains all buckets.

Lost refs are refs that an expiry's commit removed without a plan. Their files stay until the refs are restored.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import ManifestMissing
from delegation.identifiers import TableIdentifier
from delegation.references import LOST_REFS
from delegation.storage.locations import LOCAL, Root, split, uri_of

EVERYWHERE: Final = ""
"""The area of a table whose areas do not fit into an entry. Every purge loads and compares such a table."""
MOST_AREAS: Final = 64
LONGEST_AREA_BYTES: Final = 700
"""Leaves room for the table's name in a DynamoDB sort key of 1,024 bytes. Includes the bucket's name."""
LONGEST_BUCKET: Final = 255
"""63 characters, but 255 in us-east-1 before 2018 and in other servers (Amazon S3 User Guide, "Bucket naming rules").
No S3 client sends a request for a longer name."""
LONGEST_KEY_BYTES: Final = 1_024
"""Amazon S3 User Guide, "Naming Amazon S3 objects"."""


def areas_of(locations: Iterable[str], outside: Iterable[str], *, most: int = MOST_AREAS) -> tuple[str, ...]:
    """Return the areas of a table with these locations and these canonical paths of files outside them. Leaves out
    locations in storage where no purge deletes (another scheme, a refused path)."""
    roots = set()
    for location in locations:
        try:
            roots.add(Root.of(location).uri)
        except GuardRefused:
            continue
    return fold({*roots, *map(directory_of, outside)}, most=most)


def directory_of(path: str) -> str:
    """Return the directory of a canonical path, canonical and with a trailing slash."""
    bucket, key = split(path)
    return uri_of(bucket, key[: key.rfind("/") + 1])


def parent_of(area: str) -> str:
    """Return the parent of an area. A bucket and EVERYWHERE are their own parents. A key may have empty components: the
    parent of `a//` is `a/`."""
    if area == EVERYWHERE:
        return area
    bucket, key = split(area)
    return uri_of(bucket, key[: key.rfind("/", 0, -1) + 1])


def may_exist(area: str) -> bool:
    """Whether an object can be in an area, by the longest allowed bucket names and object keys."""
    bucket, key = split(area)
    return bucket == LOCAL or (len(bucket) <= LONGEST_BUCKET and len(key.encode()) <= LONGEST_KEY_BYTES)


def fold(areas: Iterable[str], *, most: int = MOST_AREAS) -> tuple[str, ...]:
    """Return at most `most` areas that cover these, without nested areas and those that can contain no object. Replaces
    the deepest areas by their parents first, by whole buckets last. More buckets than `most` become EVERYWHERE."""
    left = _outermost(_short(area) for area in set(areas) if may_exist(area))
    if len(left) <= most:
        return tuple(left)
    # The number of areas grows with the depth, so bisection finds the greatest depth with few enough.
    few, many = _BUCKET_SLASHES, max(area.count("/") for area in left)
    if len(best := _cut_to(few, left)) > most:
        return (EVERYWHERE,)
    while many - few > 1:
        depth = (few + many) // 2
        cut = _cut_to(depth, left)
        if len(cut) <= most:
            few, best = depth, cut
        else:
            many = depth
    return tuple(best)


_BUCKET_SLASHES: Final = 3


def _cut_to(depth: int, areas: list[str]) -> list[str]:
    """Return these areas, cut to at most `depth` slashes."""
    return _outermost(
        area if area.count("/") <= depth else "/".join(area.split("/", depth)[:depth]) + "/" for area in areas
    )


def _short(area: str) -> str:
    while len(area.encode()) > LONGEST_AREA_BYTES:
        area = parent_of(area)
    return area


def _outermost(areas: Iterable[str]) -> list[str]:
    outermost: list[str] = []
    for area in sorted(set(areas)):
        if not outermost or not area.startswith(outermost[-1]):
            outermost.append(area)
    return outermost


def around(area: str) -> tuple[str, ...]:
    """Return an area and all areas that contain it, the bucket last."""
    areas = [area]
    while (parent := parent_of(areas[-1])) != areas[-1]:
        areas.append(parent)
    return tuple(areas)


def overlap(area: str, other: str) -> bool:
    return area.startswith(other) or other.startswith(area)


SERVES_FOR: Final = timedelta(hours=1)
"""A pass serves purges for this long after its start; a long pass for half of this after its end."""
CONTINUED_FOR: Final = timedelta(hours=6)
"""An interrupted pass is continued for this long after its start. Then a new pass starts."""
LONGEST_PAUSE: Final = timedelta(seconds=60)
MOST_SEEN: Final = 20_000
"""Digests kept for one table (160 KB of an item's 400 KB). Other manifests are read again when the table changes."""
MOST_DISPLACED: Final = 100
"""Tables kept that had one name in one pass. An entry with more also has the uuid "", which no table has."""
UNANSWERED_PASSES: Final = 3
"""A table counts as unreadable after this many passes in which it gave no answer while others did."""
MOST_UNREAD: Final = 4_000
"""Unreadable files of a table that an entry lists. Growth beyond this number is not noticed."""
LONGEST_TEXT: Final = 1_000
LONGEST_LOCATION: Final = 4_096


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table as last read.

    `areas` and `seen` (digests of the manifests read) belong to `metadata_location`, the last one read completely, ""
    for none. `problem` is why the table has been unreadable since `problem_since`. `problem_location` is then its
    current metadata location, None if it could not be loaded; `areas` also has what could be read since. `revision` is
    that of the stored entry that it follows, 0 for none. `displaced` are uuids of tables that had this name earlier in
    the same pass and may have another now. Their areas stay here until the next pass. An `absent` entry had no table
    under its name at the end of a pass; the next pass that finds none removes it. A `cloned` entry had the uuid of
    another name's table when this name was read again, so some areas may be the clone's. `unanswered` are the numbers
    of passes in which it got no answer although the catalog answered for others. `unread` are digests of the unreadable
    manifest lists and manifests of a table with readable metadata, None if they are not known one by one.
    """

    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str
    areas: tuple[str, ...] = ()
    etag: str | None = None
    seen: frozenset[bytes] = frozenset()
    problem: str | None = None
    revision: int = 0
    problem_location: str | None = None
    problem_since: datetime | None = None
    displaced: frozenset[str] = frozenset()
    absent: bool = False
    cloned: bool = False
    unanswered: tuple[int, ...] = ()
    unread: frozenset[bytes] | None = None

    @property
    def is_doubted(self) -> bool:
        """Whether the table gave no answer while others did, in too few passes to be its own problem."""
        return 0 < len(self.unanswered) < UNANSWERED_PASSES

    @property
    def is_complete(self) -> bool:
        """Whether the areas cover all files of the table's current state, even if it is now unreadable."""
        return self.problem is None or bool(self.metadata_location and self.metadata_location == self.problem_location)

    @property
    def lacks_a_manifest(self) -> bool:
        """Whether the unreadable file was a missing manifest. A newer commit may no longer name it."""
        return self.problem is not None and self.problem.startswith(ManifestMissing.code)

    def bounded(self) -> "TableEntry":
        """The entry as stored, bounded to fit a DynamoDB item (400 KB), whatever the table's writer chose."""
        return replace(
            self,
            areas=fold(self.areas),
            metadata_location=self.metadata_location[:LONGEST_LOCATION],
            etag=self.etag if self.etag is None or len(self.etag) <= LONGEST_TEXT else None,
            displaced=_bounded(self.displaced),
            unread=None if self.unread is None or len(self.unread) > MOST_UNREAD else self.unread,
            seen=self.seen if len(self.seen) <= MOST_SEEN else frozenset(sorted(self.seen)[:MOST_SEEN]),
            problem=None if self.problem is None else self.problem[:LONGEST_TEXT],
            problem_location=None if self.problem_location is None else self.problem_location[:LONGEST_LOCATION],
        )


def _bounded(displaced: frozenset[str]) -> frozenset[str]:
    """Keep a few. A nearby purge that misses a table without a name then needs a new pass."""
    return (
        displaced if len(displaced) <= MOST_DISPLACED else frozenset({*sorted(displaced - {""})[:MOST_DISPLACED], ""})
    )


@dataclass(frozen=True, slots=True)
class CatalogPass:
    """The state of one catalog's refreshes. They are numbered passes; each visits every table once.

    `number` is the last pass that started. `complete` is the last complete pass. It started at `complete_as_of`, ended
    at `completed_at` and visited `tables`; every entry is at least as new as its start. A pass in progress has an
    `owner` until `owned_until`, started at `began_at` and has visited the tables up to `position`. Tables up to
    `again_to` are visited a second time, which starts with `again`: a table may have been renamed to one of these names
    after its visit. A pass that `strayed` met a new name without a table of its own. With `moved_again` names changed
    during its second visits. A pass with both does not count, like the last `uncounted` passes before it. `problem` is
    why no pass was completed since `problem_since`.
    """

    catalog: str
    complete_as_of: datetime | None = None
    tables: int | None = None
    owner: str | None = None
    owned_until: datetime | None = None
    began_at: datetime | None = None
    position: tuple[str, ...] | None = None
    checked: int = 0
    revision: int = 0
    number: int = 0
    complete: int = 0
    completed_at: datetime | None = None
    again_to: tuple[str, ...] | None = None
    again: bool = False
    strayed: bool = False
    moved_again: bool = False
    uncounted: int = 0
    problem: str | None = None
    problem_since: datetime | None = None

    def is_owned(self, now: datetime) -> bool:
        return self.owned_until is not None and now < self.owned_until

    def may_be_continued(self, now: datetime) -> bool:
        """Whether a pass that its owner left is recent enough to be continued."""
        return self.began_at is not None and now - self.began_at <= CONTINUED_FOR

    @property
    def duration(self) -> timedelta:
        """The duration of the last complete pass, zero before the first."""
        if self.complete_as_of is None or self.completed_at is None:
            return timedelta(0)
        return max(self.completed_at - self.complete_as_of, timedelta(0))

    @property
    def next_begins_at(self) -> datetime | None:
        """The earliest start of the next pass. The pause is as long as the last pass, so that purges share passes."""
        return None if self.completed_at is None else self.completed_at + min(self.duration, LONGEST_PAUSE)

    def serves_until(self) -> datetime | None:
        """The time until which a purge may start to delete by the last complete pass, None before the first pass."""
        if self.complete_as_of is None:
            return None
        return max(self.complete_as_of + SERVES_FOR, (self.completed_at or self.complete_as_of) + SERVES_FOR / 2)


@dataclass(frozen=True, slots=True)
class PassNeeded:
    """The complete pass that a purge needs: one numbered above `after`, or started at most `max_age` ago. `after` is
    the last pass that had started at the purge's moment, so a later pass sees every reference of that moment. If it is
    None only the age counts."""

    after: int | None
    max_age: timedelta = timedelta(0)

    def is_met_by(self, state: CatalogPass, now: datetime) -> bool:
        return self.is_later(state, now) or self.is_young(state, now)

    def is_later(self, state: CatalogPass, now: datetime) -> bool:
        """Whether the last complete pass started after the moment, and recently enough."""
        until = state.serves_until()
        return self.after is not None and state.complete > self.after and until is not None and now <= until

    def is_young(self, state: CatalogPass, now: datetime) -> bool:
        """Whether the last complete pass is within the operator's `reference-max-age`."""
        began = state.complete_as_of
        return self.max_age > timedelta(0) and began is not None and now - began <= self.max_age


KEPT_FOR: Final = timedelta(days=90)
MOST_OF_TABLE: Final = 10
MOST_OF_CATALOG: Final = 1_000
"""Metadata files kept at a time. With as many, no further snapshots are expired."""
MOST_LOST_AREAS: Final = 16
"""Fewer than a table's, because each operation reads those of all lost refs of its catalogs."""
MOST_NAMED: Final = 20
LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class LostRefs:
    """Lost refs of a table, `count` of them, in one former metadata file. All files that it reaches are kept `until` a
    time, or until an operator dismisses the refs. `refs` are some of their names with their snapshots. `copy` is the
    key of the file's copy in the plan bucket, because a writer may delete the file. `areas` contain their files; None
    means anywhere. A damaged record has only its key, `record`. It is kept until dismissed, and the copy names the
    table."""

    identifier: TableIdentifier
    table_uuid: str
    metadata_file: str
    copy: str
    refs: Mapping[str, int]
    count: int
    task_id: str
    at: datetime
    until: datetime
    areas: tuple[str, ...] | None = None
    record: str | None = None

    @property
    def key(self) -> str:
        """The key, unique for each metadata file of a catalog."""
        return self.record or lost_key(self.table_uuid, self.metadata_file)


def lost_key(table_uuid: str, metadata_file: str) -> str:
    return hashlib.sha256(f"{table_uuid}\x00{metadata_file}".encode()).hexdigest()[:32]


def copy_of(key: str) -> str:
    """Return the key of the metadata file's copy in the plan bucket."""
    return f"{LOST_REFS}/{key}.metadata.json"


def named(refs: Mapping[str, int]) -> dict[str, int]:
    """Return the refs to store: a limited number, with bounded names."""
    return {name[:LONGEST_NAME]: refs[name] for name in sorted(refs)[:MOST_NAMED]}


def restore_statement(table: TableIdentifier, metadata_file: str) -> str:
    """Return the Spark SQL statement that restores a table's former state under its own name."""
    name = ".".join(f"`{part}`" for part in (*table.namespace, f"{table.name}_restored"))
    return (
        f"CALL `{table.catalog}`.system.register_table(table => '{_quoted(name)}', "
        f"metadata_file => '{_quoted(metadata_file)}')"
    )


def _quoted(text: str) -> str:
    """Return the content of a Spark SQL string literal."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
