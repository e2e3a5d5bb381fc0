"""Rules for commits to one table, and to several in a transaction (Iceberg REST Catalog API, TableUpdate). A commit
with snapshots was applied if the table knows one of their ids, which are random 64-bit numbers. The first commit of a
staged table was applied if the table has the UUID that it assigns. Any other was applied if the table of the asserted
UUID shows all its updates. It was not applied if a growing number of that table is below the commit's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delegation.gateway.keys.reading import (
    DONE,
    NOT_APPLIED,
    TYPES,
    Applied,
    Evidence,
    Found,
    JsonObject,
    Lookup,
    NotApplied,
    State,
    Undecided,
    Verification,
    VerificationRule,
    Verify,
    asserted,
    contains,
    location_noted,
    one_spelling,
    plain,
    same_uuid,
)
from delegation.gateway.messages import CatalogAnswer, json_answer
from delegation.gateway.routing import CatalogPaths, Target

TABLE_UUID: Final = "table-uuid"
LAST_ADDED: Final = -1
Updates = Sequence[JsonObject]


def commit(path: str, request: JsonObject) -> VerificationRule:
    updates: Updates = request.get("updates") or ()
    requirements: Updates = request.get("requirements") or ()
    creates = any(requirement["type"] == "assert-create" for requirement in requirements)

    def verify(evidence: Evidence) -> Verification:
        state = evidence.states[0]
        return verify_creation(updates, state) if creates else verify_commit(updates, requirements, state)

    table = Lookup(path)
    is_any = not creates and asserted(requirements, "assert-table-uuid", "uuid") is None
    return VerificationRule(
        verify,
        (table,),
        note=location_noted,
        before=(Lookup(path, "snapshots=refs"),) if is_any else (),
        restore=table,
        leaves_files=creates or bool(snapshot_ids(updates)),
        of_recorded=None if creates else lambda state: Applied(committed(state), is_certain=True),
    )


def transaction(target: Target, request: JsonObject, paths: CatalogPaths) -> VerificationRule:
    changes = request["table-changes"]
    rules = [
        commit(paths.table(target.prefix, change["identifier"]["namespace"], change["identifier"]["name"]), change)
        for change in changes
    ]

    def verify(evidence: Evidence) -> Verification:
        states_by_rule = zip(rules, evidence.states, strict=True)
        verifications = [rule.verify(replace(evidence, states=(state,))) for rule, state in states_by_rule]
        if any(isinstance(each, Applied) and each.is_certain for each in verifications):
            return Applied(DONE, is_certain=True)
        if any(isinstance(each, NotApplied) for each in verifications):
            return NOT_APPLIED
        if all(isinstance(each, Applied) for each in verifications):
            return Applied(DONE)
        return Undecided("no table of the transaction shows whether the transaction was applied")

    lookups = tuple(rule.after[0] for rule in rules)
    parts = tuple(
        replace(rule, verify=_of_whole(rule.verify), restore=None, of_recorded=None)
        for rule in rules
        if rule.leaves_files
    )
    return VerificationRule(verify, lookups, leaves_files=bool(parts), parts=parts)


def _of_whole(verify: Verify) -> Verify:
    """Return the rule of a transaction, which applies to all tables or to none, by one of its tables."""

    def verified(evidence: Evidence) -> Verification:
        verification = verify(evidence)
        return replace(verification, answer=DONE) if isinstance(verification, Applied) else verification

    return verified


def verify_creation(updates: Updates, state: State) -> Verification:
    uuid = assigned_uuid(updates)
    if state is None or uuid is None or not same_uuid(state.metadata[TABLE_UUID], uuid):
        return Undecided(
            "no table with the requested UUID has this name; it may have been created, and dropped or renamed since"
        )
    return Applied(committed(state), is_certain=True)


def verify_commit(updates: Updates, requirements: Updates, state: State) -> Verification:
    """Verify a commit to an existing table, by the UUID that the commit asserts."""
    if state is None:
        return Undecided("the table does not exist under its name; it may have been dropped or renamed since")
    ids = snapshot_ids(updates)
    if ids & known_snapshots(state.metadata):
        return Applied(committed(state), is_certain=True)
    uuid = asserted(requirements, "assert-table-uuid", "uuid")
    if uuid is None or not same_uuid(state.metadata.get(TABLE_UUID), uuid):
        return Undecided("the commit does not assert the UUID of the table with this name")
    if any(_is_below(update, requirements, state.metadata) for update in updates):
        return NOT_APPLIED
    if not ids and all(shows(update, updates, state.metadata) for update in updates):
        return Applied(committed(state))
    return Undecided("the table does not show what was requested; it may have been changed since")


def _is_below(update: JsonObject, requirements: Updates, metadata: JsonObject) -> bool:
    """Return whether a number of the table that only grows proves that it never had an update."""
    match update.get("action"):
        case "add-snapshot":
            return _lacks_sequence(update["snapshot"], requirements, metadata)
        case "add-schema":
            before = asserted(requirements, "assert-last-assigned-field-id", "last-assigned-field-id")
            added = int(update.get("last-column-id") or 0)
            return before is not None and added > before and int(metadata["last-column-id"]) <= before
        case "add-spec":
            before = asserted(requirements, "assert-last-assigned-partition-id", "last-assigned-partition-id")
            added = max((int(field.get("field-id") or 0) for field in update["spec"]["fields"]), default=0)
            return before is not None and added > before and int(metadata["last-partition-id"]) <= before
        case "upgrade-format-version":
            return int(metadata["format-version"]) < int(update["format-version"])
        case _:
            return False


def _lacks_sequence(snapshot: JsonObject, requirements: Updates, metadata: JsonObject) -> bool:
    """Return whether a snapshot's sequence number was never reached, or was taken by another snapshot. Version 1 tables
    have no sequence numbers. A snapshot without a parent may repeat one, so another's counts only if that has a parent
    or was current. The request's own may repeat one too, as the first of a branch, unless it asserts that there is no
    current snapshot: then the catalog would refuse it if it was sent again."""
    number = int(snapshot.get("sequence-number") or 0)
    if int(metadata["format-version"]) < 2 or number == 0:
        return False
    if int(metadata["last-sequence-number"]) < number:
        return True
    if snapshot.get("parent-snapshot-id") is None and not _is_first(requirements):
        return False
    logged = {each["snapshot-id"] for each in metadata.get("snapshot-log") or ()}
    return any(
        each.get("sequence-number") == number
        and (each.get("parent-snapshot-id") is not None or each["snapshot-id"] in logged)
        for each in metadata.get("snapshots") or ()
    )


def _is_first(requirements: Updates) -> bool:
    return any(
        each.get("type") == "assert-ref-snapshot-id" and each.get("ref") == "main" and each.get("snapshot-id") is None
        for each in requirements
    )


def committed(state: Found) -> CatalogAnswer:
    """Return a loaded table as the answer to a commit (CommitTableResponse)."""
    document = state.document
    return json_answer(200, {name: document[name] for name in ("metadata-location", "metadata") if name in document})


def snapshot_ids(updates: Updates) -> frozenset[int]:
    return frozenset(
        int(update["snapshot"]["snapshot-id"]) for update in updates if update.get("action") == "add-snapshot"
    )


def assigned_uuid(updates: Updates) -> str | None:
    return next((str(update["uuid"]) for update in updates if update.get("action") == "assign-uuid"), None)


def known_snapshots(metadata: JsonObject) -> frozenset[int]:
    """Return every snapshot id in the metadata, also parents' and those in the log after they expired."""
    snapshots = metadata.get("snapshots") or ()
    ids = [each.get(name) for each in snapshots for name in ("snapshot-id", "parent-snapshot-id")]
    ids += [each["snapshot-id"] for each in metadata.get("snapshot-log") or ()]
    ids += [each["snapshot-id"] for each in (metadata.get("refs") or {}).values()]
    return frozenset(int(each) for each in ids if each is not None)


def shows(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
    """Return whether a table's metadata looks as if the update had been the last one."""
    known = _SHOWN.get(str(update.get("action")))
    return known is not None and known(update, updates, metadata)


def _added(list_name: str, part: str, id_name: str) -> Callable[[JsonObject, Updates, JsonObject], bool]:
    def shown(update: JsonObject, _updates: Updates, metadata: JsonObject) -> bool:
        wanted = content(update[part], id_name)
        return any(content(each, id_name) == wanted for each in metadata.get(list_name) or ())

    return shown


def content(value: JsonObject, id_name: str) -> Any:
    """Return a schema, spec or sort order without ids that a catalog may assign."""
    kept = {name: each for name, each in plain(value).items() if name != id_name}
    if id_name == "schema-id":
        return _as_written(kept)
    if id_name == "spec-id":
        fields = [
            {name: each for name, each in field.items() if name != "field-id"} for field in kept.get("fields") or ()
        ]
        return {**kept, "fields": fields}
    return kept


def _as_written(schema: Any) -> Any:
    """Return a schema as Iceberg writes it: without empty identifier lists, and with one spelling of each type."""
    if isinstance(schema, list):
        return [_as_written(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    written = {name: _as_written(one_spelling(each) if name in TYPES else each) for name, each in schema.items()}
    identifiers = sorted(written.pop("identifier-field-ids", ()))
    return {**written, "identifier-field-ids": identifiers} if identifiers else written


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
    "assign-uuid": lambda update, _, metadata: same_uuid(metadata.get(TABLE_UUID), update["uuid"]),
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
