"""What the reference index holds: for each live table of a catalog the areas of storage in which its files are.

The areas of a table are its locations, present and former, and the directories of the files that it references outside
them, folded into their parents until there are few (`areas`). They cover every file of the table, and more; whether a
file is really shared is decided by reading the table's manifests.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from delegation.iceberg.errors import ManifestMissing
from delegation.identifiers import TableIdentifier
from delegation.references.areas import fold

MOST_SEEN: Final = 20_000
"""Digests kept for one table (160 KB of an item's 400 KB); manifests beyond them are read again when it changes."""
LONGEST_TEXT: Final = 1_000
LONGEST_LOCATION: Final = 4_096


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table as it was when it was read last.

    `areas` and `seen` (digests of the manifests that were read) belong to `metadata_location`, the last that was read
    to its end, "" for none. `problem` says why the table cannot be read since `problem_since`; `problem_location` is
    then its present metadata location, None if it could not be loaded at all. What could be read since is in `areas`
    too. `revision` is that of the stored entry it follows, 0 for none.
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

    @property
    def is_complete(self) -> bool:
        """Whether the areas cover all files of the table's present state, although it may not be readable now."""
        return self.problem is None or bool(self.metadata_location and self.metadata_location == self.problem_location)

    @property
    def lacks_a_manifest(self) -> bool:
        """Whether it was a missing manifest that could not be read, which a newer commit may not name any more."""
        return self.problem is not None and self.problem.startswith(ManifestMissing.code)

    def bounded(self) -> "TableEntry":
        """As it is stored: whatever the table's writer chose, an item of DynamoDB (400 KB) has room for it."""
        return replace(
            self,
            areas=fold(self.areas),
            metadata_location=self.metadata_location[:LONGEST_LOCATION],
            etag=self.etag if self.etag is None or len(self.etag) <= LONGEST_TEXT else None,
            seen=self.seen if len(self.seen) <= MOST_SEEN else frozenset(sorted(self.seen)[:MOST_SEEN]),
            problem=None if self.problem is None else self.problem[:LONGEST_TEXT],
            problem_location=None if self.problem_location is None else self.problem_location[:LONGEST_LOCATION],
        )


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
