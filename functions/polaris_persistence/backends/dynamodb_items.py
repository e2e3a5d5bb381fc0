"""Rows of the two DynamoDB tables and their attributes, and values split into parts."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote

import cbor2

from polaris_persistence.backends.base import (
    HeadCopy,
    ObjectCopy,
    ObjectKey,
    Reference,
    ReferenceKey,
    ScannedRow,
    StoredObject,
    key_text,
    part_count,
)
from polaris_persistence.errors import CorruptObject

AttributeMap = dict[str, Any]
RowKey = tuple[ObjectKey, int]

KEY: Final = "key"
PART: Final = "part"
VALUE: Final = "value"
PARTS: Final = "parts"
TOKEN: Final = "token"  # noqa: S105 - the attribute's name
CREATED_AT: Final = "created_at"
HEADS: Final = "heads"
VERSION: Final = "version"
WAITING: Final = "waiting"
COPY: Final = "head"
COPIES: Final = "copies"
_COPY_START: Final = struct.Struct(">QQ")


def realm_prefix(realm: str) -> str:
    return key_text(realm, "")


def object_key(key: ObjectKey, part: int = 0) -> AttributeMap:
    """Return the primary key of one row of an object: partition key `key`, sort key `part`."""
    return {KEY: {"S": key_text(key.realm, key.catalog, key.type, str(key.id))}, PART: {"N": str(part)}}


def reference_key(key: ReferenceKey) -> AttributeMap:
    return {KEY: {"S": key_text(key.realm, key.catalog, key.name)}}


def object_items(new: StoredObject, part_bytes: int) -> list[AttributeMap]:
    """Return the rows of an object. Every row states the number of parts, so any of them suffices to delete it."""
    parts = part_count(len(new.value), part_bytes)
    common: AttributeMap = {CREATED_AT: {"N": str(new.created_at)}}
    if parts > 1:
        common[PARTS] = {"N": str(parts)}
    if new.token is not None:
        common[TOKEN] = {"S": new.token}
    return [
        {**object_key(new.key, part), **common, VALUE: {"B": new.value[part * part_bytes : (part + 1) * part_bytes]}}
        for part in range(parts)
    ]


def row_key(item: Mapping[str, Any]) -> RowKey:
    """Return the object key and the part number of a row. Raises CorruptObject."""
    fields = _split(item, 4)
    with _decoding(item):
        return ObjectKey(fields[0], fields[1], fields[2], int(fields[3])), int(item[PART]["N"])


def parts_stated(item: Mapping[str, Any]) -> int:
    if PARTS not in item:
        return 1
    with _decoding(item):
        return int(item[PARTS]["N"])


def scanned(item: Mapping[str, Any]) -> ScannedRow:
    """Return a row of a scan that did not read the value. Raises CorruptObject."""
    with _decoding(item):
        return ScannedRow(row_key(item)[0], parts_stated(item), int(item[CREATED_AT]["N"]), _token(item))


def stored_object(parts: Mapping[int, Mapping[str, Any]]) -> StoredObject | None:
    """Return the object of rows by part number; None while some are missing (written or deleted). Raises
    CorruptObject."""
    if 0 not in parts:
        return None
    first = parts[0]
    numbers = range(parts_stated(first))
    if any(number not in parts for number in numbers):
        return None
    with _decoding(first):
        value = b"".join(bytes(parts[number][VALUE]["B"]) for number in numbers)
        return StoredObject(row_key(first)[0], value, int(first[CREATED_AT]["N"]), _token(first))


def reference_item(reference: Reference) -> AttributeMap:
    """Return the row of a reference: about 300 bytes because the ids of its heads are packed, and a small head."""
    item = {
        **reference_key(reference.key),
        HEADS: {"B": packed_heads(reference)},
        VERSION: {"N": str(reference.version)},
        CREATED_AT: {"N": str(reference.created_at)},
    }
    if reference.waiting:
        item[WAITING] = numbers(reference.waiting)
    if reference.copy is not None:
        item[COPY] = packed_copy(reference.copy)
    if reference.copies:
        item[COPIES] = packed_copies(reference.copies)
    return item


def numbers(ids: Iterable[int]) -> AttributeMap:
    """Return a set of ids as a DynamoDB value; it must not be empty."""
    return {"NS": [str(id_) for id_ in ids]}


def packed_copy(head: HeadCopy) -> AttributeMap:
    """Return the copy of a head as a DynamoDB value: id and time in eight bytes each, then the value."""
    return {"B": _COPY_START.pack(head.id, head.created_at) + head.value}


def _copy(item: Mapping[str, Any], head: int | None) -> HeadCopy | None:
    """Return the copy of the head `head`; a copy of another head comes from a release that does not maintain it."""
    data = bytes(item[COPY]["B"]) if COPY in item else b""
    if len(data) < _COPY_START.size:
        return None
    id_, created_at = _COPY_START.unpack_from(data)
    return HeadCopy(id_, data[_COPY_START.size :], created_at) if id_ == head else None


def packed_copies(copies: Iterable[ObjectCopy]) -> AttributeMap:
    return {"B": cbor2.dumps([[copy.type, copy.id, copy.created_at, copy.value] for copy in copies])}


def _copies(item: Mapping[str, Any]) -> tuple[ObjectCopy, ...]:
    """Return the copies of objects; none if they do not decode, because the objects are stored anyway."""
    if COPIES not in item:
        return ()
    try:
        return tuple(ObjectCopy(*copy) for copy in cbor2.loads(bytes(item[COPIES]["B"])))
    except (cbor2.CBORDecodeError, TypeError, ValueError):
        return ()


def packed_heads(reference: Reference) -> bytes:
    """Return the ids of the heads, eight bytes each."""
    return struct.pack(f">{len(reference.heads)}Q", *reference.heads)


def reference(item: Mapping[str, Any]) -> Reference:
    """Return the reference of a row. Raises CorruptObject."""
    realm, catalog, name = _split(item, 3)
    with _decoding(item):
        heads = bytes(item[HEADS]["B"])
        if len(heads) % 8:
            raise CorruptObject(f"the heads of reference {item[KEY]['S']} are truncated")
        ids = struct.unpack(f">{len(heads) // 8}Q", heads)
        return Reference(
            ReferenceKey(realm, catalog, name),
            ids,
            int(item[CREATED_AT]["N"]),
            int(item[VERSION]["N"]),
            tuple(sorted(int(id_) for id_ in item[WAITING]["NS"])) if WAITING in item else (),
            _copy(item, ids[0] if ids else None),
            _copies(item),
        )


def listed_reference(item: Mapping[str, Any]) -> Reference:
    """Return the reference of a row, with a `problem` if it cannot be read."""
    try:
        return reference(item)
    except CorruptObject as error:
        fields = [unquote(field) for field in item[KEY]["S"].split("/")]
        key = ReferenceKey(*fields) if len(fields) == 3 else ReferenceKey(fields[0], "", "")
        return Reference(key, (), 0, problem=str(error))


@contextmanager
def _decoding(item: Mapping[str, Any]) -> Iterator[None]:
    """Raise CorruptObject for an attribute that is missing or of another type."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CorruptObject(f"the row {item[KEY]['S']} cannot be read: {reason}") from error


def _split(item: Mapping[str, Any], count: int) -> list[str]:
    fields = [unquote(field) for field in item[KEY]["S"].split("/")]
    if len(fields) != count:
        raise CorruptObject(f"the row key does not have {count} fields: {item[KEY]['S']}")
    return fields


def _token(item: Mapping[str, Any]) -> str | None:
    return item[TOKEN]["S"] if TOKEN in item else None
