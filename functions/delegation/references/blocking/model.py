"""What holds purges back because it cannot be read, operators' exemptions, and held purges."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.references.model import UNANSWERED_PASSES, TableEntry

EXEMPT_FOR: Final = timedelta(days=30)
LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class Subject:
    """What an exemption names: a table, a namespace's list (no `name`), or a catalog (no `namespace` either). A stored
    record without a readable subject has only its key, `record`."""

    catalog: str
    namespace: tuple[str, ...] = ()
    name: str | None = None
    record: str | None = None

    @classmethod
    def of(cls, identifier: TableIdentifier) -> "Subject":
        return cls(identifier.catalog, identifier.namespace, identifier.name)

    def __str__(self) -> str:
        if self.record is not None:
            return f"the damaged record {self.record} of the catalog {self.catalog}"
        dotted = ".".join((self.catalog, *self.namespace, *([] if self.name is None else [self.name])))
        if self.name is not None:
            return dotted
        return f"the list of {dotted}" if self.namespace else f"the catalog {dotted}"


@dataclass(frozen=True, slots=True)
class Blocking:
    """Something unreadable `since` a time because of a `problem` (an error's code, a colon, its text). `table_uuid` and
    `metadata_location` are the table's current ones as far as known, else "" and None. A `narrow` one concerns only
    purges of tables that overlap its areas, which are complete. `unread` are digests of the table's unreadable files,
    None if not known one by one."""

    subject: Subject
    problem: str
    since: datetime | None
    table_uuid: str = ""
    metadata_location: str | None = None
    narrow: bool = False
    unanswered: tuple[int, ...] = ()
    unread: frozenset[bytes] | None = None

    @property
    def is_doubted(self) -> bool:
        """Whether it had no answer while others had one, but in too few passes: it holds no purge, and no pass
        completes."""
        return 0 < len(self.unanswered) < UNANSWERED_PASSES

    @property
    def was_never_read(self) -> bool:
        """Whether nothing is known of a table, not even its metadata: no exemption covers it."""
        return self.subject.name is not None and not self.table_uuid

    @classmethod
    def of(cls, entry: TableEntry) -> "Blocking":
        """Return what an entry with a problem holds back."""
        return cls(
            Subject.of(entry.identifier),
            str(entry.problem),
            entry.problem_since,
            entry.table_uuid,
            entry.problem_location,
            narrow=entry.is_complete,
            unanswered=entry.unanswered,
            unread=entry.unread,
        )


@dataclass(frozen=True, slots=True)
class Exemption:
    """An operator's decision, with the reason, that purges and expiries run although something is unreadable.

    It covers the table and the accepted `unread` files, and outlives commits while all else can be read. Without known
    files, as for unreadable metadata, it ends at the next commit. It also ends when the table can be read again, when
    another table has the name, and at `until`. The removal of orphan files, which has no list of a table's files, never
    runs beside something unreadable.
    """

    subject: Subject
    table_uuid: str
    metadata_location: str | None
    why: str
    by: str
    at: datetime
    until: datetime
    unread: frozenset[bytes] | None = None

    @classmethod
    def of(cls, blocking: Blocking, *, why: str, by: str, now: datetime) -> "Exemption":
        return cls(
            blocking.subject,
            blocking.table_uuid,
            blocking.metadata_location,
            why=why[:LONGEST_REASON],
            by=by,
            at=now,
            until=now + EXEMPT_FOR,
            unread=blocking.unread,
        )

    def covers(self, blocking: Blocking, now: datetime) -> bool:
        """Whether it covers what cannot be read now."""
        same = (self.subject, self.table_uuid) == (blocking.subject, blocking.table_uuid)
        if self.unread is None:
            accepted = self.metadata_location == blocking.metadata_location
        else:
            accepted = blocking.unread is not None and blocking.unread <= self.unread
        return same and accepted and now < self.until and not blocking.was_never_read


UNKNOWN_AREA: Final = "file:///"
"""The area of a table of another format that states no place; earlier releases read it as one beside every bucket."""


@dataclass(frozen=True, slots=True)
class LocatedTable:
    """A table of another format: only the area of its files is known, or UNKNOWN_AREA. With a `problem` the stored area
    is unreadable: work of the catalog waits until a pass stores it again."""

    subject: Subject
    area: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class HeldPurge:
    task_id: str
    subject: Subject


class BlockingStore(Protocol):
    """Unlisted namespaces, tables of other formats, exemptions and held purges; every write may be repeated. Every
    method raises ReferencesUnavailable."""

    def unlisted(self, catalog: str) -> list[Blocking]:
        """Return the namespaces that cannot be listed, and the catalog itself if it cannot be."""
        ...

    def put_unlisted(self, blocking: Blocking) -> None:
        """Record a blocking, bounded, in place of an earlier record of it."""
        ...

    def remove_unlisted(self, subject: Subject) -> None: ...

    def located(self, catalog: str) -> list[LocatedTable]: ...

    def put_located(self, table: LocatedTable) -> None: ...

    def remove_located(self, table: LocatedTable) -> None: ...

    def exemptions(self, catalog: str) -> list[Exemption]: ...

    def put_exemption(self, exemption: Exemption) -> None: ...

    def remove_exemption(self, subject: Subject) -> None: ...

    def held(self, catalog: str) -> list[HeldPurge]:
        """Return the purges held by something in a catalog; some may have ended."""
        ...

    def put_held(self, purge: HeldPurge) -> None:
        """Record a held purge in place of an earlier record of it."""
        ...

    def remove_held(self, purge: HeldPurge) -> None: ...


class MemoryBlocking:
    """BlockingStore in memory; each operation is one of a dictionary, so threads may share it."""

    def __init__(self) -> None:
        self._unlisted: dict[Subject, Blocking] = {}
        self._located: dict[Subject, LocatedTable] = {}
        self._exemptions: dict[Subject, Exemption] = {}
        self._held: dict[tuple[str, str], HeldPurge] = {}

    def unlisted(self, catalog: str) -> list[Blocking]:
        return [one for one in list(self._unlisted.values()) if one.subject.catalog == catalog]

    def put_unlisted(self, blocking: Blocking) -> None:
        self._unlisted[blocking.subject] = blocking

    def remove_unlisted(self, subject: Subject) -> None:
        self._unlisted.pop(subject, None)

    def located(self, catalog: str) -> list[LocatedTable]:
        return [one for one in list(self._located.values()) if one.subject.catalog == catalog]

    def put_located(self, table: LocatedTable) -> None:
        self._located[table.subject] = table

    def remove_located(self, table: LocatedTable) -> None:
        self._located.pop(table.subject, None)

    def exemptions(self, catalog: str) -> list[Exemption]:
        return [one for one in list(self._exemptions.values()) if one.subject.catalog == catalog]

    def put_exemption(self, exemption: Exemption) -> None:
        self._exemptions[exemption.subject] = exemption

    def remove_exemption(self, subject: Subject) -> None:
        self._exemptions.pop(subject, None)

    def held(self, catalog: str) -> list[HeldPurge]:
        return [one for one in list(self._held.values()) if one.subject.catalog == catalog]

    def put_held(self, purge: HeldPurge) -> None:
        self._held[purge.subject.catalog, purge.task_id] = purge

    def remove_held(self, purge: HeldPurge) -> None:
        self._held.pop((purge.subject.catalog, purge.task_id), None)


class EntryStore(BlockingStore, Protocol):
    """A BlockingStore that also has the entries of tables."""

    def unreadable(self, catalog: str) -> list[TableEntry]: ...


def blocking_of(store: EntryStore, catalog: str) -> list[Blocking]:
    """Return everything in a catalog that cannot be read or listed, tables first."""
    return [*map(Blocking.of, store.unreadable(catalog)), *store.unlisted(catalog)]


def freed(store: EntryStore, catalog: str, now: datetime) -> list[HeldPurge]:
    """Return the held purges whose subject is now readable, gone or exempt."""
    held = store.held(catalog)
    if not held:
        return []
    exemptions = {one.subject: one for one in store.exemptions(catalog)}
    blocking = {
        one.subject
        for one in blocking_of(store, catalog)
        if not one.is_doubted and (one.subject not in exemptions or not exemptions[one.subject].covers(one, now))
    }
    return [one for one in held if one.subject not in blocking]
