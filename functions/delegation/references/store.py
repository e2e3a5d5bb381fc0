"""The reference index in one DynamoDB table with a string partition key `pk` and a string sort key `sk`.

| item | pk | sk |
|---|---|---|
| a table's entry | `catalog:CATALOG` | `table:HASH` of its namespace and name |
| one of its areas; EVERYWHERE has an empty bucket | `area:CATALOG:BUCKET` | `KEY NUL HASH` |
| its problem, if any | `problem:CATALOG` | `HASH` |
| refreshes of a catalog | `catalog:CATALOG` | `pass` |

A table is found by an area with one Query below the area, one for each area around it and one for EVERYWHERE, whatever
the size of the catalog. Areas are put before the entry that names them and removed after it, so after a crash a table
may be found too often, but is never missed. Every item has the revision of its entry, so a process that was paused
neither replaces nor deletes newer items.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from itertools import chain
from typing import Any, Final

from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier
from delegation.references.blocking import Blocking, BlockingStore, HeldPurge, packed, unpacked
from delegation.references.errors import PassLost, ReferencesError, ReferencesOutcomeUnknown, ReferencesUnavailable
from delegation.references.model import EVERYWHERE, CatalogPass, TableEntry, around, fold
from delegation.storage.locations import split
from delegation.timestamps import isoformat, stored_time
from polaris_common.dynamodb import DynamoDbCalls, to_item

FORMAT: Final = 1
_WRITES_A_CALL: Final = 25
"""DynamoDB API Reference, BatchWriteItem."""
_END: Final = "\x00"
_HASH_LENGTH: Final = 32
_DAMAGED: Final = -1
"""The revision of an item without a positive number."""


class ReferenceTable(DynamoDbCalls):
    unavailable = ReferencesUnavailable
    unknown = ReferencesOutcomeUnknown


class ReferenceStore(BlockingStore):
    """Entries by catalog and table, found by area, and one CatalogPass per catalog. Every method raises
    ReferencesUnavailable. Writes may be repeated after any error."""

    def entries(self, catalog: str) -> Iterator[TableEntry]:
        """Yield all entries of a catalog, without manifest digests, in any order."""
        names = {"#name": "name"}
        shown = (
            "pk, sk, namespace, #name, table_uuid, metadata_location, areas, etag, revision, displaced, absent, "
            "cloned, problem, problem_location, problem_since, unanswered, unread"
        )
        for item in self._query(
            f"catalog:{catalog}", "table:", ProjectionExpression=shown, ExpressionAttributeNames=names
        ):
            if (identifier := self._named(catalog, item)) is not None:  # otherwise its areas protect under its hash
                yield _entry_of(identifier, item)

    def get(self, identifier: TableIdentifier) -> TableEntry | None:
        item = self._get(f"catalog:{identifier.catalog}", f"table:{_hash(identifier)}")
        return None if item is None else _entry_of(identifier, item)

    def clones(self, catalog: str, table_uuid: str) -> frozenset[TableIdentifier]:
        """Return the tables whose entries have a uuid; clones share one. Reads every entry of the catalog."""
        items = self._query(
            f"catalog:{catalog}",
            "table:",
            ProjectionExpression="pk, sk, namespace, #name, table_uuid, areas",
            ExpressionAttributeNames={"#name": "name"},
        )
        clones = (self._named(catalog, item) for item in items if item.get("table_uuid") == table_uuid)
        return frozenset(identifier for identifier in clones if identifier is not None)

    def put(self, entry: TableEntry) -> None:
        """Replace a table's entry, bounded, by the next revision if the stored entry has this one's revision. Raises
        PassLost otherwise: a paused process must not hide newer areas. Until it returns, and after a crash, the table
        is found by old and new areas."""
        self._put_entry(entry)

    def _put_entry(self, entry: TableEntry) -> int:
        identifier = entry.identifier
        entry = entry.bounded()
        key = {"pk": f"catalog:{identifier.catalog}", "sk": f"table:{_hash(identifier)}"}
        stored = self._get(key["pk"], key["sk"]) or {}
        before = entry.revision
        if stored and _identifier(identifier.catalog, stored) != identifier:
            before = _revision(stored)  # no reader knew the entry
        if stored and _revision(stored) != before:
            raise PassLost(f"another process wrote the references of {identifier}")
        former = _texts(stored, "areas") - set(entry.areas)
        # The previous put retired these. They are removed first, so that an item does not collect many tables' areas.
        for area in sorted(_texts(stored, "retired") - _texts(stored, "areas") - set(entry.areas)):
            self._delete(_area_key(identifier, area), entry.revision)
        areas = self._of_areas(identifier.catalog, stored) if before == _DAMAGED else ()
        revision = 1 + max((before, 0, *map(_revision, areas)))
        common = {"namespace": list(identifier.namespace), "name": identifier.name, "revision": revision}
        problem = {"pk": f"problem:{identifier.catalog}", "sk": _hash(identifier)}
        found_by = [{**_area_key(identifier, area), **common} for area in entry.areas]
        if entry.problem is not None:
            found_by.append({**problem, **common, **_problem_attributes(entry)})
        self._put_all(found_by)
        item = {**key, **common, "format": FORMAT, **_attributes(entry), "retired": sorted(former)}
        if not self._put_unmoved(item, before, stored):
            raise PassLost(f"another process wrote the references of {identifier}")
        for area in sorted(former):
            self._delete(_area_key(identifier, area), revision)
        if entry.problem is None and "problem" in stored:
            self._delete(problem, revision)
        return revision

    def remove(self, entry: TableEntry) -> None:
        """Remove a table's entry if it still has this revision."""
        identifier = entry.identifier
        key = {"pk": f"catalog:{identifier.catalog}", "sk": f"table:{_hash(identifier)}"}
        stored = self._get(key["pk"], key["sk"])
        if stored is None or _revision(stored) != entry.revision:
            return
        if entry.revision == _DAMAGED:
            # Without a new revision, the items of a later put would be removed too.
            entry = replace(entry, revision=self._put_entry(entry))
        for area in sorted(_texts(stored, "areas") | _texts(stored, "retired")):
            self._delete(_area_key(identifier, area), entry.revision)
        self._delete({"pk": f"problem:{identifier.catalog}", "sk": _hash(identifier)}, entry.revision)
        self._delete(key, entry.revision)

    def overlapping(self, catalog: str, areas: Sequence[str]) -> frozenset[TableIdentifier]:
        """Return the tables with an area at, below or above one of these, and all with EVERYWHERE."""
        tables = {self._required_name(catalog, item) for item in self._at(catalog, EVERYWHERE)}
        for area in {folded for asked in areas for folded in fold([asked])}:
            bucket, key = split(area)
            below = self._query(f"area:{catalog}:{bucket}", key)
            beside = (item for wider in around(area)[1:] for item in self._at(catalog, wider))
            tables.update(self._required_name(catalog, item) for item in chain(below, beside))
        return frozenset(tables)

    def _named(self, catalog: str, item: Mapping[str, Any]) -> TableIdentifier | None:
        """Return the table of an item. A damaged name is found by its hash in the keys of other items."""
        if (identifier := _identifier(catalog, item)) is not None:
            return identifier
        entry = self._get(f"catalog:{catalog}", f"table:{_hash_in(item)}")
        others = () if entry is None else chain([entry], self._of_areas(catalog, entry))
        names = (_identifier(catalog, other) for other in others)
        return next((name for name in names if name is not None), None)

    def _of_areas(self, catalog: str, entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the items of an entry's areas, by the hash in its key."""
        for bucket, key in map(split, sorted(_texts(entry, "areas"))):
            item = self._get(f"area:{catalog}:{bucket}", f"{key}{_END}{_hash_in(entry)}")
            if item is not None:
                yield item

    def _required_name(self, catalog: str, item: Mapping[str, Any]) -> TableIdentifier:
        if (identifier := self._named(catalog, item)) is None:
            raise ReferencesError(f"the item {item['pk']!r}, {item['sk']!r} of the reference index names no table")
        return identifier

    def _at(self, catalog: str, area: str) -> Iterator[dict[str, Any]]:
        """Yield the items of tables with exactly this area. A key may contain NUL; the hash after it does not."""
        bucket, key = split(area)
        items = self._query(f"area:{catalog}:{bucket}", f"{key}{_END}")
        return (item for item in items if item["sk"].rpartition(_END)[0] == key)

    def unreadable(self, catalog: str) -> list[TableEntry]:
        """Return the entries with a problem, without ETags, areas and digests."""
        items = self._query(f"problem:{catalog}")
        return [_entry_of(self._required_name(catalog, item), item) for item in items]

    def pass_of(self, catalog: str) -> CatalogPass:
        """Return the state of the catalog's refreshes, an empty one before the first."""
        item = self._get(f"catalog:{catalog}", "pass")
        return CatalogPass(catalog) if item is None else _pass_of(catalog, item)

    def write_pass(self, before: CatalogPass, after: CatalogPass) -> CatalogPass:
        """Replace the state atomically if it is still `before`; return the stored one. Raises PassLost if another
        process wrote meanwhile."""
        written = replace(after, revision=max(before.revision, 0) + 1)
        stored = self._get(f"catalog:{before.catalog}", "pass") if before.revision == _DAMAGED else None
        if not self._put_unmoved(_pass_item(written), before.revision, stored):
            raise PassLost(f"another process took over the refresh of catalog {before.catalog}")
        return written

    def _get(self, pk: str, sk: str) -> dict[str, Any] | None:
        return self._items.get({"pk": pk, "sk": sk})

    def _put_unmoved(self, item: Mapping[str, Any], revision: int, stored: Mapping[str, Any] | None) -> bool:
        """Put an item if the stored one still has this revision, or, for 0, if none is stored. Returns whether it was
        put. A damaged revision must still have its value in `stored`."""
        if revision != _DAMAGED:
            return self._items.replace(dict(item), revision or None)
        condition = "attribute_exists(pk) AND (NOT attribute_type(revision, :number) OR revision = :before)"
        values = {":number": "N", ":before": (stored or {}).get("revision")}
        return self._items.write("put_item", (condition, values), Item=to_item(item))

    def _delete(self, key: Mapping[str, Any], revision: int) -> None:
        """Delete an item, unless a later revision of its entry has put it again."""
        condition = "attribute_not_exists(pk) OR revision <= :last", {":last": revision}
        self._items.write("delete_item", condition, Key=to_item(key))

    def _put_all(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Put items; may be repeated. Unprocessed items are retried as often as other calls."""
        requests = [{"PutRequest": {"Item": to_item(item)}} for item in items]
        for at in range(0, len(requests), _WRITES_A_CALL):
            self._write_all(requests[at : at + _WRITES_A_CALL])

    def _write_all(self, requests: list[dict[str, Any]]) -> None:
        for attempt in range(self._items.calls.tries):
            self._items.calls.wait(attempt)
            answer = self._items.calls.repeatable("batch_write_item", RequestItems={self._items.table: requests})
            requests = answer.get("UnprocessedItems", {}).get(self._items.table, [])
            if not requests:
                return
        raise ReferencesUnavailable(f"{len(requests)} writes to the reference index were not processed")


def _hash(identifier: TableIdentifier) -> str:
    text = NAMESPACE_SEPARATOR.join((*identifier.namespace, identifier.name))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def _area_key(identifier: TableIdentifier, area: str) -> dict[str, str]:
    bucket, key = split(area)
    return {"pk": f"area:{identifier.catalog}:{bucket}", "sk": f"{key}{_END}{_hash(identifier)}"}


def _hash_in(item: Mapping[str, Any]) -> str:
    """Return the hash of the table's name from the key of any of its items."""
    return str(item["sk"])[-_HASH_LENGTH:]


def _identifier(catalog: str, item: Mapping[str, Any]) -> TableIdentifier | None:
    """Return an item's table, None if its key has another name's hash."""
    try:
        identifier = TableIdentifier(catalog, tuple(item["namespace"]), item["name"])
        return identifier if _hash(identifier) == _hash_in(item) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _revision(item: Mapping[str, Any]) -> int:
    stored = item.get("revision")
    return int(stored) if isinstance(stored, Decimal) and stored >= 1 and stored == int(stored) else _DAMAGED


def _attributes(entry: TableEntry) -> dict[str, Any]:
    """Return an entry's attributes besides key, name and revision."""
    return {
        "areas": list(entry.areas),
        "seen": packed(entry.seen),
        **({} if entry.etag is None else {"etag": entry.etag}),
        **_problem_attributes(entry),
    }


def _problem_attributes(entry: TableEntry) -> dict[str, Any]:
    """Return the attributes that an entry's item and its problem's item share."""
    since = entry.problem_since
    optional = {
        "problem": entry.problem,
        "problem_location": entry.problem_location,
        "problem_since": None if since is None else isoformat(since),
    }
    return {
        "table_uuid": entry.table_uuid,
        "metadata_location": entry.metadata_location,
        **{name: value for name, value in optional.items() if value is not None},
        **({"displaced": sorted(entry.displaced)} if entry.displaced else {}),
        **({"absent": True} if entry.absent else {}),
        **({"cloned": True} if entry.cloned else {}),
        **({"unanswered": list(entry.unanswered)} if entry.unanswered else {}),
        **({"unread": packed(entry.unread)} if entry.unread else {}),
    }


def _entry_of(identifier: TableIdentifier, item: Mapping[str, Any]) -> TableEntry:
    """Return an entry. A damaged one counts as an unreadable table, which the next pass visits."""
    try:
        return _whole_entry(identifier, item)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        from delegation.items import reason_of  # noqa: PLC0415 - most processes read no such entry

        areas = tuple(sorted(_texts(item, "areas")))
        return TableEntry(identifier, "", "", areas, problem=reason_of(error), revision=_revision(item))


def _texts(item: Mapping[str, Any], name: str) -> set[str]:
    """Return a stored list of texts. An area's item that a damaged list does not name stays, and protects."""
    texts = item.get(name)
    return {text for text in texts if isinstance(text, str)} if isinstance(texts, list) else set()


def _whole_entry(identifier: TableIdentifier, item: Mapping[str, Any]) -> TableEntry:
    for name in ("areas", "displaced"):
        if len(_texts(item, name)) < len(item.get(name, ())):
            raise TypeError(f"{name} is not a list of texts")
    for name in ("table_uuid", "metadata_location", "etag", "problem", "problem_location"):
        if not isinstance(item.get(name, ""), str):
            raise TypeError(f"{name} is no text")
    if _revision(item) == _DAMAGED or _identifier(identifier.catalog, item) is None:
        raise ValueError("revision or name is damaged")
    return TableEntry(
        identifier=identifier,
        table_uuid=item["table_uuid"],
        metadata_location=item["metadata_location"],
        areas=tuple(item.get("areas", ())),
        etag=item.get("etag"),
        seen=unpacked(item.get("seen")) or frozenset(),  # without it all manifests are read again
        problem=item.get("problem"),
        revision=_revision(item),
        displaced=frozenset(item.get("displaced", ())),
        absent=bool(item.get("absent", False)),
        cloned=bool(item.get("cloned", False)),
        problem_location=item.get("problem_location"),
        problem_since=stored_time(item["problem_since"]) if "problem_since" in item else None,
        unanswered=tuple(map(int, item.get("unanswered", ()))),
        unread=unpacked(item.get("unread")),
    )


_TIMES: Final = ("complete_as_of", "owned_until", "began_at", "completed_at", "problem_since")
_POSITIONS: Final = ("position", "again_to")
_NUMBERS: Final = ("number", "complete", "again", "strayed", "moved_again", "uncounted")


def _pass_item(state: CatalogPass) -> dict[str, Any]:
    item: dict[str, Any] = {"pk": f"catalog:{state.catalog}", "sk": "pass", "format": FORMAT}
    times = {name: getattr(state, name) for name in _TIMES}
    item |= {name: isoformat(moment) for name, moment in times.items() if moment is not None}
    item |= {"checked": state.checked, "revision": state.revision}
    item |= {} if state.tables is None else {"tables": state.tables}
    item |= {} if state.owner is None else {"owner": state.owner}
    item |= {} if state.problem is None else {"problem": state.problem}
    # Earlier releases do not write these numbers, so they may restart.
    item |= {name: value for name in _NUMBERS if (value := getattr(state, name))}
    positions = {name: getattr(state, name) for name in _POSITIONS}
    return item | {name: list(position) for name, position in positions.items() if position is not None}


def _pass_of(catalog: str, item: Mapping[str, Any]) -> CatalogPass:
    """Return a catalog's state. A damaged record keeps the number of its passes, and a pass is due."""
    try:
        return _whole_pass(catalog, item)
    except (KeyError, TypeError, ValueError):
        numbers = (int(n) for name in ("number", "complete") if isinstance(n := item.get(name), Decimal))
        return CatalogPass(catalog, number=max(numbers, default=0), revision=_revision(item))


def _whole_pass(catalog: str, item: Mapping[str, Any]) -> CatalogPass:
    if _revision(item) == _DAMAGED:
        raise ValueError("revision is damaged")
    times: dict[str, Any] = {name: stored_time(item[name]) if name in item else None for name in _TIMES}
    positions: dict[str, Any] = {name: tuple(item[name]) if name in item else None for name in _POSITIONS}
    return CatalogPass(
        catalog=catalog,
        tables=int(item["tables"]) if "tables" in item else None,
        owner=item.get("owner"),
        problem=item.get("problem"),
        checked=int(item["checked"]),
        revision=_revision(item),
        number=int(item.get("number", 0)),
        complete=int(item.get("complete", 0)),
        again=bool(item.get("again", False)),
        strayed=bool(item.get("strayed", False)),
        moved_again=bool(item.get("moved_again", False)),
        uncounted=int(item.get("uncounted", 0)),
        **positions,
        **times,
    )


def blocking_of(store: ReferenceStore, catalog: str) -> list[Blocking]:
    """Return everything in a catalog that cannot be read or listed, tables first."""
    return [*map(Blocking.of, store.unreadable(catalog)), *store.unlisted(catalog)]


def freed(store: ReferenceStore, catalog: str, now: datetime) -> list[HeldPurge]:
    """Return the held purges whose subject is now readable, gone or exempt."""
    held = store.held(catalog)
    if not held:
        return []
    exemptions = {exemption.subject: exemption for exemption in store.exemptions(catalog)}
    blocking = {
        unreadable.subject
        for unreadable in blocking_of(store, catalog)
        if not unreadable.is_doubted
        and (unreadable.subject not in exemptions or not exemptions[unreadable.subject].covers(unreadable, now))
    }
    return [purge for purge in held if purge.subject not in blocking]
