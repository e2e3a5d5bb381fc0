"""Parses an Avro file's untrusted writer's schema into a flat list of nodes. Children come before parents and are
referenced by index, so widths, patterns and source take linear time without recursion. Only a recursive type refers to
an index above its own. Sources: Avro 1.11 Specification, Schema Declaration; Iceberg Table Spec, Appendix A
(`field-id`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from delegation.iceberg.errors import MalformedError, UnsupportedAvroError

MAX_SCHEMA_BYTES = 1 << 20
MAX_NODES = 4096
MAX_NESTING = 32
MAX_BRANCHES = 256  # Python's compiler recurses once per `elif`
MAX_WIDTH = 1 << 62  # wider than any block; keeps sums of widths small numbers


class AvroType(StrEnum):
    """The Avro types; logical types do not change the encoding."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    FIXED = "fixed"
    ENUM = "enum"
    ARRAY = "array"
    MAP = "map"
    UNION = "union"
    RECORD = "record"


PRIMITIVES = {kind.value: kind for kind in list(AvroType)[:8]}
CONSTANT_WIDTH = {AvroType.NULL: 0, AvroType.BOOLEAN: 1, AvroType.FLOAT: 4, AvroType.DOUBLE: 8}


@dataclass(slots=True)
class Node:
    """A type of the schema. `width` is the encoded size if constant; `recursive` is for records."""

    kind: AvroType
    children: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of a record's fields; untrusted, never put into source
    ids: list[int | None] = field(default_factory=list)  # Iceberg field ids of a record's fields
    size: int = 0  # bytes of a fixed, symbols of an enum
    width: int | None = None
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """A writer's schema; `root` is the index of the type of the file's objects."""

    nodes: tuple[Node, ...]
    root: int


def shown(text: object) -> str:
    """Return untrusted text made safe and short for an error message."""
    return ascii(text)[:80]


def parse_schema(raw: bytes) -> Schema:
    """Parse the `avro.schema` entry of a file's header. Raises MalformedError at position 0 for an invalid schema, or
    one beyond this module's limits."""
    if len(raw) > MAX_SCHEMA_BYTES:
        raise UnsupportedAvroError(0, f"has a schema of {len(raw)} bytes, more than {MAX_SCHEMA_BYTES}")
    try:
        document = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedError(0, f"the schema is not JSON: {type(error).__name__}") from error
    parser = _Parser()
    root = parser.parse(document, "", 0)
    return Schema(tuple(parser.nodes), root)


class _Parser:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.named: dict[str, int] = {}
        self.recursions: set[int] = set()  # placeholders of unfinished records that are used inside themselves
        self.uses = 0

    def parse(self, document: object, namespace: str, depth: int) -> int:
        """Add a type and its children; return its index, negative for a record still being parsed."""
        self.uses += 1
        if depth > MAX_NESTING or self.uses > MAX_NODES:
            raise UnsupportedAvroError(0, "has a schema that is nested too deep or has too many types")
        if isinstance(document, str):
            return self._reference(document, namespace)
        if isinstance(document, list):
            return self._union(document, namespace, depth)
        if isinstance(document, dict):
            return self._complex(document, namespace, depth)
        raise MalformedError(0, f"{shown(document)} is not a schema")

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _reference(self, name: str, namespace: str) -> int:
        kind = PRIMITIVES.get(name)
        if kind is not None:
            return self._add(Node(kind, width=CONSTANT_WIDTH.get(kind)))
        for full in (name,) if "." in name or not namespace else (f"{namespace}.{name}", name):
            if full in self.named:
                index = self.named[full]
                if index < 0:
                    self.recursions.add(index)
                return index
        raise MalformedError(0, f"the schema has no type {shown(name)}")

    def _union(self, branches: list[Any], namespace: str, depth: int) -> int:
        if len(branches) > MAX_BRANCHES:
            raise UnsupportedAvroError(0, f"has a union of {len(branches)} types")
        return self._add(Node(AvroType.UNION, [self.parse(branch, namespace, depth + 1) for branch in branches]))

    def _complex(self, document: Mapping[str, Any], namespace: str, depth: int) -> int:
        kind = document.get("type")
        if kind in ("record", "error"):
            return self._record(document, namespace, depth)
        if kind == "enum":
            symbols = document.get("symbols")
            if not isinstance(symbols, list):
                raise MalformedError(0, "an enum without symbols")
            return self._add_named(Node(AvroType.ENUM, size=len(symbols)), document, namespace)
        if kind == "fixed":
            size = document.get("size")
            if type(size) is not int or not 0 <= size < MAX_WIDTH:
                raise MalformedError(0, f"a fixed of size {shown(size)}")
            return self._add_named(Node(AvroType.FIXED, size=size, width=size), document, namespace)
        if kind == "array":
            return self._add(Node(AvroType.ARRAY, [self.parse(document.get("items"), namespace, depth + 1)]))
        if kind == "map":
            return self._add(Node(AvroType.MAP, [self.parse(document.get("values"), namespace, depth + 1)]))
        return self.parse(kind, namespace, depth + 1)

    def _record(self, document: Mapping[str, Any], namespace: str, depth: int) -> int:
        fields = document.get("fields")
        if not isinstance(fields, list):
            raise MalformedError(0, "a record without fields")
        node = Node(AvroType.RECORD)
        placeholder = ~self.uses
        full = self._register(document, namespace, placeholder)
        inner = full.rpartition(".")[0]
        for entry in fields:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or "type" not in entry:
                raise MalformedError(0, f"{shown(entry)} is not a field of a record")
            field_id = entry.get("field-id")
            node.names.append(entry["name"])
            node.ids.append(field_id if type(field_id) is int else None)
            node.children.append(self.parse(entry["type"], inner, depth + 1))
        widths = [self.nodes[child].width if child >= 0 else None for child in node.children]
        if None not in widths:
            node.width = min(MAX_WIDTH, sum(width for width in widths if width is not None))
        index = self._add(node)
        self.named[full] = index
        if placeholder in self.recursions:
            node.recursive = True
            for other in self.nodes:
                if placeholder in other.children:
                    other.children = [index if child == placeholder else child for child in other.children]
        return index

    def _add_named(self, node: Node, document: Mapping[str, Any], namespace: str) -> int:
        index = self._add(node)
        self._register(document, namespace, index)
        return index

    def _register(self, document: Mapping[str, Any], namespace: str, index: int) -> str:
        """Record a named type's index, and return its full name."""
        name, own = document.get("name"), document.get("namespace", namespace)
        if not isinstance(name, str) or not name:
            raise MalformedError(0, "a named type without a name")
        full = f"{own}.{name}" if "." not in name and isinstance(own, str) and own else name
        if full in self.named or full in PRIMITIVES:
            raise MalformedError(0, f"the schema defines {shown(full)} twice")
        self.named[full] = index
        return full
