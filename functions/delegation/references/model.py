"""What the reference index holds: for each live table of a catalog the areas of storage in which its files are.

An area is a canonical directory URI with a trailing slash. The areas of a table are its locations, present and former,
and the directories of the files that it references outside them, folded into their parents until there are few. They
cover every file of the table, and more; whether a file is really shared is decided by reading the table's manifests.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import GuardRefused
from delegation.identifiers import TableIdentifier
from delegation.storage.locations import Root, split, uri_of

MOST_AREAS: Final = 64
SERVES_FOR: Final = timedelta(hours=1)
"""After its beginning a pass serves purges for so long; after the end of a long one, for half of that."""
CONTINUED_FOR: Final = timedelta(hours=6)
"""After its beginning an interrupted pass is continued for so long; then a new one begins."""
LONGEST_PAUSE: Final = timedelta(seconds=60)
LONGEST_AREA_BYTES: Final = 700
"""Within a DynamoDB sort key of 1,024 bytes, beside the name of the table."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table as it was when it was read last.

    `areas` and `seen` (digests of the manifests that were read) belong to `metadata_location`. `problem` says why the
    table could not be read; it keeps the areas that it had, and any purge of the catalog may concern it. `revision` is
    that of the stored entry it follows, 0 for none. `displaced` are the uuids of tables that had this name before in
    the same pass, and may have another name by now: their areas are among these until the next pass. An `absent` one
    had no table under its name at the end of a pass, and is removed by the next one that finds none either.
    """

    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str
    areas: tuple[str, ...] = ()
    etag: str | None = None
    seen: frozenset[bytes] = frozenset()
    problem: str | None = None
    revision: int = 0
    displaced: frozenset[str] = frozenset()
    absent: bool = False


@dataclass(frozen=True, slots=True)
class CatalogPass:
    """The state of the refreshes of one catalog, each of which visits every table once.

    Passes are numbered: `number` is that of the pass which began last, `complete` that of the last complete one, which
    began at `complete_as_of`, ended at `completed_at` and visited `tables`: every entry is at least as new as its
    beginning. A pass under way has an `owner` until `owned_until`, began at `began_at` and has visited the tables up to
    `position`. Those up to `again_to` are visited once more, which has begun with `again`: a table may have been
    renamed to one of these names after its visit.
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

    def is_owned(self, now: datetime) -> bool:
        return self.owned_until is not None and now < self.owned_until

    def may_be_continued(self, now: datetime) -> bool:
        """Whether a pass that its owner left is young enough for the rest of it to count."""
        return self.began_at is not None and now - self.began_at <= CONTINUED_FOR

    @property
    def duration(self) -> timedelta:
        """How long the last complete pass took; nothing before the first."""
        if self.complete_as_of is None or self.completed_at is None:
            return timedelta(0)
        return max(self.completed_at - self.complete_as_of, timedelta(0))

    @property
    def next_begins_at(self) -> datetime | None:
        """When the next pass may begin: as long after the last one as that took, so that more purges share it."""
        return None if self.completed_at is None else self.completed_at + min(self.duration, LONGEST_PAUSE)

    def serves_until(self) -> datetime | None:
        """Until when a purge may begin to delete by the last complete pass; None before the first."""
        if self.complete_as_of is None:
            return None
        return max(self.complete_as_of + SERVES_FOR, (self.completed_at or self.complete_as_of) + SERVES_FOR / 2)


@dataclass(frozen=True, slots=True)
class PassNeeded:
    """Which complete pass a purge needs: one with a number above `after`, or one that began `max_age` ago at most.

    `after` is the number of the pass that had begun last at the purge's moment, so a later one sees every reference of
    that moment. With None only the age counts.
    """

    after: int | None
    max_age: timedelta = timedelta(0)

    def is_met_by(self, state: CatalogPass, now: datetime) -> bool:
        return self.is_later(state, now) or self.is_young(state, now)

    def is_later(self, state: CatalogPass, now: datetime) -> bool:
        """Whether the last complete pass began after the moment, and not too long ago."""
        until = state.serves_until()
        return self.after is not None and state.complete > self.after and until is not None and now <= until

    def is_young(self, state: CatalogPass, now: datetime) -> bool:
        """Whether the operator's `reference-max-age` accepts the last complete pass."""
        began = state.complete_as_of
        return self.max_age > timedelta(0) and began is not None and now - began <= self.max_age


def areas_of(locations: Iterable[str], outside: Iterable[str], *, most: int = MOST_AREAS) -> tuple[str, ...]:
    """The areas of a table with these locations and these canonical paths of files outside them.

    Locations in storage where no purge deletes (another scheme, a path that is refused) are left out.
    """
    roots = set()
    for location in locations:
        try:
            roots.add(Root.of(location).uri)
        except GuardRefused:
            continue
    return fold({*roots, *map(directory_of, outside)}, most=most)


def directory_of(path: str) -> str:
    """The directory of a canonical path, itself canonical and with a trailing slash."""
    bucket, key = split(path)
    parent = key.rpartition("/")[0]
    return uri_of(bucket, f"{parent}/" if parent else "")


def parent_of(area: str) -> str:
    """The area around an area; a whole bucket is its own parent."""
    bucket, key = split(area)
    parent = key.rstrip("/").rpartition("/")[0]
    return uri_of(bucket, f"{parent}/" if parent else "")


def fold(areas: Iterable[str], *, most: int = MOST_AREAS) -> tuple[str, ...]:
    """At most `most` areas that cover all of these, unless there are more buckets; nested ones are left out.

    The deepest areas are replaced by their parents first, so that whole buckets come last.
    """
    left = _outermost(_short(area) for area in areas)
    while len(left) > most:
        depth = max(area.count("/") for area in left)
        raised = [parent_of(area) if area.count("/") == depth else area for area in left]
        folded = _outermost(raised)
        if folded == left:
            break
        left = folded
    return tuple(left)


def _short(area: str) -> str:
    while len(area.encode()) > LONGEST_AREA_BYTES:
        area = parent_of(area)
    return area


def _outermost(areas: Iterable[str]) -> list[str]:
    found: list[str] = []
    for area in sorted(set(areas)):
        if not found or not area.startswith(found[-1]):
            found.append(area)
    return found


def around(area: str) -> tuple[str, ...]:
    """An area and all that contain it, the whole bucket last."""
    found = [area]
    while (parent := parent_of(found[-1])) != found[-1]:
        found.append(parent)
    return tuple(found)


def overlap(one: str, other: str) -> bool:
    """Whether one area lies at or below the other."""
    return one.startswith(other) or other.startswith(one)
