"""The rule of each kind of mutation, for namespaces, tables and views; those of commits are in `keys.commits`.

A namespace has neither UUID nor version: the requested state counts as applied, and nothing proves the contrary. A
catalog may set the time and the summary of a view's version itself, as Polaris does (Iceberg REST Catalog API,
ViewUpdate). Its queries and namespace are compared; its time must be the client's or not before the request.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from delegation.gateway.keys.commits import LAST_ADDED, TABLE_UUID, Updates, commit, shows, transaction
from delegation.gateway.keys.reading import (
    DONE,
    MALFORMED_REQUEST,
    NOT_APPLIED,
    Applied,
    Evidence,
    Found,
    JsonObject,
    Lookup,
    Undecided,
    Verification,
    VerificationRule,
    asserted,
    contains,
    loaded,
    location_noted,
    one_spelling,
    plain,
    same_uuid,
    undecided,
    uuid_noted,
    without_effect,
)
from delegation.gateway.messages import CatalogRequest, json_answer
from delegation.gateway.routing import CatalogPaths, Operation, Target, segment_of

_LOCATION = "location"


def namespace_creation(target: Target, request: JsonObject, paths: CatalogPaths) -> VerificationRule:
    """Applied if the namespace has the requested properties. Catalogs may add some, such as its location."""
    path = paths.namespace(target.prefix, request["namespace"])
    wanted = _plain(request.get("properties") or {})

    def verify(evidence: Evidence) -> Verification:
        namespace = evidence.states[0]
        if namespace is None:
            return Undecided("the namespace does not exist; it may have been created, and dropped since")
        properties = namespace.document.get("properties") or {}
        if not contains(_plain(properties), wanted):
            return Undecided("the namespace's properties differ from the request; they may have been changed since")
        return Applied(json_answer(200, {"namespace": request["namespace"], "properties": properties}))

    return VerificationRule(verify, (Lookup(path),))


def namespace_drop(path: str) -> VerificationRule:
    """Applied if the namespace does not exist: namespaces cannot be renamed."""

    def verify(evidence: Evidence) -> Verification:
        if evidence.states[0] is None:
            return Applied(DONE)
        return Undecided("the namespace exists; it may have been dropped, and created again since")

    return VerificationRule(verify, (Lookup(path),))


def namespace_properties(path: str, request: JsonObject) -> VerificationRule:
    """Applied if all updates are present and all removals absent; all removals are answered as removed."""
    removals, updates = list(request.get("removals") or []), _plain(request.get("updates") or {})
    path = path.rpartition("/")[0]  # the namespace's path

    def verify(evidence: Evidence) -> Verification:
        namespace = evidence.states[0]
        if namespace is None:
            return Undecided("the namespace no longer exists")
        known = _plain(namespace.document.get("properties") or {})
        if not contains(known, updates) or any(name in known for name in removals):
            return Undecided("the namespace's properties differ from the request; they may have been changed since")
        return Applied(json_answer(200, {"updated": list(updates), "removed": removals, "missing": []}))

    return VerificationRule(verify, (Lookup(path),))


def _plain(known: JsonObject) -> dict[str, Any]:
    """Return properties in comparable form: Polaris stores a location with a trailing slash."""
    return {name: str(value).rstrip("/") if name == _LOCATION else value for name, value in known.items()}


_NOT_STORED: Final = frozenset({
    "current-schema",
    "current-snapshot-id",
    "current-snapshot-summary",
    "current-snapshot-timestamp-ms",
    "default-partition-spec",
    "default-sort-order",
    "format-version",
    "snapshot-count",
    "uuid",
})  # fmt: skip
"""Properties of a request that do not become the table's (Iceberg's TableProperties.RESERVED_PROPERTIES)."""


DROP: Final = VerificationRule(
    undecided("nothing shows whether a table or view of this name was dropped, renamed, or created again")
)
"""The rule for drops of tables and views. Whether the name is free or taken now proves nothing."""


def table_unregistration(path: str) -> VerificationRule:
    """Like a drop. The reason names the table's metadata file from before the call, which may be its last."""

    def verify(evidence: Evidence) -> Verification:
        known = f"; before the call its metadata file was {evidence.noted}" if evidence.noted else ""
        return Undecided(f"nothing shows whether the table was unregistered, dropped or renamed{known}")

    return VerificationRule(verify, note=location_noted, before=(Lookup(path.rpartition("/")[0], "snapshots=refs"),))


def table_creation(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the table is as requested and no older than the request; a staged one has no effect itself."""
    table = f"{path}/{segment_of(request['name'])}"
    vended = Lookup(table, vends=True)
    if request.get("stage-create"):
        return without_effect(vended)

    def verify(evidence: Evidence) -> Verification:
        table = evidence.states[0]
        if table is None:
            return Undecided("the table does not exist; it may have been created, and dropped or renamed since")
        if not is_as_requested(table.metadata, request):
            return Undecided("the table of this name differs from the request")
        if not evidence.is_newer(_first_ms(table.metadata)):
            return Undecided("the table of this name is older than the request")
        return loaded(table)

    return VerificationRule(verify, (vended,), restore=vended, of_recorded=loaded)


def _first_ms(metadata: JsonObject) -> object:
    logged = [each.get("timestamp-ms") for each in metadata.get("metadata-log") or ()]
    return min([metadata.get("last-updated-ms"), *logged])


def table_registration(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the table has the metadata file, or had it until a commit since the request."""
    table, wanted = f"{path.rpartition('/')[0]}/tables/{segment_of(request['name'])}", request["metadata-location"]
    vended = Lookup(table, vends=True)

    def verify(evidence: Evidence) -> Verification:
        table = evidence.states[0]
        if table is None:
            return Undecided("the table does not exist; it may have been registered, and dropped or renamed since")
        replaced = _replaced_ms(table, wanted)
        if table.document.get("metadata-location") == wanted or evidence.is_newer(replaced):
            return loaded(table)
        return Undecided("the table of this name has another metadata file")

    return VerificationRule(verify, (vended,), restore=vended)


def _replaced_ms(table: Found, wanted: str) -> object:
    """Return the time of the commit that replaced a metadata file, None if the table's log lacks the file."""
    log = list(table.metadata.get("metadata-log") or ())
    later = [*(each.get("timestamp-ms") for each in log), table.metadata.get("last-updated-ms")][1:]
    pairs = zip(log, later, strict=True) if log else ()
    return next((after for each, after in pairs if each.get("metadata-file") == wanted), None)


def rename(
    target: Target, request: JsonObject, path_of: Callable[[str, Sequence[str], str], str], uuid_name: str = TABLE_UUID
) -> VerificationRule:
    """Applied if the destination has the UUID that the source had before the first call (one extra read)."""
    source, destination = (
        Lookup(
            path_of(target.prefix, end["namespace"], end["name"]), "snapshots=refs" if uuid_name == TABLE_UUID else ""
        )
        for end in (request["source"], request["destination"])
    )

    def verify(evidence: Evidence) -> Verification:
        uuid, state = (evidence.noted or {}).get("uuid"), evidence.states[0]
        if uuid is not None and state is not None and same_uuid(state.metadata[uuid_name], uuid):
            return Applied(DONE)
        return Undecided(
            "nothing shows that the destination has the renamed table, which may have been renamed again since"
        )

    return VerificationRule(verify, (destination,), uuid_noted(uuid_name), (source,))


def is_as_requested(metadata: JsonObject, request: JsonObject) -> bool:
    """Return whether a table matches a CreateTableRequest, by names: catalogs assign field ids. It may have further
    schemas, specs and sort orders by now."""
    wanted = dict(request.get("properties") or {})
    version = int(wanted.get("format-version", 0))
    location = request.get("location")
    kept = {name: value for name, value in wanted.items() if name not in _NOT_STORED}
    return (
        any(shape(schema) == shape(request["schema"]) for schema in metadata["schemas"])
        and _has_fields(metadata, "partition-specs", request, "partition-spec")
        and _has_fields(metadata, "sort-orders", request, "write-order")
        and contains(metadata.get("properties") or {}, kept)
        and metadata["format-version"] >= version
        and (location is None or metadata["location"].rstrip("/") == location.rstrip("/"))
    )


def shape(value: Any) -> Any:
    """Reduce a schema or type to names, types and required flags."""
    if not isinstance(value, Mapping):
        return one_spelling(value)
    if "fields" in value:
        return [(field["name"], bool(field.get("required")), shape(field["type"])) for field in value["fields"]]
    return [
        (name, shape(value[name]) if name in {"element", "key", "value"} else value[name])
        for name in ("type", "element", "element-required", "key", "value", "value-required")
        if name in value
    ]


def _has_fields(metadata: JsonObject, known: str, request: JsonObject, wanted: str) -> bool:
    """Return whether one of the table's specs or orders has the requested fields, by column names."""
    asked = _by_name((request.get(wanted) or {}).get("fields") or (), request["schema"])
    return any(_by_name(each["fields"], schema) == asked for each in metadata[known] for schema in metadata["schemas"])


def _by_name(fields: Sequence[JsonObject], schema: JsonObject) -> list[Any]:
    names = dict(_columns(schema))
    return [
        {
            "column": names.get(field.get("source-id")),
            **{name: field[name] for name in ("name", "transform", "direction", "null-order") if name in field},
        }
        for field in fields
    ]


def _columns(value: Any, prefix: str = "") -> Iterator[tuple[Any, str]]:
    if not isinstance(value, Mapping):
        return
    for field in value.get("fields") or ():
        yield field["id"], f"{prefix}{field['name']}"
        yield from _columns(field["type"], f"{prefix}{field['name']}.")
    for part in ("element", "key", "value"):
        if part in value:
            yield value.get(f"{part}-id"), f"{prefix}{part}"
            yield from _columns(value[part], f"{prefix}{part}.")


VIEW_UUID: Final = "view-uuid"
_ADD: Final = "add-view-version"


def view_creation(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view has the requested version, which is no older than the request."""
    view = Lookup(f"{path}/{segment_of(request['name'])}")

    def verify(evidence: Evidence) -> Verification:
        view = evidence.states[0]
        if view is None:
            return Undecided("the view does not exist; it may have been created, and dropped or renamed since")
        if not _added(request["view-version"], view.metadata, evidence):
            return Undecided("the view of this name differs from the request or is older")
        return loaded(view)

    return VerificationRule(verify, (view,), restore=view)


def view_registration(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view has the metadata file; views keep no log of former ones."""
    view = Lookup(f"{path.rpartition('/')[0]}/views/{segment_of(request['name'])}")
    wanted = request["metadata-location"]

    def verify(evidence: Evidence) -> Verification:
        view = evidence.states[0]
        if view is None:
            return Undecided("the view does not exist; it may have been registered, and dropped or renamed since")
        if view.document.get("metadata-location") != wanted:
            return Undecided("the view of this name has another metadata file")
        return loaded(view)

    return VerificationRule(verify, (view,), restore=view)


def view_replacement(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view, of the asserted UUID, has the version that the request adds. Not applied if all versions
    have lower numbers and none is equal: a catalog keeps the number of an equal one."""
    updates: Updates = request.get("updates") or ()
    uuid = asserted(request.get("requirements") or (), "assert-view-uuid", "uuid")
    added = [each["view-version"] for each in updates if each.get("action") == _ADD]

    def verify(evidence: Evidence) -> Verification:
        view = evidence.states[0]
        if view is None or uuid is None or not same_uuid(view.metadata.get(VIEW_UUID), uuid):
            return Undecided("the request does not assert the UUID of the view with this name")
        if added and _is_below(added, view.metadata):
            return NOT_APPLIED
        if added and all(_added(each, view.metadata, evidence) for each in added):
            return loaded(view)
        if all(_shown(update, updates, view.metadata) for update in updates):
            return loaded(view)
        return Undecided("the view does not show what was requested; it may have been replaced since")

    view = Lookup(path)
    return VerificationRule(verify, (view,), restore=view)


def _is_below(added: Sequence[JsonObject], metadata: JsonObject) -> bool:
    known = metadata.get("versions") or ()
    highest = max((int(each["version-id"]) for each in known), default=0)
    lowest = min(int(each["version-id"]) for each in added)
    return highest < lowest and not any(_same_version(version, other) for version in known for other in added)


def _added(wanted: JsonObject, metadata: JsonObject, evidence: Evidence) -> bool:
    """Return whether a version is as requested and was made by the client or since the request."""
    return any(
        _same_version(each, wanted)
        and (each.get("timestamp-ms") == wanted.get("timestamp-ms") or evidence.is_newer(each.get("timestamp-ms")))
        for each in metadata.get("versions") or ()
    )


def _same_version(version: JsonObject, other: JsonObject) -> bool:
    names = ("representations", "default-catalog", "default-namespace")
    return all(plain(version.get(name)) == plain(other.get(name)) for name in names)


def _current_version(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
    current = metadata.get("current-version-id")
    if update["view-version-id"] != LAST_ADDED:
        return bool(current == update["view-version-id"])
    added = [each["view-version"] for each in updates if each.get("action") == _ADD]
    chosen = [each for each in metadata.get("versions") or () if each.get("version-id") == current]
    return bool(added and chosen and _same_version(chosen[0], added[-1]))


_VIEW_UPDATES: Final[Mapping[str, Callable[[JsonObject, Updates, JsonObject], bool]]] = {
    "assign-uuid": lambda update, _, metadata: same_uuid(metadata.get(VIEW_UUID), update["uuid"]),
    _ADD: lambda update, _, metadata: any(
        _same_version(each, update["view-version"]) for each in metadata.get("versions") or ()
    ),
    "set-current-view-version": _current_version,
}


def _shown(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
    own = _VIEW_UPDATES.get(str(update.get("action")))
    return shows(update, updates, metadata) if own is None else own(update, updates, metadata)


MALFORMED: Final = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What reading a document raises that does not conform to the specification."""

RULES: Final[Mapping[Operation, Callable[[str, Target, JsonObject, CatalogPaths], VerificationRule]]] = {
    Operation.CREATE_NAMESPACE: lambda _path, target, body, paths: namespace_creation(target, body, paths),
    Operation.DROP_NAMESPACE: lambda path, _target, _body, _paths: namespace_drop(path),
    Operation.SET_PROPERTIES: lambda path, _target, body, _paths: namespace_properties(path, body),
    Operation.CREATE_TABLE: lambda path, _target, body, _paths: table_creation(path, body),
    Operation.REGISTER_TABLE: lambda path, _target, body, _paths: table_registration(path, body),
    Operation.COMMIT_TABLE: lambda path, _target, body, _paths: commit(path, body),
    Operation.DROP_TABLE: lambda _path, _target, _body, _paths: DROP,
    Operation.UNREGISTER_TABLE: lambda path, _target, _body, _paths: table_unregistration(path),
    Operation.RENAME_TABLE: lambda _path, target, body, paths: rename(target, body, paths.table),
    Operation.COMMIT_TRANSACTION: lambda _path, target, body, paths: transaction(target, body, paths),
    Operation.CREATE_VIEW: lambda path, _target, body, _paths: view_creation(path, body),
    Operation.REGISTER_VIEW: lambda path, _target, body, _paths: view_registration(path, body),
    Operation.REPLACE_VIEW: lambda path, _target, body, _paths: view_replacement(path, body),
    Operation.DROP_VIEW: lambda _path, _target, _body, _paths: DROP,
    Operation.RENAME_VIEW: lambda _path, target, body, paths: rename(target, body, paths.view, VIEW_UUID),
}


def rule_for(target: Target, request: CatalogRequest, paths: CatalogPaths) -> VerificationRule:
    """Return the rule; a request that violates the specification leaves its outcome unknown. Raises UnsafeName for a
    name that cannot be part of a path."""
    try:
        body = json.loads(request.body) if request.body else {}
        return RULES[target.operation](request.path, target, body, paths)
    except MALFORMED:
        return MALFORMED_REQUEST
