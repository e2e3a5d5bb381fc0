"""BlockingStore and LostRefsStore in the table of the reference index (`references.dynamodb`).

| item | pk | sk |
|---|---|---|
| a namespace or catalog that cannot be listed | `unlisted:CATALOG` | hash of its levels |
| a table of another format | `located:CATALOG` | hash of its name |
| an exemption | `exemption:CATALOG` | hash of what it names |
| a held purge | `held:CATALOG` | `TASK_ID` |
| lost refs | `lost-refs:CATALOG` | hash of the table's uuid and the metadata file |
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from delegation.dynamodb import DynamoDbCalls, from_item, to_item
from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier
from delegation.references.blocking.model import Blocking, Exemption, HeldPurge, LocatedTable, Subject
from delegation.references.lost import LostRefs
from delegation.timestamps import isoformat

FORMAT: Final = 1
DIGEST_BYTES: Final = 8


class DynamoDbBlocking:
    """See BlockingStore and LostRefsStore."""

    def __init__(self, dynamodb: DynamoDbCalls, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def unlisted(self, catalog: str) -> list[Blocking]:
        items = self._query(f"unlisted:{catalog}", "")
        return [
            Blocking(
                _subject(catalog, item),
                item["problem"],
                _time(item.get("since")),
                unanswered=tuple(map(int, item.get("unanswered", ()))),
            )
            for item in items
        ]

    def put_unlisted(self, blocking: Blocking) -> None:
        since = {} if blocking.since is None else {"since": isoformat(blocking.since)}
        passes = {"unanswered": list(blocking.unanswered)} if blocking.unanswered else {}
        self._put("unlisted", blocking.subject, problem=blocking.problem, **since, **passes)

    def remove_unlisted(self, subject: Subject) -> None:
        self._remove(f"unlisted:{subject.catalog}", _hash(subject))

    def located(self, catalog: str) -> list[LocatedTable]:
        return [LocatedTable(_subject(catalog, item), item["area"]) for item in self._query(f"located:{catalog}", "")]

    def put_located(self, table: LocatedTable) -> None:
        self._put("located", table.subject, area=table.area)

    def remove_located(self, table: LocatedTable) -> None:
        self._remove(f"located:{table.subject.catalog}", _hash(table.subject))

    def exemptions(self, catalog: str) -> list[Exemption]:
        """One that cannot be read exempts nothing."""
        from delegation.items import each_item  # noqa: PLC0415 - most processes read none

        items = self._query(f"exemption:{catalog}", "")
        found = each_item(
            items, lambda item: _exemption(catalog, item), name="references.exemptions", shown=_key_of, in_a_row=None
        )
        return [one.result for one in found if one.result is not None]

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
        """One that cannot be read is left out; its purge runs within the hour."""
        from delegation.items import each_item  # noqa: PLC0415 - most processes read none

        items = self._query(f"held:{catalog}", "")
        found = each_item(
            items, lambda item: _held(catalog, item), name="references.held", shown=_key_of, in_a_row=None
        )
        return [one.result for one in found if one.result is not None]

    def put_held(self, purge: HeldPurge) -> None:
        key = {"pk": f"held:{purge.subject.catalog}", "sk": purge.task_id}
        self._put_item({**key, **_subject_item(purge.subject)})

    def remove_held(self, purge: HeldPurge) -> None:
        self._remove(f"held:{purge.subject.catalog}", purge.task_id)

    def lost_refs(self, catalog: str) -> list[LostRefs]:
        return [
            LostRefs(
                identifier=TableIdentifier(catalog, tuple(item["namespace"]), item["name"]),
                table_uuid=item["table_uuid"],
                metadata_file=item["metadata_file"],
                copy=item["copy"],
                refs={name: int(snapshot_id) for name, snapshot_id in item["refs"].items()},
                count=int(item["count"]),
                task_id=item["task_id"],
                at=datetime.fromisoformat(item["at"]),
                until=datetime.fromisoformat(item["until"]),
                areas=tuple(item["areas"]) if "areas" in item else None,
            )
            for item in self._query(f"lost-refs:{catalog}", "")
        ]

    def put_lost_refs(self, lost: LostRefs) -> None:
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
                # A number of DynamoDB has 38 digits, but readers in other languages may take it for a double.
                "refs": {name: str(snapshot_id) for name, snapshot_id in lost.refs.items()},
                "count": lost.count,
                "task_id": lost.task_id,
                "at": isoformat(lost.at),
                "until": isoformat(lost.until),
                **({} if lost.areas is None else {"areas": list(lost.areas)}),
            }
        )

    def remove_lost_refs(self, lost: LostRefs) -> None:
        self._remove(f"lost-refs:{lost.identifier.catalog}", lost.key)

    def _put(self, kind: str, subject: Subject, **fields: Any) -> None:
        key = {"pk": f"{kind}:{subject.catalog}", "sk": _hash(subject)}
        self._put_item({**key, **_subject_item(subject), **fields})

    def _put_item(self, item: Mapping[str, Any]) -> None:
        self._dynamodb.repeatable("put_item", TableName=self._table, Item=to_item({**item, "format": FORMAT}))

    def _remove(self, pk: str, sk: str) -> None:
        self._dynamodb.repeatable("delete_item", TableName=self._table, Key=to_item({"pk": pk, "sk": sk}))

    def _query(self, pk: str, prefix: str, **more: Any) -> Iterator[dict[str, Any]]:
        condition = "pk = :pk AND begins_with(sk, :prefix)" if prefix else "pk = :pk"
        values = {":pk": pk, ":prefix": prefix} if prefix else {":pk": pk}
        start: dict[str, Any] = {}
        while True:
            answer = self._dynamodb.repeatable(
                "query",
                TableName=self._table,
                KeyConditionExpression=condition,
                ExpressionAttributeValues=to_item(values),
                ConsistentRead=True,
                **more,
                **start,
            )
            yield from map(from_item, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def _hash(subject: Subject) -> str:
    """Return a key in which a table never equals a namespace: no table has an empty name."""
    text = NAMESPACE_SEPARATOR.join((*subject.namespace, subject.name or ""))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _subject_item(subject: Subject) -> dict[str, Any]:
    return {"namespace": list(subject.namespace), **({} if subject.name is None else {"name": subject.name})}


def _subject(catalog: str, item: Mapping[str, Any]) -> Subject:
    return Subject(catalog, tuple(item["namespace"]), item.get("name"))


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
        at=datetime.fromisoformat(item["at"]),
        until=datetime.fromisoformat(item["until"]),
        unread=unpacked(item.get("unread")),
    )


def packed(digests: frozenset[bytes]) -> bytes:
    """Return digests as one attribute of an item."""
    return b"".join(sorted(digests))


def unpacked(value: Any) -> frozenset[bytes] | None:
    """Return the digests of an attribute, None where an item has none, or no bytes."""
    joined = bytes(getattr(value, "value", b""))
    return frozenset(joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)) or None


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
