"""The schemas of the API's document, docs/openapi.yaml, made from the models of delegation.wire and the task types.

What is served is made from the document when the package is built (package/description.py). Its paths, parameters and
answers stay written by hand: no code holds what they say, because one function answers all paths, and a framework's
guess would list neither the statuses nor their reasons.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from delegation.wire import responses
from delegation.wire.operators import PauseList, PauseRequest, RestoreRequest, ResumeRequest, TombstoneList
from delegation.wire.tables import PlanApproval
from delegation.wire.tasks import REPORTED, TaskList, TaskVersions
from delegation.wiring.types import TYPES
from infra.package.description import SOURCE

Schema = dict[str, Any]
REQUESTS: Final[tuple[type[BaseModel], ...]] = (PlanApproval, RestoreRequest, PauseRequest, ResumeRequest)
ANSWERS: Final[tuple[type[BaseModel], ...]] = (
    responses.TaskAccepted,
    responses.TaskSuccessResponse,
    TaskVersions,
    TaskList,
    TombstoneList,
    responses.Receipt,
    responses.Estimate,
    responses.TaskPlace,
    PauseList,
    responses.Health,
    responses.ServiceConfig,
    responses.ErrorResponse,
)
_WHOLE: Final[Mapping[str, frozenset[str]]] = {
    "TaskRecord": REPORTED,
    "TaskVersions": frozenset(),
    "TaskList": frozenset(),
    "Dependency": frozenset(),
    "MaintenanceSettings": frozenset(),
    "TaskPlace": frozenset(),
    "TombstoneList": frozenset(),
    **dict.fromkeys(("PauseList", "ShownPause"), frozenset[str]()),
    **dict.fromkeys(("Outlook", "WorkProgress", "WorkRate", "NextAttempt", "LastError"), frozenset[str]()),
}
"""Models whose answers have every member, null or not, but these; all other answers leave out what is null."""
_RENAMED: Final = {"ServiceConfig": "ConfigResponse", "PurgePayload": "TaskPayload"}
_NEVER_NULL: Final = frozenset({"received_timestamp", "last_status_change_ts", "created_ts"})
"""Of those members the ones that a stored task always has; a client's model is more patient."""
_FORMS: Final = (
    "PurgeTableOperationParameters",
    "LoadTableResultOperationParameters",
    "IdentifiedTableOperationParameters",
)
_SPELLINGS: Final = {"metadata_location": "metadata-location"}
_SECTION: Final = re.compile(r"(.*\n  schemas:\n).*?(  responses:\n.*)", re.DOTALL)
_FIRST: Final = ("type", "description", "format", "required")
_BEYOND_32_BITS: Final = 2**31
_PREFIX: Final = "#/components/schemas/"


def schemas() -> dict[str, Schema]:
    """Return `components.schemas`, requests first."""
    schemas_by_name: dict[str, Schema] = {}
    for model in (*(form.body for form in TYPES.forms), *REQUESTS):
        schemas_by_name |= _of_model(model, "validation")
    for model in ANSWERS:
        schemas_by_name |= _of_model(model, "serialization")
    _add_options(schemas_by_name)
    schemas_by_name["CommonPayload"]["properties"]["operation_type"]["enum"] = [
        name for form in TYPES.forms for name in form.operations
    ]
    _split_parameters(schemas_by_name)
    _add_forms(schemas_by_name)
    return {_RENAMED.get(name, name): _each(_each(schema, _wide), _ordered) for name, schema in schemas_by_name.items()}


def files() -> dict[Path, str]:
    return {SOURCE: with_schemas(SOURCE.read_text(encoding="utf-8"))}


def with_schemas(text: str) -> str:
    """Return the text of docs/openapi.yaml with its schemas made again from the models."""
    match = _SECTION.fullmatch(text)
    if match is None:
        raise ValueError(f"{SOURCE} needs `  schemas:` before `  responses:` among its components; restore both lines")
    made = yaml.dump(schemas(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=118)
    return match[1] + "".join(f"    {line}\n" for line in made.splitlines()) + match[2]


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    """Writes equal parts twice, not as aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  the base class' parameter
        return True


def _each(schema: Any, change: Callable[[Schema], Schema]) -> Any:
    """Return a schema after a change of its parts at every depth."""
    if isinstance(schema, list):
        return [_each(part, change) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return change({name: _each(value, change) for name, value in schema.items()})


def _wide(schema: Schema) -> Schema:
    """Return a schema that gives 64 bits to an integer without a small maximum.

    Generators for Java and Go choose 32 bits where no format is stated, and fail on the bytes of a purge.
    """
    match schema.get("type"):
        case "integer" | ["integer", "null"] if schema.get("maximum", _BEYOND_32_BITS) >= _BEYOND_32_BITS:
            return {"format": "int64", **schema}
    return schema


def _ordered(schema: Schema) -> Schema:
    """Return a schema with its type and description first and its members last."""
    first = [name for name in _FIRST if isinstance(schema.get(name), str | list)]
    names = [*first, *(name for name in schema if name not in first and name != "properties")]
    return {name: schema[name] for name in [*names, *(["properties"] if "properties" in schema else [])]}


def _of_model(model: type[BaseModel], mode: JsonSchemaMode) -> dict[str, Schema]:
    """Return the schema of a model and of every component that it refers to."""
    made = model.model_json_schema(ref_template=f"{_PREFIX}{{model}}", mode=mode)
    parts = {model.__name__: made, **made.pop("$defs", {})}
    reader = _Reader({name: part for name, part in parts.items() if "enum" in part})
    for name, part in parts.items():
        if name not in reader.enums:
            plain = reader.plain(part)
            reader.components[name] = plain if mode == "validation" else _as_answered(name, plain)
    return reader.components


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads pydantic's JSON Schema: inlines `enums`, and collects the types that have a name in `components`."""

    enums: Mapping[str, Schema]
    components: dict[str, Schema] = field(default_factory=dict)

    def plain(self, schema: Schema) -> Schema:
        """Return a schema without what only pydantic needs."""
        enum = self.enums.get(schema.get("$ref", "").removeprefix(_PREFIX))
        if enum is not None:
            schema = {**enum, **{name: value for name, value in schema.items() if name != "$ref"}}
        made = {name: self._member(name, value) for name, value in _open_map(schema).items() if _says(name, value)}
        if "const" in made:
            made["enum"] = [made.pop("const")]
        made = _one_type(made)
        name = made.pop(responses.COMPONENT, None)
        if name is None:
            return made
        self.components[name] = made
        return {"$ref": f"{_PREFIX}{name}"}

    def _member(self, name: str, value: Any) -> Any:
        if name == "properties":
            return {member: self.plain(each) for member, each in value.items()}
        if isinstance(value, dict) and name in {"items", "additionalProperties", "propertyNames", "not"}:
            return self.plain(value)
        if name in {"anyOf", "oneOf", "allOf"}:
            return [self.plain(each) for each in value]
        return value


def _says(name: str, value: Any) -> bool:
    """Return whether a keyword states anything to a caller."""
    if name in {"title", "default", "writeOnly", "readOnly"}:
        return False
    return not ((name == "format" and value == "password") or (name == "additionalProperties" and value is True))


def _open_map(schema: Schema) -> Schema:
    """Return a map with one kind of value and with `propertyNames` for the pattern of its names."""
    if "patternProperties" not in schema:
        return schema
    ((pattern, value),) = schema["patternProperties"].items()
    names = {"type": "string", **schema["propertyNames"], "pattern": pattern}
    rest = {name: each for name, each in schema.items() if name != "patternProperties"}
    return {**rest, "propertyNames": names, "additionalProperties": value}


def _one_type(schema: Schema) -> Schema:
    """Return `anyOf` a type and null as a list of types."""
    rest = {name: each for name, each in schema.items() if name != "anyOf"}
    match schema:
        case {"anyOf": [{"type": str(kind)}, {"type": "null"}]}:
            inner: Schema = schema["anyOf"][0]
            return {**inner, "type": [kind, "null"], **rest}
    return schema


def _not_null(schema: Schema) -> Schema:
    rest = {name: each for name, each in schema.items() if name not in {"anyOf", "type"}}
    match schema:
        case {"anyOf": [_, {"type": "null"}]}:
            inner: Schema = schema["anyOf"][0]
            return {**inner, **rest}
        case {"type": [kind, "null"]}:
            return {"type": kind, **rest}
    return schema


def _as_answered(name: str, schema: Schema) -> Schema:
    """Return a model's schema as answers have it, without null or with every member."""
    members = schema.get("properties", {})
    left_out = _WHOLE.get(name)
    if left_out is None:
        return {**schema, "properties": {member: _not_null(each) for member, each in members.items()}}
    kept = {member: _not_null(each) if member in left_out | _NEVER_NULL else each for member, each in members.items()}
    return {**schema, "properties": kept, "required": [member for member in members if member not in left_out]}


def _add_options(known: dict[str, Schema]) -> None:
    """Name the options of the task types and their values, the default first."""
    tables = [form.options for form in TYPES.forms]
    longest = {"maxLength": known["PropertiesMap"]["additionalProperties"]["maxLength"]}
    members: dict[str, Any] = {}
    for table in tables:
        for name, schema in table.schema().items():
            members.setdefault(name, {**schema, **longest} if "pattern" in schema else schema)
    pairs = dict.fromkeys(pair for table in tables for pair in table.exclusive)
    excluded = [{"required": [first, second], "properties": {second: {"enum": ["true"]}}} for first, second in pairs]
    known["PropertiesMap"] |= {"propertyNames": {"enum": sorted(members)}, "properties": members}
    if excluded:
        known["PropertiesMap"]["not"] = excluded[0] if len(excluded) == 1 else {"anyOf": excluded}


def _split_parameters(known: dict[str, Schema]) -> None:
    """Tell the forms of a purge's parameters apart, and name the payloads that have them.

    One model reads all of them, and states by `missing` which it is. They are schemas of their own, because generators
    of requests make none where `oneOf` is beside `properties`.
    """
    proposed, spelled, alone = _FORMS
    parameters = known[proposed]
    members = parameters["properties"]
    for name in ("metadata_location", "metadata", "config"):
        members[name] = _not_null(members[name])
    known[proposed] = {**parameters, "required": ["table_identity", "metadata_location", "metadata", "config"]}
    renamed = {_SPELLINGS.get(name, name): schema for name, schema in members.items()}
    known[spelled] = {
        **parameters,
        "description": "The table's identity and its LoadTableResult, with `metadata-location` spelled as in Iceberg.",
        "required": ["table_identity", "metadata-location", "metadata", "config"],
        "properties": renamed,
    }
    loaded = (members.keys() | renamed.keys()) - {"table_identity", "properties"}
    known[alone] = {
        "type": "object",
        "description": "Only the table's identity, for any operation. The service loads the rest from the catalog.",
        "required": ["table_identity"],
        "additionalProperties": False,
        "not": {"anyOf": [{"required": [name]} for name in sorted(loaded)]},
        "properties": {name: members[name] for name in ("table_identity", "properties")},
    }
    payload = known["PurgePayload"]
    known["AnyTaskPayload"] = {
        **payload,
        "description": "The payload of an asynchronous task. The table's identity is sufficient.",
        "properties": {**payload["properties"], "operation_parameters": _one_of(*_FORMS)},
    }
    known["PurgePayload"] = {
        **payload,
        "properties": {**payload["properties"], "operation_parameters": _one_of(proposed, spelled)},
    }


def _add_forms(known: dict[str, Schema]) -> None:
    """Let a payload have the parameters of any form; those of two forms may fit one body, whose operation decides."""
    others = [(form, known.pop(form.body.__name__)["properties"]["operation_parameters"]) for form in TYPES.forms[1:]]
    waited = [parameters for form, parameters in others if form.is_waited_for]
    for name, added in (("PurgePayload", waited), ("AnyTaskPayload", [parameters for _, parameters in others])):
        members = known[name]["properties"]
        further = [form for form in added if not _is_identity_alone(known, form)]
        if further:
            members["operation_parameters"] = {"anyOf": [members["operation_parameters"], *further]}
    for _, parameters in others:
        if _is_identity_alone(known, parameters):
            del known[parameters["$ref"].removeprefix(_PREFIX)]


def _is_identity_alone(known: dict[str, Schema], parameters: Schema) -> bool:
    """Return whether a form accepts what that of the table's identity alone accepts, which is then enough.

    Generators of TypeScript clients merge the members of forms that may fit one body, and two spell one alike.
    """
    whole, alone = known[parameters["$ref"].removeprefix(_PREFIX)], known[_FORMS[2]]
    return {**whole, "description": ""} == {**alone, "description": ""}


def _one_of(*names: str) -> Schema:
    return {"oneOf": [{"$ref": f"{_PREFIX}{name}"} for name in names]}
