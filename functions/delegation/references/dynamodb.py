"""ReferenceStore on one DynamoDB table with a string partition key `pk` and a string sort key `sk`.

| item | pk | sk |
|---|---|---|
| entry of a table | `catalog:CATALOG` | `table:HASH` of its namespace and name |
| one of its areas; that around every bucket has no name of one | `area:CATALOG:BUCKET` | `KEY NUL HASH` |
| its problem, if it has one | `problem:CATALOG` | `HASH` |
| refreshes of a catalog | `catalog:CATALOG` | `pass` |

A table is found by an area with one Query below the area and one for each area around it, whatever the size of the
catalog; those of EVERYWHERE are found by one Query more. Areas are put before the entry that names them and removed
after it, so a crash leaves a table that is found once too often, never one that is not found. Every item has the
revision of its entry, so a process that was paused neither replaces nor deletes what another one wrote since.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier
from delegation.references.areas import EVERYWHERE, around, fold
from delegation.references.blocking.dynamodb import DynamoDbBlocking, packed, unpacked
from delegation.references.errors import PassLost, ReferencesOutcomeUnknown, ReferencesUnavailable
from delegation.references.model import CatalogPass, TableEntry
from delegation.storage.locations import split
from delegation.timestamps import isoformat, stored_time
from polaris_common.dynamodb import DynamoDbCalls, from_item, to_item

FORMAT: Final = 1
_WRITES_A_CALL: Final = 25
"""DynamoDB API Reference, BatchWriteItem."""
_END: Final = "\x00"


class ReferenceTable(DynamoDbCalls):
    unavailable = ReferencesUnavailable
    unknown = ReferencesOutcomeUnknown


class DynamoDbReferenceStore(DynamoDbBlocking):
    def entries(self, catalog: str) -> Iterator[TableEntry]:
        names = {"#name": "name"}
        shown = (
            "sk, namespace, #name, table_uuid, metadata_location, areas, etag, revision, displaced, absent, "
            "cloned, problem, problem_location, problem_since, unanswered, unread"
        )
        for item in self._query(
            f"catalog:{catalog}", "table:", ProjectionExpression=shown, ExpressionAttributeNames=names
        ):
            yield _entry_of(catalog, item)

    def get(self, identifier: TableIdentifier) -> TableEntry | None:
        item = self._get(f"catalog:{identifier.catalog}", f"table:{_hash(identifier)}")
        return None if item is None else _entry_of(identifier.catalog, item)

    def clones(self, catalog: str, table_uuid: str) -> frozenset[TableIdentifier]:
        found = self._query(
            f"catalog:{catalog}",
            "table:",
            ProjectionExpression="namespace, #name, table_uuid",
            ExpressionAttributeNames={"#name": "name"},
        )
        return frozenset(_identifier(catalog, one) for one in found if one.get("table_uuid") == table_uuid)

    def put(self, entry: TableEntry) -> None:
        identifier = entry.identifier
        entry = entry.bounded()
        key = {"pk": f"catalog:{identifier.catalog}", "sk": f"table:{_hash(identifier)}"}
        stored = self._get(key["pk"], key["sk"]) or {}
        if stored and stored["revision"] != entry.revision:
            raise PassLost(f"another process wrote the references of {identifier}")
        former = _texts(stored, "areas") - set(entry.areas)
        # What the put before this one retired; it is removed first, so that no item collects the areas of many.
        for area in sorted(_texts(stored, "retired") - _texts(stored, "areas") - set(entry.areas)):
            self._delete(_area_key(identifier, area), entry.revision)
        revision = entry.revision + 1
        common = {"namespace": list(identifier.namespace), "name": identifier.name, "revision": revision}
        problem = {"pk": f"problem:{identifier.catalog}", "sk": _hash(identifier)}
        found_by = [{**_area_key(identifier, area), **common} for area in entry.areas]
        if entry.problem is not None:
            found_by.append({**problem, **common, **_problem_attributes(entry)})
        self._put_all(found_by)
        item = {**key, **common, "format": FORMAT, **_attributes(entry), "retired": sorted(former)}
        if self._conditional("put_item", entry.revision, Item=to_item(item)) is not None:
            raise PassLost(f"another process wrote the references of {identifier}")
        for area in sorted(former):
            self._delete(_area_key(identifier, area), revision)
        if entry.problem is None and "problem" in stored:
            self._delete(problem, revision)

    def remove(self, entry: TableEntry) -> None:
        identifier = entry.identifier
        key = {"pk": f"catalog:{identifier.catalog}", "sk": f"table:{_hash(identifier)}"}
        stored = self._get(key["pk"], key["sk"])
        if stored is None or stored["revision"] != entry.revision:
            return
        for area in sorted(_texts(stored, "areas") | _texts(stored, "retired")):
            self._delete(_area_key(identifier, area), entry.revision)
        self._delete({"pk": f"problem:{identifier.catalog}", "sk": _hash(identifier)}, entry.revision)
        self._delete(key, entry.revision)

    def overlapping(self, catalog: str, areas: Sequence[str]) -> frozenset[TableIdentifier]:
        found = {_identifier(catalog, item) for item in self._at(catalog, EVERYWHERE)}
        for area in {one for asked in areas for one in fold([asked])}:
            bucket, key = split(area)
            found.update(_identifier(catalog, item) for item in self._query(f"area:{catalog}:{bucket}", key))
            found.update(_identifier(catalog, item) for one in around(area)[1:] for item in self._at(catalog, one))
        return frozenset(found)

    def _at(self, catalog: str, area: str) -> Iterator[dict[str, Any]]:
        """The items of tables with exactly this area; a key may contain NUL, the hash after it does not."""
        bucket, key = split(area)
        items = self._query(f"area:{catalog}:{bucket}", f"{key}{_END}")
        return (item for item in items if item["sk"].rpartition(_END)[0] == key)

    def unreadable(self, catalog: str) -> list[TableEntry]:
        items = self._query(f"problem:{catalog}", "")
        return [_entry_of(catalog, item) for item in items]

    def pass_of(self, catalog: str) -> CatalogPass:
        item = self._get(f"catalog:{catalog}", "pass")
        return CatalogPass(catalog) if item is None else _pass_of(catalog, item)

    def write_pass(self, before: CatalogPass, after: CatalogPass) -> CatalogPass:
        written = replace(after, revision=before.revision + 1)
        condition = "revision = :before" if before.revision else "attribute_not_exists(pk)"
        values = {"ExpressionAttributeValues": to_item({":before": before.revision})} if before.revision else {}
        refused = self._dynamodb.conditional(
            "put_item",
            TableName=self._table,
            Item=to_item(_pass_item(written)),
            ConditionExpression=condition,
            **values,
        )
        if refused is not None:
            raise PassLost(f"another process refreshes the references of catalog {before.catalog}")
        return written

    def _get(self, pk: str, sk: str) -> dict[str, Any] | None:
        key = to_item({"pk": pk, "sk": sk})
        answer = self._dynamodb.repeatable("get_item", TableName=self._table, Key=key, ConsistentRead=True)
        return from_item(answer["Item"]) if "Item" in answer else None

    def _conditional(self, operation: str, revision: int, **arguments: Any) -> Mapping[str, Any] | None:
        """Write an item that still has this revision, or none for 0; return what refused it."""
        condition = "revision = :before" if revision else "attribute_not_exists(pk)"
        values = {"ExpressionAttributeValues": to_item({":before": revision})} if revision else {}
        return self._dynamodb.conditional(
            operation, TableName=self._table, ConditionExpression=condition, **arguments, **values
        )

    def _delete(self, key: Mapping[str, Any], revision: int) -> None:
        """Delete an item, unless a later revision of its entry put it again."""
        self._dynamodb.conditional(
            "delete_item",
            TableName=self._table,
            Key=to_item(key),
            ConditionExpression="attribute_not_exists(pk) OR revision <= :last",
            ExpressionAttributeValues=to_item({":last": revision}),
        )

    def _put_all(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Put items, each repeatable; what DynamoDB left unprocessed is sent again, as often as other calls."""
        requests = [{"PutRequest": {"Item": to_item(item)}} for item in items]
        for at in range(0, len(requests), _WRITES_A_CALL):
            self._write_all(requests[at : at + _WRITES_A_CALL])

    def _write_all(self, requests: list[dict[str, Any]]) -> None:
        for attempt in range(self._dynamodb.tries):
            self._dynamodb.wait(attempt)
            answer = self._dynamodb.repeatable("batch_write_item", RequestItems={self._table: requests})
            requests = answer.get("UnprocessedItems", {}).get(self._table, [])
            if not requests:
                return
        raise ReferencesUnavailable(f"{len(requests)} writes to the reference index were not processed")


def _hash(identifier: TableIdentifier) -> str:
    text = NAMESPACE_SEPARATOR.join((*identifier.namespace, identifier.name))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _area_key(identifier: TableIdentifier, area: str) -> dict[str, str]:
    bucket, key = split(area)
    return {"pk": f"area:{identifier.catalog}:{bucket}", "sk": f"{key}{_END}{_hash(identifier)}"}


def _identifier(catalog: str, item: Mapping[str, Any]) -> TableIdentifier:
    return TableIdentifier(catalog, tuple(item["namespace"]), item["name"])


def _attributes(entry: TableEntry) -> dict[str, Any]:
    """Return what an item holds of an entry besides its key, name and revision."""
    return {
        "areas": list(entry.areas),
        "seen": packed(entry.seen),
        **({} if entry.etag is None else {"etag": entry.etag}),
        **_problem_attributes(entry),
    }


def _problem_attributes(entry: TableEntry) -> dict[str, Any]:
    """Return what both the item of an entry and that of its problem hold."""
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


def _entry_of(catalog: str, item: Mapping[str, Any]) -> TableEntry:
    """Return an entry; one that is damaged is that of a table that cannot be read, which the next pass visits."""
    try:
        return _whole_entry(catalog, item)
    except (AttributeError, TypeError, ValueError) as error:
        from delegation.items import reason_of  # noqa: PLC0415 - most processes read no such entry

        areas, revision = tuple(sorted(_texts(item, "areas"))), int(item["revision"])
        return TableEntry(_identifier(catalog, item), "", "", areas, problem=reason_of(error), revision=revision)


def _texts(item: Mapping[str, Any], name: str) -> set[str]:
    """Return a stored list of texts; an item of an area that a damaged list does not name stays, and protects."""
    found = item.get(name)
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


def _whole_entry(catalog: str, item: Mapping[str, Any]) -> TableEntry:
    if len(_texts(item, "areas")) < len(item.get("areas", ())):
        raise TypeError("areas is no list of texts")
    return TableEntry(
        identifier=_identifier(catalog, item),
        table_uuid=item.get("table_uuid", ""),
        metadata_location=item.get("metadata_location", ""),
        areas=tuple(item.get("areas", ())),
        etag=item.get("etag"),
        seen=unpacked(item.get("seen")) or frozenset(),  # without it all manifests are read again
        problem=item.get("problem"),
        revision=int(item["revision"]),
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
    # A release before these numbers leaves them out of what it writes, so they may begin anew.
    item |= {name: value for name in _NUMBERS if (value := getattr(state, name))}
    positions = {name: getattr(state, name) for name in _POSITIONS}
    return item | {name: list(position) for name, position in positions.items() if position is not None}


def _pass_of(catalog: str, item: Mapping[str, Any]) -> CatalogPass:
    times: dict[str, Any] = {name: datetime.fromisoformat(item[name]) if name in item else None for name in _TIMES}
    positions: dict[str, Any] = {name: tuple(item[name]) if name in item else None for name in _POSITIONS}
    return CatalogPass(
        catalog=catalog,
        tables=int(item["tables"]) if "tables" in item else None,
        owner=item.get("owner"),
        problem=item.get("problem"),
        checked=int(item["checked"]),
        revision=int(item["revision"]),
        number=int(item.get("number", 0)),
        complete=int(item.get("complete", 0)),
        again=bool(item.get("again", False)),
        strayed=bool(item.get("strayed", False)),
        moved_again=bool(item.get("moved_again", False)),
        uncounted=int(item.get("uncounted", 0)),
        **positions,
        **times,
    )
