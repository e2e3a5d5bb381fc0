"""The names of a pass in a private temporary SQLite file, with what is known of each.

A pass needs the index's entries, the catalog's listings and the tables seen under each name, all at once and by name.
Memory does not grow with the catalog: SQLite keeps 2 MB of pages and writes others to its file, which is removed when
the pass ends. Rows are in the order of `position_of`.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import Any, Final, Self

from delegation.identifiers import TableIdentifier
from delegation.references.errors import ReferencesUnavailable
from delegation.references.model import TableEntry
from delegation.timestamps import isoformat

Position = tuple[str, ...]
"""A table's position in a pass; see `position_of`."""


def position_of(identifier: TableIdentifier) -> Position:
    """Return a sort key, by namespace first. The empty level sorts before every name."""
    return (*identifier.namespace, "", identifier.name)


class Turn(Enum):
    """When a pass visits a name."""

    EARLY = "before all others, because it has no entry"
    IN_ORDER = "in the order of positions, so that its visit moves the position of the pass"
    LATER = "after the names that were listed first, or once more"


_FEW: Final = 10
"""Names without an entry are few if names with an entry are at least this many times as many."""
_PAGE: Final = 500
_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE name (
  key BLOB PRIMARY KEY,
  entry BLOB,                          -- what the index has, NULL for nothing
  marked INTEGER NOT NULL DEFAULT 0,   -- whether that is the entry of a name without a table
  began BLOB,                          -- the table that the index knew when this process began
  at BLOB,                             -- the table that was seen last in this pass
  gone INTEGER NOT NULL DEFAULT 0,     -- whether there was none when it was looked at last
  listing INTEGER NOT NULL DEFAULT 0,  -- the last listing that has it
  fresh INTEGER NOT NULL DEFAULT 0,
  visited INTEGER NOT NULL DEFAULT 0,
  early INTEGER NOT NULL DEFAULT 0,
  stale INTEGER NOT NULL DEFAULT 0,    -- whether the table that was seen last was seen elsewhere since
  disputed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX name_began ON name (began) WHERE began IS NOT NULL;
CREATE TABLE lost (key BLOB, uuid BLOB, entry BLOB, PRIMARY KEY (key, uuid)) WITHOUT ROWID;
CREATE TABLE seen (uuid BLOB, key BLOB, PRIMARY KEY (uuid, key)) WITHOUT ROWID;
"""


class PassNames:
    """Rows by name. Not thread-safe. Methods raise ReferencesUnavailable if the disk is full."""

    def __init__(self, catalog: str, *, continued: bool = False) -> None:
        """With `continued`, entries include what another process saw in the same pass."""
        self._catalog = catalog
        self._continued = continued
        self._listing = 0
        try:
            # An empty name creates a temporary file, which SQLite writes only when its pages outgrow memory.
            self._rows = sqlite3.connect("", isolation_level=None)
            self._rows.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def know(self, entries: Iterable[TableEntry]) -> None:
        rows = (
            (_key(entry.identifier), _text(entry), entry.absent, None if entry.absent else _bytes(entry.table_uuid))
            for entry in entries
        )
        self._each("INSERT OR REPLACE INTO name (key, entry, marked, began) VALUES (?, ?, ?, ?)", rows)

    def begin_listing(self) -> None:
        self._listing += 1

    def list_names(self, identifiers: Iterable[TableIdentifier]) -> None:
        number = self._listing
        rows = ((_key(identifier), number, number) for identifier in identifiers)
        self._each(
            "INSERT INTO name (key, listing) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET listing = ?",
            rows,
        )

    def entry(self, identifier: TableIdentifier) -> TableEntry | None:
        row = self._one("SELECT entry FROM name WHERE key = ?", _key(identifier))
        return None if row is None or row[0] is None else _entry(identifier, row[0])

    def replace(self, entry: TableEntry) -> None:
        """Store the index's current entry of a name, and which tables have lost the name."""
        key, former = _key(entry.identifier), self.entry(entry.identifier)
        if former is not None:
            uuids = {former.table_uuid} | (former.displaced if self._continued else frozenset())
            for uuid in uuids - {"", entry.table_uuid} - entry.displaced:
                self._run("INSERT OR IGNORE INTO lost VALUES (?, ?, ?)", key, _bytes(uuid), _text(former))
        values = (_text(entry), entry.absent, key)
        self._run("UPDATE name SET entry = ?, marked = ? WHERE key = ?", *values)

    def in_turn(self, after: Position | None, to: Position | None = None) -> Iterator[tuple[TableIdentifier, Turn]]:
        """Yield the listed names after a position, up to `to` if given, each with its turn. Names without an entry are
        visited at any position, because tables were renamed to them. If few, they come first: an unknown table that is
        renamed before its visit leaves no trace."""
        last = _END if to is None else _encoded(to)
        self._run("UPDATE name SET fresh = listing = ? AND (entry IS NULL OR marked)", self._listing)
        new = self._count("fresh AND key <= ?", last)
        few = new * _FEW <= self._count("entry IS NOT NULL")
        if few:
            yield from ((identifier, Turn.EARLY) for identifier in self._where("fresh AND key <= ?", last))
        rest = "NOT fresh AND key > ?" if few else "(fresh OR key > ?)"
        begins = b"" if after is None else _encoded(after)
        for identifier in self._where(f"listing = ? AND key <= ? AND {rest}", self._listing, last, begins):
            yield identifier, Turn.IN_ORDER

    def begin_new(self) -> None:
        """Start collecting names that the current listing lacks."""
        self._run("UPDATE name SET visited = listing = ?", self._listing)

    def new(self) -> Iterator[TableIdentifier]:
        """Yield the current listing's names that no listing since `begin_new` had, each once."""
        yield from self._where("listing = ? AND NOT visited", self._listing)
        self._run("UPDATE name SET visited = 1 WHERE listing = ?", self._listing)

    def has_new(self) -> bool:
        return self._one("SELECT 1 FROM name WHERE listing = ? AND NOT visited", self._listing) is not None

    def last_visited(self) -> Position:
        """Return the position of the last name since `begin_new`, empty if none."""
        row = self._one("SELECT key FROM name WHERE visited ORDER BY key DESC")
        return () if row is None else position_of(self._identifier(row[0]))

    def left(self) -> Iterator[TableIdentifier]:
        """Yield the names since `begin_new` that the current listing no longer has."""
        return self._where("visited AND listing <> ?", self._listing)

    def known_unlisted(self, after: Position) -> Iterator[TableIdentifier]:
        """Yield the names after a position that have an entry but are not in the current listing."""
        return self._where("entry IS NOT NULL AND listing <> ? AND key > ?", self._listing, _encoded(after))

    def known_below(self, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        begins = _encoded(namespace)
        return self._where("entry IS NOT NULL AND key >= ? AND key < ?", begins, begins + _END)

    def readable(self, most: int) -> list[TableIdentifier]:
        """Return some listed names whose tables were readable at the last visit."""
        listed = self._where("entry IS NOT NULL AND NOT marked AND NOT gone AND listing = ?", self._listing)
        readable = (
            identifier
            for identifier in listed
            if (entry := self.entry(identifier)) is not None and entry.problem is None
        )
        return list(islice(readable, most))

    def without_table(self) -> Iterator[TableIdentifier]:
        """Yield the names that have an entry but, by the current listing or a load, no table."""
        return self._where("entry IS NOT NULL AND (listing <> ? OR gone)", self._listing)

    def tables(self) -> int:
        """Return the number of names in the current listing that have a table."""
        return self._count("listing = ? AND NOT gone", self._listing)

    def seen_at(self, identifier: TableIdentifier) -> tuple[str | None, str | None, bool]:
        """Return the uuid known under a name, the uuid seen last, and whether the name has no table now."""
        row = self._one("SELECT began, at, gone FROM name WHERE key = ?", _key(identifier))
        if row is None:
            return None, None, False
        known, last = (None if text is None else text.decode("utf-8", "surrogatepass") for text in row[:2])
        return known, last, bool(row[2])

    def see(self, identifier: TableIdentifier, uuid: str) -> None:
        key = _key(identifier)
        self._run("UPDATE name SET at = ?, gone = 0, stale = 0 WHERE key = ?", _bytes(uuid), key)
        self._run("INSERT OR IGNORE INTO seen VALUES (?, ?)", _bytes(uuid), key)

    def arrived(self, identifier: TableIdentifier, uuid: str) -> None:
        """Note a new table under a name. Other names no longer have the table, unless they are clones."""
        where = "at = ? AND key <> ? AND key IN (SELECT key FROM seen WHERE uuid = ?)"
        self._run(f"UPDATE name SET stale = 1 WHERE {where}", _bytes(uuid), _key(identifier), _bytes(uuid))  # noqa: S608

    def stale(self) -> Iterator[TableIdentifier]:
        """Yield the names whose table was since seen elsewhere, and listed names that had no table."""
        return self._where("(stale OR gone) AND listing = ?", self._listing)

    def missed(self) -> Iterator[tuple[TableEntry, TableEntry, str]]:
        """Yield each known table that was not seen and whose name has another table now: the name's entry, the table's
        former entry and its uuid."""
        for key, uuid, text in self._run(_MISSED.format("key, uuid, entry"), self._listing):
            identifier = self._identifier(key)
            now = self.entry(identifier)
            if now is not None and not now.absent:
                yield now, _entry(identifier, text), uuid.decode("utf-8", "surrogatepass")

    def is_missed(self, identifier: TableIdentifier) -> bool:
        """Return whether the table that the index knew under a name was not seen."""
        return self._one(f"{_GONE} AND key = ?", self._listing, self._listing, _key(identifier)) is not None

    def has_missed(self) -> bool:
        """Return whether any known table was not seen."""
        return bool(self._one(_MISSED.format(1), self._listing) or self._one(_GONE, self._listing, self._listing))

    def lose(self, identifier: TableIdentifier) -> None:
        self._run("UPDATE name SET gone = 1 WHERE key = ?", _key(identifier))

    def is_elsewhere(self, identifier: TableIdentifier, uuid: str) -> bool:
        query = "SELECT 1 FROM seen WHERE uuid = ? AND key <> ?"
        return self._one(query, _bytes(uuid), _key(identifier)) is not None

    def was_known(self, uuid: str) -> bool:
        """Return whether the index knew a table when this process started."""
        return self._one("SELECT 1 FROM name WHERE began = ?", _bytes(uuid)) is not None

    def has_clone(self, identifier: TableIdentifier, uuid: str) -> bool:
        """Return whether a table was seen under another name, or known there when this process started."""
        query = "SELECT 1 FROM name WHERE began = ? AND key <> ?"
        known = self._one(query, _bytes(uuid), _key(identifier)) is not None
        return known or self.is_elsewhere(identifier, uuid)

    def dispute(self, identifier: TableIdentifier, uuid: str) -> list[TableIdentifier]:
        """Note that all names of a table must be loaded again; return the new ones. The table was last seen under
        `identifier`. If it was seen under several names before, those are noted already."""
        query = "SELECT key FROM seen WHERE uuid = ? AND key <> ?"
        keys = [_key(identifier), *(self._one(query, _bytes(uuid), _key(identifier)) or ())]
        for key in keys:
            self._run("UPDATE name SET disputed = 1 WHERE key = ?", key)
        return [self._identifier(key) for key in keys]

    def load_early(self, identifier: TableIdentifier) -> None:
        """Note that a name was loaded before all others."""
        self._run("UPDATE name SET early = 1 WHERE key = ?", _key(identifier))

    def disputed(self, beyond: Position) -> Iterator[TableIdentifier]:
        """Yield the names after a position that must be loaded again, except an early-loaded name without others."""
        alone = self._count("early") == 1
        return self._where(f"{'disputed' if alone else '(disputed OR early)'} AND key > ?", _encoded(beyond))

    def _where(self, condition: str, *values: object) -> Iterator[TableIdentifier]:
        """Yield the names that meet a condition in order, page by page because rows change meanwhile."""
        after = b""
        while True:
            # The conditions are constants of this module.
            query = f"SELECT key FROM name WHERE {condition} AND key > ? ORDER BY key LIMIT {_PAGE}"  # noqa: S608
            page = self._run(query, *values, after)
            yield from (self._identifier(key) for (key,) in page)
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def _count(self, condition: str, *values: object) -> int:
        return int(self._run(f"SELECT COUNT(*) FROM name WHERE {condition}", *values)[0][0])  # noqa: S608

    def _one(self, query: str, *values: object) -> Any:
        rows = self._run(f"{query} LIMIT 1", *values)
        return rows[0] if rows else None

    def _run(self, statement: str, *values: object) -> list[Any]:
        try:
            return self._rows.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _each(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        for values in rows:
            self._run(statement, *values)

    def _failed(self, error: sqlite3.Error) -> ReferencesUnavailable:
        return ReferencesUnavailable(
            f"the pass over catalog {self._catalog} cannot keep its names in a temporary file: {error}. Free space "
            "there, or set TMPDIR to a directory with more space"
        )

    def _identifier(self, key: bytes) -> TableIdentifier:
        *namespace, _, name = _decoded(key)
        return TableIdentifier(self._catalog, tuple(namespace), name)


_UNSEEN: Final = (
    "NOT EXISTS (SELECT 1 FROM seen WHERE seen.uuid = {0}) AND NOT EXISTS (SELECT 1 FROM name AS other WHERE "
    "other.began = {0} AND other.key <> {1} AND other.at IS NULL AND NOT other.gone AND other.listing = ?)"
)
"""For a uuid and a key: not seen by this process, and not known under a listed name that is still to be visited."""
_MISSED: Final = f"SELECT {{}} FROM lost WHERE {_UNSEEN.format('lost.uuid', 'lost.key')}"  # noqa: S608
_LOST: Final = "began IS NOT NULL AND (listing <> ? OR gone)"
_GONE: Final = f"SELECT 1 FROM name AS own WHERE {_LOST} AND {_UNSEEN.format('own.began', 'own.key')}"  # noqa: S608
_END: Final = b"\xff"
"""Sorts after every key: UTF-8 never contains the byte 255."""


def _key(identifier: TableIdentifier) -> bytes:
    return _encoded(position_of(identifier))


def _encoded(position: Position) -> bytes:
    """Return bytes that sort like positions: each part ends with a zero byte, and contains none."""
    return b"".join(_bytes(part).replace(b"\1", b"\1\2").replace(b"\0", b"\1\1") + b"\0" for part in position)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(key: bytes) -> list[str]:
    return [
        part.replace(b"\1\1", b"\0").replace(b"\1\2", b"\1").decode("utf-8", "surrogatepass")
        for part in key.split(b"\0")[:-1]
    ]


def _text(entry: TableEntry) -> bytes:
    """Return a compressed entry: the areas of a table share prefixes."""
    since = entry.problem_since
    text = json.dumps(
        [
            entry.table_uuid,
            entry.metadata_location,
            entry.areas,
            entry.etag,
            entry.problem,
            entry.revision,
            entry.problem_location,
            None if since is None else isoformat(since),
            sorted(entry.displaced),
            entry.absent,
            entry.cloned,
            entry.unanswered,
        ]
    )
    return zlib.compress(text.encode("ascii"), level=1)


def _entry(identifier: TableIdentifier, text: bytes) -> TableEntry:
    fields = json.loads(zlib.decompress(text))
    uuid, location, areas, etag, problem, revision, problem_location, since, displaced, absent, cloned, passes = fields
    return TableEntry(
        identifier,
        uuid,
        location,
        tuple(areas),
        etag,
        problem=problem,
        revision=revision,
        problem_location=problem_location,
        problem_since=None if since is None else datetime.fromisoformat(since),
        displaced=frozenset(displaced),
        absent=absent,
        cloned=cloned,
        unanswered=tuple(passes),
    )
