"""Unreadable things that hold purges, operators' exemptions, held purges and lost refs.

They are items of the reference index's table (`references.store`):

| item | pk | sk |
|---|---|---|
| a namespace or catalog that cannot be listed | `unlisted:CATALOG` | hash of its levels |
| a table of another format | `located:CATALOG` | hash of its name |
| an exemption | `exemption:CATALOG` | hash of its subject |
| a held purge | `held:CATALOG` | `TASK_ID` |
| lost refs | `lost-refs:CATALOG` | hash of the table's uuid and the metadata file |
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier
from delegation.references.model import EVERYWHERE, UNANSWERED_PASSES, LostRefs, TableEntry, copy_of
from delegation.stored_items import Items, readable
from delegation.timestamps import isoformat, stored_time
from polaris_common.dynamodb import DynamoDbCalls

EXEMPT_FOR: Final = timedelta(days=30)
LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an exemption: a table, a namespace's list (without `name`), or a catalog (also without
    `namespace`). A stored record without a readable subject has only its key, `record`."""

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
    """Something that has been unreadable `since` a time because of a `problem` (an error's code, a colon, its text).
    `table_uuid` and `metadata_location` are the table's current ones, "" and None if unknown. A `narrow` one concerns
    only purges of tables that overlap its areas, which are complete. `unread` are digests of the table's unreadable
    files, None if they are not known one by one."""

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
        """Whether it gave no answer while others did, in too few passes to count. It holds no purge, but no pass
        completes."""
        return 0 < len(self.unanswered) < UNANSWERED_PASSES

    @property
    def was_never_read(self) -> bool:
        """Whether nothing is known of a table, not even its metadata. No exemption covers such a table."""
        return self.subject.name is not None and not self.table_uuid

    @classmethod
    def of(cls, entry: TableEntry) -> "Blocking":
        """Return the blocking of an entry with a problem."""
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
    """An operator's decision, with a reason, that purges and expiries run although something is unreadable.

    It covers the table and the accepted `unread` files, and outlives commits as long as everything else is readable. If
    the files are not known, as for unreadable metadata, it ends at the next commit. It also ends when the table is
    readable again, when another table has the name, and at `until`. The removal of orphan files has no list of a
    table's files, so it never runs beside something unreadable.
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
        """Whether the exemption covers what is unreadable now."""
        same = (self.subject, self.table_uuid) == (blocking.subject, blocking.table_uuid)
        if self.unread is None:
            accepted = self.metadata_location == blocking.metadata_location
        else:
            accepted = blocking.unread is not None and blocking.unread <= self.unread
        return same and accepted and now < self.until and not blocking.was_never_read


UNKNOWN_AREA: Final = "file:///"
"""The area of a table of another format without a known location. Earlier releases read it as outside every bucket."""


@dataclass(frozen=True, slots=True)
class LocatedTable:
    """A table of another format: only the area of its files is known, or UNKNOWN_AREA. With a `problem` the stored area
    is unreadable, and work on the catalog waits until a pass stores it again."""

    subject: Subject
    area: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class HeldPurge:
    task_id: str
    subject: Subject


FORMAT: Final = 1
DIGEST_BYTES: Final = 8


class BlockingStore:
    """Unlisted namespaces, tables of other formats, exemptions, held purges and lost refs. Every write may be repeated.
    Every method raises ReferencesUnavailable."""

    def __init__(self, dynamodb: DynamoDbCalls, table: str) -> None:
        self._items = Items(dynamodb, table, ("pk", "sk"), dict[str, Any], dict[str, Any])

    def unlisted(self, catalog: str) -> list[Blocking]:
        """Return the namespaces that cannot be listed, or the catalog itself. An unreadable record blocks until the
        next pass stores or removes it."""
        blockings = readable(
            self._query(f"unlisted:{catalog}"),
            lambda item: _blocking(catalog, item),
            lambda item, problem: Blocking(_known_subject(catalog, item), problem, None),
            name="references.unlisted",
            shown=_key_of,
        )
        return list(blockings)

    def put_unlisted(self, blocking: Blocking) -> None:
        """Store a blocking; replaces its earlier record."""
        since = {} if blocking.since is None else {"since": isoformat(blocking.since)}
        passes = {"unanswered": list(blocking.unanswered)} if blocking.unanswered else {}
        self._put("unlisted", blocking.subject, problem=blocking.problem, **since, **passes)

    def remove_unlisted(self, subject: Subject) -> None:
        self._remove_of("unlisted", subject)

    def located(self, catalog: str) -> list[LocatedTable]:
        """Return located tables. An unreadable one protects its area, or blocks without one, until the next pass."""
        tables = readable(
            self._query(f"located:{catalog}"),
            lambda item: _located(catalog, item),
            lambda item, problem: _damaged_located(catalog, item, problem),
            name="references.located",
            shown=_key_of,
        )
        return list(tables)

    def put_located(self, table: LocatedTable) -> None:
        self._put("located", table.subject, area=table.area)

    def remove_located(self, table: LocatedTable) -> None:
        self._remove_of("located", table.subject)

    def exemptions(self, catalog: str) -> list[Exemption]:
        """Return exemptions. An unreadable record exempts nothing."""
        items = self._query(f"exemption:{catalog}")
        return list(
            readable(items, lambda item: _exemption(catalog, item), name="references.exemptions", shown=_key_of)
        )

    def put_exemption(self, exemption: Exemption) -> None:
        location = exemption.metadata_location
        self._put(
            "exemption",
            exemption.subject,
            table_uuid=exemption.table_uuid,
            **({} if location is None else {"metadata_location": location}),
            **({} if exemption.unread is None else {"unread": packed(exemption.unread)}),
            why=exemption.why,
            by=exemption.by,
            at=isoformat(exemption.at),
            until=isoformat(exemption.until),
        )

    def remove_exemption(self, subject: Subject) -> None:
        self._remove(f"exemption:{subject.catalog}", _hash(subject))

    def held(self, catalog: str) -> list[HeldPurge]:
        """Return the purges held by something in a catalog; some may have ended. An unreadable record is left out, and
        its purge runs within an hour."""
        items = self._query(f"held:{catalog}")
        return list(readable(items, lambda item: _held(catalog, item), name="references.held", shown=_key_of))

    def put_held(self, purge: HeldPurge) -> None:
        """Store a held purge; replaces its earlier record."""
        key = {"pk": f"held:{purge.subject.catalog}", "sk": purge.task_id}
        self._put_item({**key, **_subject_item(purge.subject)})

    def remove_held(self, purge: HeldPurge) -> None:
        self._remove(f"held:{purge.subject.catalog}", purge.task_id)

    def lost_refs(self, catalog: str) -> list[LostRefs]:
        """Return a catalog's lost refs, expired ones too. An unreadable record keeps its copy, which its key names,
        until it is dismissed."""
        lost = readable(
            self._query(f"lost-refs:{catalog}"),
            lambda item: _lost(catalog, item),
            lambda item, _problem: _damaged_lost(catalog, item),
            name="references.lost",
            shown=_key_of,
        )
        return list(lost)

    def put_lost_refs(self, lost: LostRefs) -> None:
        """Store lost refs; replaces the earlier record of the same metadata file."""
        identifier = lost.identifier
        self._put_item(
            {
                "pk": f"lost-refs:{identifier.catalog}",
                "sk": lost.key,
                "namespace": list(identifier.namespace),
                "name": identifier.name,
                "table_uuid": lost.table_uuid,
                "metadata_file": lost.metadata_file,
                "copy": lost.copy,
                # A DynamoDB number has 38 digits, but readers in other languages may convert it to a double.
                "refs": {name: str(snapshot_id) for name, snapshot_id in lost.refs.items()},
                "count": lost.count,
                "task_id": lost.task_id,
                "at": isoformat(lost.at),
                "until": isoformat(lost.until),
                **({} if lost.areas is None else {"areas": list(lost.areas)}),
            }
        )

    def remove_lost_refs(self, lost: LostRefs) -> None:
        """Remove lost refs. Files that only they needed may then be deleted."""
        self._remove(f"lost-refs:{lost.identifier.catalog}", lost.key)

    def _put(self, kind: str, subject: Subject, **fields: Any) -> None:
        key = {"pk": f"{kind}:{subject.catalog}", "sk": _hash(subject)}
        self._put_item({**key, **_subject_item(subject), **fields})

    def _put_item(self, item: Mapping[str, Any]) -> None:
        self._items.put({**item, "format": FORMAT})

    def _remove(self, pk: str, sk: str) -> None:
        self._items.remove({"pk": pk, "sk": sk})

    def _remove_of(self, kind: str, subject: Subject) -> None:
        """Remove a subject's record; a damaged record only if no readable one has replaced it."""
        pk, sk = f"{kind}:{subject.catalog}", subject.record or _hash(subject)
        stored = () if subject.record is None else self._query(pk, sk)
        if all(_known_subject(subject.catalog, item).record for item in stored):
            self._remove(pk, sk)

    def _query(self, pk: str, prefix: str = "", **more: Any) -> Iterator[dict[str, Any]]:
        condition = "pk = :pk AND begins_with(sk, :prefix)" if prefix else "pk = :pk"
        values = {":pk": pk, ":prefix": prefix} if prefix else {":pk": pk}
        return self._items.query(condition, values, ConsistentRead=True, **more)


def _hash(subject: Subject) -> str:
    """Return the hash of a subject. A table's never equals a namespace's, because no table has an empty name."""
    text = NAMESPACE_SEPARATOR.join((*subject.namespace, subject.name or ""))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _subject_item(subject: Subject) -> dict[str, Any]:
    return {"namespace": list(subject.namespace), **({} if subject.name is None else {"name": subject.name})}


def _subject(catalog: str, item: Mapping[str, Any]) -> Subject:
    return Subject(catalog, _texts(item, "namespace"), None if "name" not in item else _text(item, "name"))


def _checked_subject(catalog: str, item: Mapping[str, Any]) -> Subject:
    """Return the subject of an item. Raises ValueError if the key belongs to another subject."""
    subject = _subject(catalog, item)
    if _hash(subject) != item["sk"]:
        raise ValueError("sk is not the key of the namespace and the name")
    return subject


def _known_subject(catalog: str, item: Mapping[str, Any]) -> Subject:
    """Return the subject of a damaged item, or only its key if the subject is unreadable."""
    try:
        return _checked_subject(catalog, item)
    except (KeyError, TypeError, ValueError):
        return Subject(catalog, record=item["sk"])


def _blocking(catalog: str, item: Mapping[str, Any]) -> Blocking:
    since = stored_time(item["since"]) if "since" in item else None
    unanswered = tuple(map(int, item.get("unanswered", ())))
    return Blocking(_checked_subject(catalog, item), _text(item, "problem"), since, unanswered=unanswered)


def _located(catalog: str, item: Mapping[str, Any]) -> LocatedTable:
    return LocatedTable(_checked_subject(catalog, item), _area(item["area"]))


def _text(item: Mapping[str, Any], name: str) -> str:
    if not isinstance(item[name], str):
        raise TypeError(f"{name} is not a text")
    return str(item[name])


def _texts(item: Mapping[str, Any], name: str) -> tuple[str, ...]:
    texts = item[name]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name} is not a list of texts")
    return tuple(texts)


def _area(stored: Any) -> str:
    if not isinstance(stored, str) or not (stored == EVERYWHERE or stored.startswith(("s3://", "file:///"))):
        raise ValueError("area is not a canonical location")
    return stored


def _damaged_located(catalog: str, item: Mapping[str, Any], problem: str) -> LocatedTable:
    subject = _known_subject(catalog, item)
    try:
        return LocatedTable(subject, _area(item.get("area")))
    except ValueError:
        return LocatedTable(subject, UNKNOWN_AREA, problem)


def _lost(catalog: str, item: Mapping[str, Any]) -> LostRefs:
    lost = LostRefs(
        identifier=TableIdentifier(catalog, _texts(item, "namespace"), _text(item, "name")),
        table_uuid=_text(item, "table_uuid"),
        metadata_file=_text(item, "metadata_file"),
        copy=_text(item, "copy"),
        refs={name: int(snapshot_id) for name, snapshot_id in item["refs"].items()},
        count=int(item["count"]),
        task_id=_text(item, "task_id"),
        at=stored_time(item["at"]),
        until=stored_time(item["until"]),
        areas=tuple(map(_area, _texts(item, "areas"))) if "areas" in item else None,
    )
    if lost.key != item["sk"]:
        raise ValueError("sk is not the key of the table and its metadata file")
    return lost


def _damaged_lost(catalog: str, item: Mapping[str, Any]) -> LostRefs:
    """Return the table and metadata file of a damaged item. Its areas are not trusted."""
    key = item["sk"]
    shown = {name: value for name in ("table_uuid", "metadata_file") if isinstance(value := item.get(name), str)}
    return LostRefs(
        identifier=TableIdentifier(catalog, ("damaged record",), key),
        table_uuid=shown.get("table_uuid", ""),
        metadata_file=shown.get("metadata_file", ""),
        copy=copy_of(key),
        refs={},
        count=0,
        task_id="",
        at=datetime.min.replace(tzinfo=UTC),
        until=datetime.max.replace(tzinfo=UTC),
        record=key,
    )


def _key_of(item: Mapping[str, Any]) -> str:
    return f"{item.get('pk')} {item.get('sk')}"


def _held(catalog: str, item: Mapping[str, Any]) -> HeldPurge:
    return HeldPurge(item["sk"], _subject(catalog, item))


def _exemption(catalog: str, item: Mapping[str, Any]) -> Exemption:
    return Exemption(
        _subject(catalog, item),
        item["table_uuid"],
        item.get("metadata_location"),
        why=item["why"],
        by=item["by"],
        at=stored_time(item["at"]),
        until=stored_time(item["until"]),
        unread=unpacked(item.get("unread")),
    )


def packed(digests: frozenset[bytes]) -> bytes:
    return b"".join(sorted(digests))


def unpacked(value: Any) -> frozenset[bytes] | None:
    """Return the digests in an attribute, None if it is missing or not bytes."""
    joined = bytes(getattr(value, "value", b""))
    return frozenset(joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)) or None
