"""What manifests state of a file's columns: numbers of values and of nulls, and bounds (Iceberg Table Spec, Appendix
D). These show which equality deletes cannot apply to a data file."""

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from delegation.iceberg.avro.entries import ColumnStats

NO_STATS: Final = ColumnStats()


class Column(NamedTuple):
    """A column of a primitive type."""

    type: str
    is_required: bool

    @property
    def kind(self) -> str:
        """Return the type without its parameters."""
        return self.type.partition("(")[0].partition("[")[0]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of all schemas of a table by id, and the names of those in its current schema."""

    by_id: Mapping[int, Column]
    names: Mapping[str, int]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Read the schemas of table metadata, of any version. A column has its newest type."""
        current = document.get("current-schema-id")
        schemas = document.get("schemas") or ()
        newest = next(
            (schema for schema in schemas if schema.get("schema-id") == current), document.get("schema") or {}
        )
        by_id: dict[int, Column] = {}
        for schema in (*schemas, newest):
            by_id |= {field_id: column for _, field_id, column in _primitives(schema.get("fields") or ())}
        names = {name.lower(): field_id for name, field_id, _ in _primitives(newest.get("fields") or ())}
        return cls(by_id, names)


def _primitives(fields: Iterable[Mapping[str, Any]], prefix: str = "") -> Iterable[tuple[str, int, Column]]:
    for field in fields:
        name, kind = f"{prefix}{field.get('name')}", field.get("type")
        if isinstance(kind, str):
            yield name, field["id"], Column(kind, bool(field.get("required")))
        elif isinstance(kind, Mapping) and kind.get("type") == "struct":
            yield from _primitives(kind.get("fields") or (), f"{name}.")


def bound(column: Column, raw: bytes | None) -> Any | None:
    """Return a bound as a value that compares with others of its column, None if it is unknown or has no order."""
    decode = _BOUNDS.get(column.kind)
    if raw is None or decode is None:
        return None
    try:
        value = decode(raw)
    except (struct.error, IndexError):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


def _whole(raw: bytes) -> int:
    # A promoted column may have bounds of its former type.
    return int(struct.unpack("<q" if len(raw) == 8 else "<i", raw)[0])


def _number(raw: bytes) -> float:
    return float(struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0])


def _decimal(raw: bytes) -> int:
    return int.from_bytes(raw, signed=True)


_BOUNDS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "boolean": lambda raw: raw[0] != 0,
    **dict.fromkeys(("int", "long", "date", "time", "timestamp", "timestamptz"), _whole),
    **dict.fromkeys(("timestamp_ns", "timestamptz_ns"), _whole),
    **dict.fromkeys(("float", "double"), _number),
    "decimal": _decimal,
    # Iceberg compares the bytes. For a string these have the order of its code points.
    **dict.fromkeys(("string", "binary", "fixed"), bytes),
}


class ColumnState(NamedTuple):
    """A column of one file: its bounds, None if unknown, whether all its values are null, and whether none is."""

    lowest: Any | None
    highest: Any | None
    is_all_null: bool
    has_no_null: bool

    @classmethod
    def of(cls, column: Column, stats: ColumnStats) -> Self:
        return cls(
            bound(column, stats.lower),
            bound(column, stats.upper),
            is_all_null(stats, column),
            has_no_null(stats, column),
        )


def column_states(
    stats: Mapping[int, ColumnStats], columns: Mapping[int, Column], ids: Iterable[int]
) -> dict[int, ColumnState]:
    """Return the state of each of these columns of a file. A column that the schema no longer has is left out."""
    known = (field_id for field_id in ids if field_id in columns)
    return {field_id: ColumnState.of(columns[field_id], stats.get(field_id, NO_STATS)) for field_id in known}


class EqualityDelete(NamedTuple):
    """An equality delete file: the columns by which it deletes. Each is compared with those of many data files."""

    sequence: int
    columns: tuple[tuple[int, ColumnState], ...]

    def may_delete_from(self, data: Mapping[int, ColumnState]) -> bool:
        """Return whether it may delete rows of an older data file, by the rules of Iceberg's DeleteFileIndex."""
        return all(_may_be_equal(data[field_id], deleted) for field_id, deleted in self.columns)


def _may_be_equal(data: ColumnState, deleted: ColumnState) -> bool:
    lowest, highest, is_null, is_never_null = data
    first, last, deletes_null, never_deletes_null = deleted
    if not (is_never_null or never_deletes_null):
        return True
    if (is_null and never_deletes_null) or (deletes_null and is_never_null):
        return False
    if lowest is None or highest is None or first is None or last is None:
        return True
    return bool(lowest <= last and first <= highest)


def has_no_null(stats: ColumnStats, column: Column) -> bool:
    return column.is_required or (stats.nulls is not None and stats.nulls <= 0)


def is_all_null(stats: ColumnStats, column: Column) -> bool:
    return not column.is_required and stats.nulls is not None and stats.nulls == stats.values
