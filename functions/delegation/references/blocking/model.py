"""What holds purges back because it cannot be read, how an operator exempts it, and which purges are held."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.references.model import UNANSWERED_PASSES, TableEntry

EXEMPT_FOR: Final = timedelta(days=30)
LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class Subject:
    """What an exemption names: a table, the list of a namespace (no `name`), or a catalog (no `namespace` either).

    Of a stored record that does not show its subject only the key is known, `record`.
    """

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
    """Something that cannot be read `since` a time because of a `problem` (an error's code, a colon, its text).

    `table_uuid` and `metadata_location` are the table's as far as they are known now, "" and None otherwise. A
    `narrow` one concerns only purges of tables that overlap its areas, because these are complete. `unread` are digests
    of the table's files that cannot be read, None where they are not known one by one.
    """

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
        """Whether it had no answer, and others had one in too few passes: it holds no purge, no pass completes."""
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
    """An operator's decision that purges and expiries run although something cannot be read, and why.

    It is bound to the table and to the `unread` files that the operator accepted: it outlives commits while all else
    can be read. Where these are not known one by one, as with metadata that cannot be read, it ends at the next commit
    that is seen. It ends too when the table can be read again, when another table has the name, and at `until`. The
    removal of orphan files, which has no list of files that were a table's, never runs beside what cannot be read.
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
        """Whether it still holds for what cannot be read now."""
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
    """A table of another format: nothing is known of its files but the area in which they are, or UNKNOWN_AREA.

    With a `problem` the stored area cannot be read: work of the catalog waits until a pass has stored it again.
    """

    subject: Subject
    area: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class HeldPurge:
    """A purge that waits because of a subject."""

    task_id: str
    subject: Subject


class BlockingStore(Protocol):
    """What cannot be listed or has no files that are known, exemptions and held purges; every write may be repeated.

    Every method raises ReferencesUnavailable.
    """

    def unlisted(self, catalog: str) -> list[Blocking]:
        """Return the namespaces that cannot be listed, and the catalog itself if it cannot be."""
        ...

    def put_unlisted(self, blocking: Blocking) -> None:
        """Record one, bounded; what is recorded of it already is replaced."""
        ...

    def remove_unlisted(self, subject: Subject) -> None: ...

    def located(self, catalog: str) -> list[LocatedTable]: ...

    def put_located(self, table: LocatedTable) -> None: ...

    def remove_located(self, table: LocatedTable) -> None: ...

    def exemptions(self, catalog: str) -> list[Exemption]: ...

    def put_exemption(self, exemption: Exemption) -> None: ...

    def remove_exemption(self, subject: Subject) -> None: ...

    def held(self, catalog: str) -> list[HeldPurge]:
        """Return the purges that wait because of something in a catalog; some may have ended since."""
        ...

    def put_held(self, purge: HeldPurge) -> None:
        """Record a held purge in place of an earlier record of it."""
        ...

    def remove_held(self, purge: HeldPurge) -> None: ...


class MemoryBlocking:
    """BlockingStore in memory; each operation is one of a dictionary's, which threads may share."""

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
    """A BlockingStore that has the entries of tables as well; see ReferenceStore."""

    def unreadable(self, catalog: str) -> list[TableEntry]: ...


def blocking_of(store: EntryStore, catalog: str) -> list[Blocking]:
    """Return everything of a catalog that cannot be read or listed, tables first."""
    return [*map(Blocking.of, store.unreadable(catalog)), *store.unlisted(catalog)]


def freed(store: EntryStore, catalog: str, now: datetime) -> list[HeldPurge]:
    """Return the held purges whose subject is readable, gone or exempt by now."""
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
