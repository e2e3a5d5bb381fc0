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
LONGEST_AREA_BYTES: Final = 700
"""Within a DynamoDB sort key of 1,024 bytes, beside the name of the table."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table as it was when it was read last.

    `areas` and `seen` (digests of the manifests that were read) belong to `metadata_location`. `problem` says why the
    table could not be read; it keeps the areas that it had, and any purge of the catalog may concern it. `revision` is
    that of the stored entry it follows, 0 for none.
    """

    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str
    areas: tuple[str, ...] = ()
    etag: str | None = None
    seen: frozenset[bytes] = frozenset()
    problem: str | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class CatalogPass:
    """The state of the refreshes of one catalog, each of which visits every table once.

    `complete_as_of` is when the last complete pass began: every entry is at least as new. A pass under way has an
    `owner` until `owned_until`, began at `began_at` and has visited the tables up to `position`.
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

    def is_fresh(self, now: datetime, max_age: timedelta) -> bool:
        return self.complete_as_of is not None and now - self.complete_as_of <= max_age

    def is_owned(self, now: datetime) -> bool:
        return self.owned_until is not None and now < self.owned_until

    def may_be_continued(self, now: datetime, max_age: timedelta) -> bool:
        """Whether a pass that its owner left is young enough for the rest of it to count."""
        return self.began_at is not None and now - self.began_at <= max_age


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
