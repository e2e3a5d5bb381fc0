"""Rules for tables: created, registered, dropped and renamed; views are renamed alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from delegation.gateway.keys.rules.rule import (
    DONE,
    Applied,
    Evidence,
    Found,
    JsonObject,
    Lookup,
    Undecided,
    Verification,
    VerificationRule,
    contains,
    loaded,
    location_noted,
    one_spelling,
    same_uuid,
    undecided,
    uuid_noted,
    without_effect,
)
from delegation.gateway.routing import Target, segment_of

UUID: Final = "table-uuid"
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
"""Properties of a request that do not become those of the table (Iceberg's TableProperties.RESERVED_PROPERTIES)."""


DROP: Final = VerificationRule(
    undecided("nothing shows whether a table or view of this name was dropped, renamed, or created again")
)
"""The rule of drops of tables and views: a name that is free or taken by now proves neither."""


def unregistration(path: str) -> VerificationRule:
    """As a drop; the reason names the table's metadata file from before the call, which may be its last."""

    def verify(evidence: Evidence) -> Verification:
        known = f"; before the call its metadata file was {evidence.noted}" if evidence.noted else ""
        return Undecided(f"nothing shows whether the table was unregistered, dropped or renamed{known}")

    return VerificationRule(verify, note=location_noted, before=(Lookup(path.rpartition("/")[0], "snapshots=refs"),))


def creation(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the table is as requested and no older than the request; a staged one has no effect itself."""
    table = f"{path}/{segment_of(request['name'])}"
    vended = Lookup(table, vends=True)
    if request.get("stage-create"):
        return without_effect(vended)

    def verify(evidence: Evidence) -> Verification:
        found = evidence.states[0]
        if found is None:
            return Undecided("the table does not exist; it may have been created, and dropped or renamed since")
        if not is_as_requested(found.metadata, request):
            return Undecided("a table of this name exists that is not as requested")
        if not evidence.is_newer(_first_ms(found.metadata)):
            return Undecided("a table of this name exists that is older than the request")
        return loaded(found)

    return VerificationRule(verify, (vended,), restore=vended, of_recorded=loaded)


def _first_ms(metadata: JsonObject) -> object:
    """Return the earliest time that the metadata names."""
    logged = [each.get("timestamp-ms") for each in metadata.get("metadata-log") or ()]
    return min([metadata.get("last-updated-ms"), *logged])


def registration(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the table has the metadata file, or had it until a commit since the request."""
    table, wanted = f"{path.rpartition('/')[0]}/tables/{segment_of(request['name'])}", request["metadata-location"]
    vended = Lookup(table, vends=True)

    def verify(evidence: Evidence) -> Verification:
        found = evidence.states[0]
        if found is None:
            return Undecided("the table does not exist; it may have been registered, and dropped or renamed since")
        replaced = _replaced_ms(found, wanted)
        if found.document.get("metadata-location") == wanted or evidence.is_newer(replaced):
            return loaded(found)
        return Undecided("a table of this name exists with another metadata file")

    return VerificationRule(verify, (vended,), restore=vended)


def _replaced_ms(found: Found, wanted: str) -> object:
    """Return the time of the commit that replaced a metadata file, None if the table's log lacks the file."""
    log = list(found.metadata.get("metadata-log") or ())
    later = [*(each.get("timestamp-ms") for each in log), found.metadata.get("last-updated-ms")][1:]
    pairs = zip(log, later, strict=True) if log else ()
    return next((after for each, after in pairs if each.get("metadata-file") == wanted), None)


def rename(
    target: Target, request: JsonObject, path_of: Callable[[str, Sequence[str], str], str], uuid_name: str = UUID
) -> VerificationRule:
    """Applied if the destination has the UUID that the source had before the first call (one extra read)."""
    source, destination = (
        Lookup(path_of(target.prefix, end["namespace"], end["name"]), "snapshots=refs" if uuid_name == UUID else "")
        for end in (request["source"], request["destination"])
    )

    def verify(evidence: Evidence) -> Verification:
        uuid, found = (evidence.noted or {}).get("uuid"), evidence.states[0]
        if uuid is not None and found is not None and same_uuid(found.metadata[uuid_name], uuid):
            return Applied(DONE)
        return Undecided("the destination is not what the source was; it may have been renamed, and moved since")

    return VerificationRule(verify, (destination,), uuid_noted(uuid_name), (source,))


def is_as_requested(metadata: JsonObject, request: JsonObject) -> bool:
    """Whether a table matches a CreateTableRequest, by names: catalogs assign field ids. It may have further schemas,
    specs and sort orders by now."""
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
    """Return a schema or type reduced to names, types and required flags."""
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
    """Whether one of the table's specs or orders has the requested fields, by column names."""
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
