"""Rules for tables: created, registered, dropped and renamed; views are renamed alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from delegation.gateway.keys.rules.rule import (
    DONE,
    NOT_APPLIED,
    Applied,
    Incompatible,
    JsonObject,
    Judgement,
    Lookup,
    State,
    VerificationRule,
    contains,
    exists_noted,
    judge_drop,
    loaded,
    same_uuid,
    uuid_noted,
)
from delegation.gateway.routing import Target

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


def creation(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the table, which was not there, is as requested; a staged one has no effect until its commit."""
    table = f"{path}/{quote(request['name'], safe='')}"
    vended = Lookup(table, vends=True)
    if request.get("stage-create"):
        return VerificationRule(restore=vended, restages=True)

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        found = states[0]
        if found is None or before is None or before["exists"]:
            return NOT_APPLIED
        if not is_as_requested(found.metadata, request):
            return Incompatible("a table of this name exists that is not as requested")
        return loaded(found)

    return VerificationRule(judge, (vended,), exists_noted, (Lookup(table, exists=True),), vended)


def registration(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the table has the metadata file, or had it before commits that followed."""
    table, wanted = f"{path.rpartition('/')[0]}/tables/{quote(request['name'], safe='')}", request["metadata-location"]
    vended = Lookup(table, vends=True)

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        found = states[0]
        if found is None or before is None or before["location"] == wanted:
            return NOT_APPLIED
        if wanted in {found.document.get("metadata-location"), *_logged(found.metadata)}:
            return loaded(found)
        if found.document.get("metadata-location") == before["location"]:
            return NOT_APPLIED
        return Incompatible("a table of this name exists with another metadata file")

    def note(states: Sequence[State]) -> Any:
        return {"location": None if states[0] is None else states[0].document.get("metadata-location")}

    return VerificationRule(judge, (vended,), note, (Lookup(table, "snapshots=refs"),), vended)


def _logged(metadata: JsonObject) -> Iterator[str]:
    return (entry["metadata-file"] for entry in metadata.get("metadata-log") or ())


def drop(path: str) -> VerificationRule:
    """Applied if the table of the noted UUID is gone."""
    lookups = (Lookup(path, "snapshots=refs"),)
    return VerificationRule(judge_drop(UUID), lookups, uuid_noted(UUID), lookups)


def rename(
    target: Target, request: JsonObject, path_of: Callable[[str, Sequence[str], str], str], uuid_name: str = UUID
) -> VerificationRule:
    """Applied if the destination has the source's UUID; incompatible if neither of them has it."""
    source, destination = (
        Lookup(path_of(target.prefix, end["namespace"], end["name"]), "snapshots=refs" if uuid_name == UUID else "")
        for end in (request["source"], request["destination"])
    )

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        if before is None or before["uuid"] is None:
            return NOT_APPLIED
        at_destination, at_source = (
            state is not None and same_uuid(state.metadata[uuid_name], before["uuid"]) for state in states
        )
        if at_destination:
            return Applied(DONE)
        if at_source:
            return NOT_APPLIED
        return Incompatible("neither the source nor the destination is what the source was at the first request")

    return VerificationRule(judge, (destination, source), uuid_noted(uuid_name), (source,))


def is_as_requested(metadata: JsonObject, request: JsonObject) -> bool:
    """Whether a table was made by a CreateTableRequest; catalogs assign new field ids, so names are compared.

    Schemas, specs and sort orders may have been added since.
    """
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
    """Return a schema or a type without ids and texts: names, types and what is required."""
    if not isinstance(value, Mapping):
        return value
    if "fields" in value:
        return [(field["name"], bool(field.get("required")), shape(field["type"])) for field in value["fields"]]
    return [
        (name, shape(value[name]) if name in {"element", "key", "value"} else value[name])
        for name in ("type", "element", "element-required", "key", "value", "value-required")
        if name in value
    ]


def _has_fields(metadata: JsonObject, known: str, request: JsonObject, wanted: str) -> bool:
    """Whether one of the table's specs or orders has the fields of the request's, by the names of their columns."""
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
    """Yield id and full name of each column."""
    if not isinstance(value, Mapping):
        return
    for field in value.get("fields") or ():
        yield field["id"], f"{prefix}{field['name']}"
        yield from _columns(field["type"], f"{prefix}{field['name']}.")
    for part in ("element", "key", "value"):
        if part in value:
            yield value.get(f"{part}-id"), f"{prefix}{part}"
            yield from _columns(value[part], f"{prefix}{part}.")
