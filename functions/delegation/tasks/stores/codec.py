"""The stored format of a task (`format: 1`): every later release must read what this one writes."""

import json
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from pydantic import ValidationError

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import FORMAT, HEAD, PARTS, STORED_NAMES, Task, jsonable
from delegation.tasks.stores.admission import QUEUED, place_of
from delegation.tasks.stores.base import Unreadable
from delegation.timestamps import isoformat

SHARDS: Final = 16
"""Shards of the due index. A global secondary index keyed by status would throttle the whole table."""

QUEUED_SHARDS: Final = 4
"""Shards of queued tasks in the admission index. Running ones are in one shard, because one process admits them."""

_PART_OF: Final = {flat: (part, field) for part, fields in PARTS.items() for field, flat in fields.items()}
_FIELDS: Final = (frozenset(Task.model_fields) - PARTS.keys() - {"details"}) | _PART_OF.keys()
_ATTRIBUTE_OF: Final = {name: STORED_NAMES.get(name, name) for name in _FIELDS}
_FIELD_OF: Final = {attribute: name for name, attribute in _ATTRIBUTE_OF.items()}
_DEFAULT_DETAILS: Final = {"bytes_deleted": 0, "files_deleted": 0, "files_failed": 0, "plan_segments": []}
"""Details that format 1 writes for every task type; a detail with this value counts as absent."""
_REPORTED: Final = _ATTRIBUTE_OF["reported"]
_JSON: Final = "$json"
"""The only name in a map that holds a detail as JSON text; a release before 0.1.0 shows the map."""
_DIGITS: Final = 38
"""Digits of a number that DynamoDB holds exactly."""
_DEEPEST: Final = 28
"""The most levels of lists and maps within a detail; DynamoDB allows 32 for the whole item."""
_UNSTORED: Final = {"starts_refused": 0, "handed_over_count": 0, "killed_count": 0, "payload_version": 1, "notify": []}
"""Fields that are stored only with a value other than this: a later release added them to format 1."""
_STORAGE_ONLY: Final = frozenset({
    "format",
    "due_bucket",
    "admission_bucket",
    "admission_key",
    "received_bucket",
    "received_key",
})  # fmt: skip


def due_bucket(task_id: str) -> str:
    return f"due-{zlib.crc32(task_id.encode()) % SHARDS:02d}"


def due_buckets() -> tuple[str, ...]:
    return tuple(f"due-{shard:02d}" for shard in range(SHARDS))


def queued_buckets() -> tuple[str, ...]:
    return tuple(f"{QUEUED}-{shard}" for shard in range(QUEUED_SHARDS))


def received_key(task: Task) -> str:
    """Return a task's sort key by time received; it starts with the day."""
    return f"{isoformat(task.received_timestamp)}/{task.task_id}"


def day_of(key: str) -> str:
    """Return the day of a received key: the partition of the index of received tasks."""
    return key[:10]


def head_item(task: Task) -> dict[str, Any]:
    """Return the head: its sort key is version 0; its real version and its places in the indexes are attributes."""
    item = {**_attributes(task), "version": HEAD, "current_version": task.version}
    item |= {"received_bucket": day_of(received_key(task)), "received_key": received_key(task)}
    if task.due_at is not None:
        item |= {"due_bucket": due_bucket(task.task_id), "due_at": isoformat(task.due_at)}
    place = place_of(task)
    if place is not None:
        bucket, key = place
        shard = f"{bucket}-{zlib.crc32(task.task_id.encode()) % QUEUED_SHARDS}" if bucket == QUEUED else bucket
        item |= {"admission_bucket": shard, "admission_key": key}
    return item


def row_item(task: Task) -> dict[str, Any]:
    """Return one version, never changed again and never in an index; see `Task.row`."""
    return {**_attributes(task.row), "version": task.version}


def _attributes(task: Task) -> dict[str, Any]:
    return {name: _encode(value) if name in task.details else value for name, value in _values(task).items()}


def _values(task: Task) -> dict[str, Any]:
    flat = task.flat()
    values = {_ATTRIBUTE_OF[name]: jsonable(flat[name]) for name in _FIELDS - {"due_at", "version"}}
    # As JSON text: it may hold any number, and a name in it must not hide a field of the task.
    values[_REPORTED] = json.dumps(task.reported, ensure_ascii=False, sort_keys=True) if task.reported else None
    own = {name: value for name, value in values.items() if value is not None and _UNSTORED.get(name) != value}
    return {**_DEFAULT_DETAILS, **task.details, **own, "format": FORMAT}


def task_of(item: Mapping[str, Any]) -> Task:
    """Return the task of a stored head or row; an unknown attribute is a detail. Raises MalformedRecord, which names
    the field, for another format or an invalid task."""
    if item.get("format") != FORMAT:
        reason = f"format: this release reads {FORMAT}, and the record has {item.get('format')!r}"
        raise MalformedRecord(f"{reason}: deploy the newer release that wrote it", item)
    values = dict(item)
    values["version"] = values.pop("current_version", values.get("version"))
    known = {_FIELD_OF[name]: _decode(value) for name, value in values.items() if name in _FIELD_OF}
    details = {name: _decode(value) for name, value in values.items() if name not in _FIELD_OF.keys() | _STORAGE_ONLY}
    if _REPORTED in values:
        known["reported"] = _from_json(values[_REPORTED])
    for name, value in _DEFAULT_DETAILS.items():
        if details.get(name) == value:
            del details[name]
    try:
        return Task(**_in_parts(known), details=details)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(_flat_place(first["loc"])) or "record"
        raise MalformedRecord(f"task {item.get('task_id')}: {where}: {first['msg']}", item) from None


def _in_parts(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Group a task's flat fields by part."""
    parts: dict[str, Any] = {}
    for name, value in flat.items():
        if name in _PART_OF:
            part, field = _PART_OF[name]
            parts.setdefault(part, {})[field] = value
        else:
            parts[name] = value
    return parts


def _flat_place(place: Sequence[int | str]) -> list[str]:
    """Return where a validation found an error, by the flat name if the field belongs to a part."""
    match place:
        case [str(part), str(field), *inside] if part in PARTS:
            return [PARTS[part][field], *map(str, inside)]
        case _:
            return [str(value) for value in place]


def _from_json(stored: Any) -> Any:
    """Parse a JSON text; the record's validation refuses any other."""
    try:
        return json.loads(stored)
    except (TypeError, ValueError):
        return stored


def entry_of(task_id: str, item: Mapping[str, Any]) -> Task | Unreadable:
    """Return a stored head as `heads` shows it."""
    try:
        return task_of(item)
    except MalformedRecord as error:
        return Unreadable(task_id, str(error))


def _encode(detail: Any) -> Any:
    """Return a detail as it is stored: plain, or as JSON text where DynamoDB would refuse or round it."""
    return detail if _is_plain(detail) else {_JSON: json.dumps(detail, ensure_ascii=False, sort_keys=True)}


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether DynamoDB holds a value unchanged (Amazon DynamoDB Developer Guide, "Quotas": numbers, depth)."""
    match value:
        case float():
            return False
        case bool() | None | str():
            return True
        case int():
            return bool(abs(value) < 10**_DIGITS)
        case list() | tuple() if depth < _DEEPEST:
            return all(_is_plain(item, depth + 1) for item in value)
        case Mapping() if depth < _DEEPEST:
            return set(value) != {_JSON} and all(_is_plain(item, depth + 1) for item in value.values())
        case _:
            return False


def _decode(value: Any) -> Any:
    """Return a stored value as it was written. DynamoDB returns every number, at any depth, as a Decimal."""
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list():
            return [_decode(item) for item in value]
        case {**only} if only.keys() == {_JSON}:
            return _from_json(only[_JSON])
        case Mapping():
            return {name: _decode(item) for name, item in value.items()}
        case _:
            return value
