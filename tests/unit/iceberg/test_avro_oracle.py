"""The manifest reader compared with fastavro: any Avro types around the wanted fields, in any block structure."""

import io
import itertools
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delegation.iceberg.avro import manifests as avro
from delegation.iceberg.avro import shapes as avro_shapes
from tests.effort import examples
from tests.unit.iceberg.manifest_files import ManifestEntry, container, encoded, entry_schema, read_manifest

Typed = tuple[Any, Any]  # a schema and a value for it


@pytest.fixture(autouse=True, params=["exact", "learned"])
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with the exact decoder alone, and with an expression compiled after two records."""
    monkeypatch.setattr(avro_shapes, "COLD_RECORDS", 0)
    monkeypatch.setattr(avro_shapes, "FIRST_PATIENCE", 2 if request.param == "learned" else 1 << 30)


names = (f"n{number}" for number in itertools.count())

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=200),
    "string": st.text(max_size=70),
}


@st.composite
def types(draw: st.DrawFn, depth: int = 0) -> Any:
    """Draw an Avro schema, with logical types and recursion."""
    scalar = st.sampled_from([*SCALARS, "enum", "fixed", "decimal", "decimal-fixed"])
    complex_ = st.sampled_from(["array", "map", "union", "record", "tree"])
    kind = draw(scalar if depth > 2 else scalar | complex_)
    return kind if kind in SCALARS else draw(named_or_nested(kind, depth))


@st.composite
def named_or_nested(draw: st.DrawFn, kind: str, depth: int) -> Any:
    name, decimal = next(names), {"logicalType": "decimal", "precision": 20, "scale": 3}
    schema: Any = None
    match kind:
        case "enum":
            schema = {"type": "enum", "name": name, "symbols": [f"S{n}" for n in range(draw(st.integers(1, 90)))]}
        case "fixed":
            schema = {"type": "fixed", "name": name, "size": draw(st.integers(0, 40))}
        case "decimal":
            schema = {"type": "bytes"} | decimal
        case "decimal-fixed":
            schema = {"type": "fixed", "name": name, "size": 9} | decimal
        case "array":
            schema = {"type": "array", "items": draw(types(depth + 1))}
        case "map":
            schema = {"type": "map", "values": draw(types(depth + 1))}
        case "union":
            branches = draw(st.lists(types(depth + 1).filter(lambda each: not isinstance(each, list)), max_size=4))
            unique = {str(each if isinstance(each, str) else each.get("name", each["type"])): each for each in branches}
            schema = list(unique.values()) or ["null"]
        case "record":
            inner = draw(st.lists(types(depth + 1), max_size=3))
            schema = {"fields": [{"name": f"f{at}", "type": each} for at, each in enumerate(inner)]}
            schema |= {"type": "record", "name": name}
        case "tree":
            below = {"type": "array", "items": name}
            fields = [("leaf", "long"), ("below", below), ("next", ["null", name])]
            schema = {"fields": [{"name": field, "type": kind} for field, kind in fields]}
            schema |= {"type": "record", "name": name}
    return schema


@st.composite
def values(draw: st.DrawFn, schema: Any, depth: int = 0, named: dict[str, Any] | None = None) -> Any:
    """Draw a value for `encoded`: unions are (branch, value), enums are numbers."""
    named = {} if named is None else named
    if isinstance(schema, list):
        last = 0 if depth > 6 else len(schema) - 1
        branch = draw(st.integers(0, last))
        return branch, draw(values(schema[branch], depth + 1, named))
    if isinstance(schema, str):
        return draw(SCALARS[schema]) if schema in SCALARS else draw(values(named[schema], depth + 1, named))
    if "name" in schema:
        named[schema["name"]] = schema
    size = 0 if depth > 4 else 5
    match schema["type"]:
        case "enum":
            return draw(st.integers(0, len(schema["symbols"]) - 1))
        case "fixed":
            return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
        case "array":
            return draw(st.lists(values(schema["items"], depth + 1, named), max_size=size))
        case "map":
            return draw(st.dictionaries(st.text(max_size=5), values(schema["values"], depth + 1, named), max_size=size))
        case "record":
            return {each["name"]: draw(values(each["type"], depth + 1, named)) for each in schema["fields"]}
    return draw(SCALARS[schema["type"]])


def with_strangers(draw: st.DrawFn, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the fields of a record with others of any type before, between and after them."""
    out = []
    for field in fields:
        out += [{"name": next(names), "type": each} for each in draw(st.lists(types(), max_size=1))]
        out.append(field)
    return out + [{"name": next(names), "type": each} for each in draw(st.lists(types(), max_size=2))]


WANTED: dict[int, st.SearchStrategy[Any]] = {
    0: st.integers(0, 2),
    134: st.integers(0, 2),
    100: st.text(min_size=1, max_size=150),
    104: st.integers(0, (1 << 63) - 1),
    143: st.text(max_size=150),
    144: st.integers(0, 1 << 40),
    145: st.integers(0, 1 << 30),
}


@st.composite
def manifests(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """Draw a schema with wanted and other fields, and records; a few shapes repeat as in real manifests."""
    version = draw(st.sampled_from([1, 2, 3]))
    top = entry_schema(version)
    status, data_file = top["fields"][0], top["fields"][-1]
    inner = [each for each in data_file["type"]["fields"] if each["field-id"] in WANTED]
    if draw(st.booleans()):
        inner = draw(st.permutations(inner))
    path = next(each for each in inner if each["field-id"] == 100)
    path = path | {"type": draw(st.sampled_from(["string", "bytes", ["null", "string"], ["bytes", "null"]]))}
    inner = [path if each["field-id"] == 100 else each for each in inner]
    below = data_file["type"] | {"fields": with_strangers(draw, inner)}
    # Writers such as DuckDB's make a union of null and the record.
    branches = draw(st.sampled_from([[below], ["null", below], [below, "null"]]))
    data_file = data_file | {"type": below if len(branches) == 1 else branches}
    record_schema = top | {"fields": with_strangers(draw, draw(st.permutations([status, data_file])))}
    schema = draw(st.sampled_from([record_schema, ["null", record_schema], [record_schema]]))

    def record() -> Any:
        value = draw(values(record_schema))
        named = draw(values(below))
        for each in inner:
            wanted = draw(WANTED[each["field-id"]])
            kinds = each["type"] if isinstance(each["type"], list) else [each["type"]]
            at = next(at for at, kind in enumerate(kinds) if kind != "null")
            wanted = wanted.encode() if kinds[at] == "bytes" else wanted
            absent = [] if each["field-id"] == 100 else [(0, None)]
            named[each["name"]] = draw(st.sampled_from([*absent, (at, wanted)])) if len(kinds) > 1 else wanted
        value["data_file"] = named if len(branches) == 1 else (branches.index(below), named)
        value["status"] = draw(WANTED[0])
        return value if schema is record_schema else (schema.index(record_schema), value)

    few = [record() for _ in range(draw(st.integers(1, 3)))]
    return schema, few + draw(st.lists(st.sampled_from(few), max_size=20))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(manifests(), st.lists(st.sampled_from([0, 0, 1, 2, -1, -2, -3]), min_size=1, max_size=7), st.integers(1, 9))
def test_wanted_fields_among_fields_of_any_type(written: tuple[Any, list[Any]], splits: list[int], block: int) -> None:
    schema, records = written
    turns = itertools.cycle(splits)
    blocks = []
    for at in range(0, len(records), block):
        some = records[at : at + block]
        blocks.append((len(some), b"".join(encoded(schema, each, turns) for each in some)))
    data = container(schema, *blocks)

    read = fastavro.reader(io.BytesIO(data), return_record_name=True, return_record_name_override=True)
    oracle = [(each["status"], each["data_file"]) for each in read]
    assert len(oracle) == len(records)
    entries = list(read_manifest(data, "m.avro"))
    paths = [each for batch in avro.read_paths(data, "m.avro") for each in batch]

    assert entries == [
        ManifestEntry(
            status,
            file.get("content", 0),
            file["file_path"].decode() if isinstance(file["file_path"], bytes) else file["file_path"],
            file["file_size_in_bytes"],
            file.get("content_offset"),
            file.get("content_size_in_bytes"),
            file.get("referenced_data_file"),
        )
        for status, file in oracle
    ]
    assert paths == [tuple(each[:4]) for each in entries]
