"""The structure of table and view metadata (Iceberg Table Spec, Table Metadata; Iceberg View Spec, View Metadata)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from polaris_persistence.errors import InvalidIcebergMetadata
from polaris_persistence.iceberg.objects import (
    IcebergKey,
    IcebergPart,
    IcebergProperties,
    IcebergRef,
    IcebergSchema,
    IcebergSnapshot,
    IcebergSortOrder,
    IcebergSpec,
    IcebergStatistics,
    IcebergViewVersion,
)
from polaris_persistence.objects.objects import nests_beyond

Json = dict[str, Any]

FIRST_PARTITION_ID: Final = 1000
MAX_JSON_NESTING: Final = 500
"""The deepest nesting of objects and arrays in a document that is written: half of Python's recursion limit, which
`json` counts on top of its caller's frames. Former releases wrote 1,000 levels, which are still read and served."""


@dataclass(frozen=True, slots=True)
class Section:
    """A list of objects identified by their field `id`, or, if `id` is None, a map of objects by name. In a `packed`
    section many parts share an object."""

    model: type[IcebergPart]
    id: str | None
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Derived:
    """A field that repeats the element of `section` whose id is the field `current`, or that element's field `part`."""

    section: str
    current: str
    part: str | None = None


@dataclass(frozen=True)
class Layout:
    """How each top-level field of a metadata document is stored; unnamed fields are kept unchanged."""

    kind: str
    order: tuple[str, ...]
    sections: Mapping[str, Section]
    wholes: Mapping[str, type[IcebergPart]]
    logs: frozenset[str]
    derived: Mapping[str, Derived] = field(default_factory=dict)


TABLE: Final = Layout(
    kind="table",
    order=(
        "format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id",
        "schema", "current-schema-id", "schemas", "partition-spec", "default-spec-id", "partition-specs",
        "last-partition-id", "default-sort-order-id", "sort-orders", "properties", "current-snapshot-id", "next-row-id",
        "encryption-keys", "refs", "snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log",
    ),
    sections={
        "schemas": Section(IcebergSchema, "schema-id"),
        "partition-specs": Section(IcebergSpec, "spec-id"),
        "sort-orders": Section(IcebergSortOrder, "order-id"),
        "snapshots": Section(IcebergSnapshot, "snapshot-id", packed=True),
        "statistics": Section(IcebergStatistics, "snapshot-id", packed=True),
        "partition-statistics": Section(IcebergStatistics, "snapshot-id", packed=True),
        "encryption-keys": Section(IcebergKey, "key-id"),
        "refs": Section(IcebergRef, None),
    },
    wholes={"properties": IcebergProperties},
    logs=frozenset({"snapshot-log", "metadata-log"}),
    derived={
        "schema": Derived("schemas", "current-schema-id"),
        "partition-spec": Derived("partition-specs", "default-spec-id", "fields"),
    },
)  # fmt: skip

VIEW: Final = Layout(
    kind="view",
    order=(
        "view-uuid", "format-version", "location", "properties", "schemas", "current-version-id", "versions",
        "version-log",
    ),
    sections={
        "schemas": Section(IcebergSchema, "schema-id"),
        "versions": Section(IcebergViewVersion, "version-id", packed=True),
    },
    wholes={"properties": IcebergProperties},
    logs=frozenset({"version-log"}),
)  # fmt: skip

LAYOUTS: Final = {layout.kind: layout for layout in (TABLE, VIEW)}


def check_nesting(name: str, value: Any, around: int) -> None:
    """Raise InvalidIcebergMetadata for a value that nests too deeply within `around` objects and arrays."""
    if nests_beyond(value, MAX_JSON_NESTING - around):
        raise _too_deep(name)


def _too_deep(name: str) -> InvalidIcebergMetadata:
    return InvalidIcebergMetadata(
        f"{name} has more than {MAX_JSON_NESTING} objects and arrays within each other. Flatten it"
    )


def id_text(value: object) -> bytes:
    """Return an id as printable ASCII text; 5, "5" and None differ."""
    return json.dumps(value).encode()


def is_section(value: Any, id_name: str | None) -> bool:
    """Return whether a value is a list of objects with ids, or, if `id_name` is None, a map of them."""
    if id_name is None:
        return isinstance(value, dict)
    return isinstance(value, list) and all(isinstance(part, dict) for part in value)


def identified(value: Any, id_name: str | None) -> Iterator[tuple[bytes, Any]]:
    """Return the parts of a section with the texts of their ids."""
    if id_name is None:
        for name, part in value.items():
            yield id_text(name), part
    else:
        for part in value:
            yield id_text(part.get(id_name)), part


def in_order(document: Mapping[str, Any], layout: Layout) -> Json:
    """Return the document with its fields in the order in which Iceberg writes them, unknown ones last."""
    ranks = {name: number for number, name in enumerate(layout.order)}
    return dict(sorted(document.items(), key=lambda item: ranks.get(item[0], len(ranks))))


def parse(data: bytes | str) -> Json:
    """Return a metadata document with exact integers. Raises InvalidIcebergMetadata if it is no JSON object."""
    try:
        document = json.loads(data, parse_constant=_refuse)
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise InvalidIcebergMetadata(f"the metadata document is not valid JSON: {type(error).__name__}") from error
    except RecursionError as error:
        raise _too_deep("the metadata document") from error
    if not isinstance(document, dict):
        raise InvalidIcebergMetadata("the metadata document is not a JSON object")
    return document


def serialise(document: Mapping[str, Any]) -> bytes:
    if nests_beyond(document, MAX_JSON_NESTING):
        return "".join(_pieces(document)).encode()
    return _text(document).encode()


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pieces(document: Any) -> Iterator[str]:
    """Yield the JSON of a document that a former release stored, of any depth."""
    pending: list[Any] = [document]
    while pending:
        piece = pending.pop()
        if isinstance(piece, bytes):  # punctuation: JSON has no bytes
            yield piece.decode()
        elif piece and isinstance(piece, dict | list):
            named = isinstance(piece, dict)
            inside: list[Any] = []
            for part in piece.items() if isinstance(piece, dict) else piece:
                inside += (b",", _text(part[0]).encode() + b":", part[1]) if named else (b",", part)
            inside[0] = b"{" if named else b"["
            pending += reversed([*inside, b"}" if named else b"]"])
        else:
            yield _text(piece)


def _refuse(constant: str) -> Any:
    raise InvalidIcebergMetadata(f"the metadata document is not valid JSON: {constant}")
