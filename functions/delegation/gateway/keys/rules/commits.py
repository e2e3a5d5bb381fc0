"""Rules for commits to tables: one, and several in one transaction (Iceberg REST Catalog API, TableUpdate).

A commit with snapshots was applied if the table knows one of their ids, which are random 64-bit numbers. The first
commit of a staged table was applied if the table has the UUID that it assigns. Of any other commit each update is
compared with the state: it was applied if the state shows all of them, and was not if everything that they touch is as
it was before.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from delegation.gateway.answers import json_answer
from delegation.gateway.keys.rules.rule import (
    DONE,
    NOT_APPLIED,
    Applied,
    Found,
    Incompatible,
    JsonObject,
    Judgement,
    Lookup,
    NotApplied,
    State,
    VerificationRule,
    canonical,
    contains,
    plain,
    same_uuid,
)
from delegation.gateway.keys.rules.tables import UUID
from delegation.gateway.messages import CatalogAnswer
from delegation.gateway.routing import CatalogPaths, Target

LAST_ADDED: Final = -1
Updates = Sequence[JsonObject]


def commit(path: str, request: JsonObject) -> VerificationRule:
    """Return the rule of a commit to one table."""
    updates: Updates = request.get("updates") or ()
    creates = any(one["type"] == "assert-create" for one in request.get("requirements") or ())

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        if creates:
            return judge_creation(updates, states[0])
        return judge_commit(updates, before, states[0])

    lookups = (Lookup(path),)
    if creates or snapshot_ids(updates):
        # Nothing has to be known of the state before, so a commit of data costs no read.
        return VerificationRule(judge, lookups, restore=lookups[0])
    return VerificationRule(judge, lookups, lambda states: touched(updates, states[0]), lookups, lookups[0])


def transaction(target: Target, request: JsonObject, paths: CatalogPaths) -> VerificationRule:
    """Return the rule of a commit to several tables, which is applied to all of them or to none."""
    changes = request["table-changes"]
    rules = [
        commit(paths.table(target.prefix, change["identifier"]["namespace"], change["identifier"]["name"]), change)
        for change in changes
    ]
    noted = [number for number, rule in enumerate(rules) if rule.before]

    def note(states: Sequence[State]) -> Any:
        found = zip(noted, states, strict=True)
        return {str(number): rules[number].note([state]) for number, state in found}

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        known = before or {}
        judgements = [
            rule.judge(known.get(str(number)), [state])
            for number, (rule, state) in enumerate(zip(rules, states, strict=True))
        ]
        if any(isinstance(each, Applied) and each.is_certain for each in judgements):
            return Applied(DONE, is_certain=True)
        if all(isinstance(each, Applied) for each in judgements):
            return Applied(DONE)
        if all(isinstance(each, Applied | NotApplied) for each in judgements):
            return NOT_APPLIED
        return Incompatible("a table of the transaction was changed since the first request")

    after = tuple(rule.after[0] for rule in rules)
    return VerificationRule(judge, after, note, tuple(rules[number].before[0] for number in noted))


def judge_creation(updates: Updates, state: State) -> Judgement:
    """Judge the commit of a staged table: the catalog refuses it if another table has the name."""
    uuid = assigned_uuid(updates)
    if state is None or uuid is None or not same_uuid(state.metadata[UUID], uuid):
        return NOT_APPLIED
    return Applied(committed(state), is_certain=True)


def judge_commit(updates: Updates, before: Any, state: State) -> Judgement:
    """Judge a commit to a table that exists."""
    if state is None:
        return NOT_APPLIED
    ids = snapshot_ids(updates)
    if ids:
        return Applied(committed(state), is_certain=True) if ids & known_snapshots(state.metadata) else NOT_APPLIED
    return judge_updates(updates, before, state, shows, committed)


def judge_updates(
    updates: Updates,
    before: Any,
    state: State,
    is_shown: Callable[[JsonObject, Updates, JsonObject], bool],
    answer: Callable[[Found], CatalogAnswer],
) -> Judgement:
    """Judge updates of which nothing is unique; `before` is what `touched` returned."""
    if state is None:
        return NOT_APPLIED
    if all(is_shown(update, updates, state.metadata) for update in updates):
        return Applied(answer(state))
    if before is None or before == touched(updates, state):
        return NOT_APPLIED
    return Incompatible(
        "what the request changes was changed since the first request, so it is uncertain whether that was applied"
    )


def committed(found: Found) -> CatalogAnswer:
    """Return a loaded table as the answer to a commit (CommitTableResponse)."""
    document = found.document
    return json_answer(200, {name: document[name] for name in ("metadata-location", "metadata") if name in document})


def snapshot_ids(updates: Updates) -> frozenset[int]:
    """Return the ids of the snapshots that a commit adds."""
    return frozenset(
        int(update["snapshot"]["snapshot-id"]) for update in updates if update.get("action") == "add-snapshot"
    )


def assigned_uuid(updates: Updates) -> str | None:
    """Return the UUID that a commit gives a new table."""
    return next((str(update["uuid"]) for update in updates if update.get("action") == "assign-uuid"), None)


def known_snapshots(metadata: JsonObject) -> frozenset[int]:
    """Return every snapshot id that the metadata names, also as the parent of one or in the log after it expired."""
    snapshots = metadata.get("snapshots") or ()
    ids = [each.get(name) for each in snapshots for name in ("snapshot-id", "parent-snapshot-id")]
    ids += [each["snapshot-id"] for each in metadata.get("snapshot-log") or ()]
    ids += [each["snapshot-id"] for each in (metadata.get("refs") or {}).values()]
    return frozenset(int(each) for each in ids if each is not None)


# action of an update -> the members of the metadata that it may change
_TOUCHED: Final[Mapping[str, tuple[str, ...]]] = {
    "assign-uuid": (),
    "upgrade-format-version": ("format-version",),
    "add-schema": ("schemas",),
    "set-current-schema": ("current-schema-id",),
    "add-spec": ("partition-specs",),
    "set-default-spec": ("default-spec-id",),
    "add-sort-order": ("sort-orders",),
    "set-default-sort-order": ("default-sort-order-id",),
    "set-location": ("location",),
    "remove-schemas": ("schemas",),
    "remove-partition-specs": ("partition-specs",),
    "add-view-version": ("versions",),
    "set-current-view-version": ("current-version-id",),
}
# action -> the list that it changes, and the update's member with the snapshot's id; of statistics, inside `statistics`
_OF_SNAPSHOTS: Final[Mapping[str, str]] = {
    "set-statistics": "statistics",
    "remove-statistics": "statistics",
    "set-partition-statistics": "partition-statistics",
    "remove-partition-statistics": "partition-statistics",
}


def touched(updates: Updates, state: State) -> Any:
    """Return a digest of everything in the state that the updates may change, None without a state."""
    if state is None:
        return None
    parts = [_part(update, state) for update in updates]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:32]


def _part(update: JsonObject, state: State) -> Any:
    assert state is not None  # noqa: S101 - its caller has checked
    metadata, action = state.metadata, str(update.get("action"))
    properties, refs = metadata.get("properties") or {}, metadata.get("refs") or {}
    if action == "set-properties":
        return {name: properties.get(name) for name in update["updates"]}
    if action == "remove-properties":
        return {name: properties.get(name) for name in update["removals"]}
    if action in {"set-snapshot-ref", "remove-snapshot-ref"}:
        return refs.get(update["ref-name"])
    if action == "remove-snapshots":
        return sorted(_removed(update) & _ids(metadata, "snapshots"))
    if action in _OF_SNAPSHOTS:
        return _statistics(metadata, _OF_SNAPSHOTS[action], _snapshot_of(update))
    members = _TOUCHED.get(action)
    # Of an update that is unknown here any commit may have been this one.
    return state.document.get("metadata-location") if members is None else [metadata.get(name) for name in members]


def shows(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
    """Whether a table's metadata is as if the update had been the last one."""
    known = _SHOWN.get(str(update.get("action")))
    return known is not None and known(update, updates, metadata)


def _added(list_name: str, part: str, id_name: str) -> Callable[[JsonObject, Updates, JsonObject], bool]:
    def shown(update: JsonObject, _updates: Updates, metadata: JsonObject) -> bool:
        wanted = content(update[part], id_name)
        return any(content(each, id_name) == wanted for each in metadata.get(list_name) or ())

    return shown


def content(value: JsonObject, id_name: str) -> Any:
    """Return a schema, a spec or a sort order without its own id, and without the ids that a catalog may assign."""
    kept = {name: each for name, each in plain(value).items() if name != id_name}
    if id_name == "spec-id":
        fields = [{name: each for name, each in one.items() if name != "field-id"} for one in kept.get("fields") or ()]
        return {**kept, "fields": fields}
    return kept


def _current(
    current: str, list_name: str, id_name: str, adding: tuple[str, str], given: str
) -> Callable[[JsonObject, Updates, JsonObject], bool]:
    def shown(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
        action, part = adding
        if update[given] != LAST_ADDED:
            return bool(metadata.get(current) == update[given])
        added = [each[part] for each in updates if each.get("action") == action]
        chosen = [each for each in metadata.get(list_name) or () if each.get(id_name) == metadata.get(current)]
        return bool(added and chosen and content(chosen[0], id_name) == content(added[-1], id_name))

    return shown


def _ids(metadata: JsonObject, list_name: str) -> frozenset[int]:
    return frozenset(int(each["snapshot-id"]) for each in metadata.get(list_name) or ())


def _removed(update: JsonObject) -> frozenset[int]:
    return frozenset(int(each) for each in update["snapshot-ids"])


def _snapshot_of(update: JsonObject) -> int:
    for part in ("statistics", "partition-statistics"):
        if part in update:
            return int(update[part]["snapshot-id"])
    return int(update["snapshot-id"])


def _statistics(metadata: JsonObject, list_name: str, snapshot_id: int) -> Any:
    return [each for each in metadata.get(list_name) or () if int(each["snapshot-id"]) == snapshot_id]


def _ref(update: JsonObject, _updates: Updates, metadata: JsonObject) -> bool:
    ref = (metadata.get("refs") or {}).get(update["ref-name"])
    wanted = {name: value for name, value in plain(update).items() if name not in {"action", "ref-name"}}
    return ref is not None and contains(ref, wanted)


def _without_ids(list_name: str, id_name: str, removed: str) -> Callable[[JsonObject, Updates, JsonObject], bool]:
    return lambda update, _updates, metadata: (
        not ({each[id_name] for each in metadata.get(list_name) or ()} & set(update[removed]))
    )


_SHOWN: Final[Mapping[str, Callable[[JsonObject, Updates, JsonObject], bool]]] = {
    "assign-uuid": lambda update, _, metadata: same_uuid(metadata.get(UUID), update["uuid"]),
    "upgrade-format-version": lambda update, _, metadata: metadata["format-version"] >= update["format-version"],
    "add-schema": _added("schemas", "schema", "schema-id"),
    "set-current-schema": _current("current-schema-id", "schemas", "schema-id", ("add-schema", "schema"), "schema-id"),
    "add-spec": _added("partition-specs", "spec", "spec-id"),
    "set-default-spec": _current("default-spec-id", "partition-specs", "spec-id", ("add-spec", "spec"), "spec-id"),
    "add-sort-order": _added("sort-orders", "sort-order", "order-id"),
    "set-default-sort-order": _current(
        "default-sort-order-id", "sort-orders", "order-id", ("add-sort-order", "sort-order"), "sort-order-id"
    ),
    "set-location": lambda update, _, metadata: metadata["location"].rstrip("/") == update["location"].rstrip("/"),
    "set-properties": lambda update, _, metadata: contains(metadata.get("properties") or {}, update["updates"]),
    "remove-properties": lambda update, _, metadata: (
        not (set(metadata.get("properties") or {}) & set(update["removals"]))
    ),
    "set-snapshot-ref": _ref,
    "remove-snapshot-ref": lambda update, _, metadata: update["ref-name"] not in (metadata.get("refs") or {}),
    "remove-snapshots": lambda update, _, metadata: not _removed(update) & _ids(metadata, "snapshots"),
    "set-statistics": lambda update, _, metadata: (
        plain(update["statistics"]) in [plain(each) for each in metadata.get("statistics") or ()]
    ),
    "remove-statistics": lambda update, _, metadata: not _statistics(metadata, "statistics", _snapshot_of(update)),
    "set-partition-statistics": lambda update, _, metadata: (
        plain(update["partition-statistics"]) in [plain(each) for each in metadata.get("partition-statistics") or ()]
    ),
    "remove-partition-statistics": lambda update, _, metadata: (
        not _statistics(metadata, "partition-statistics", _snapshot_of(update))
    ),
    "remove-schemas": _without_ids("schemas", "schema-id", "schema-ids"),
    "remove-partition-specs": _without_ids("partition-specs", "spec-id", "spec-ids"),
}
