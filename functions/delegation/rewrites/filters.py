"""Partitions as an Iceberg expression in JSON (ExpressionParser) that selects exactly them. A predicate on the
transform of a partition field is projected to that field unchanged. Files of former specs may match too."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final, Self
from uuid import UUID

from delegation.rewrites.choose import Partition

_DAY: Final = "day"
_NUMBERED: Final = frozenset({"year", "month", "hour"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SOURCED: Final = frozenset({"identity", "truncate"})
_WIDE: Final = Context(prec=100)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec. `column` and `type` are those of its source, None if it has several sources or only
    a former schema has it."""

    field_id: int
    transform: str
    column: str | None
    type: str | None

    @property
    def kind(self) -> str:
        return self.transform.partition("[")[0]


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """The fields of a table's current spec."""

    fields: tuple[PartitionField, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Read the current spec and schema from table metadata of any version."""
        columns: dict[int, tuple[str | None, str | None]] = dict(_columns(_schema(document).get("fields") or ()))
        fields = []
        for number, part in enumerate(current_spec(document)):
            column, kind = columns.get(part.get("source-id", -1), (None, None))
            fields.append(PartitionField(part.get("field-id", 1000 + number), str(part.get("transform")), column, kind))
        return cls(tuple(fields))

    def of_partition(self, partition: Partition) -> Any | None:
        """Return the expression of one partition, None if no expression selects it alone."""
        values = dict(partition.values)
        parts = []
        for field in self.fields:
            if field.kind == "void":
                continue
            predicate = _predicate(field, values.get(field.field_id))
            if predicate is None:
                return None
            parts.append(predicate)
        return _joined("and", parts) if parts else True

    def of_partitions(self, partitions: Iterable[Partition]) -> Any | None:
        """Return the expression of all these partitions, None if one of them has none."""
        parts = [self.of_partition(partition) for partition in partitions]
        return None if not parts or None in parts else _joined("or", parts)

    def has(self, partition: Partition) -> bool:
        return self.of_partition(partition) is not None


def identity_sources(document: Mapping[str, Any]) -> Mapping[int, Mapping[int, int]]:
    """Return for each partition spec the columns whose values its partitions contain, by field id."""
    specs = document.get("partition-specs") or [{"spec-id": 0, "fields": document.get("partition-spec") or ()}]
    return {
        spec["spec-id"]: {
            part.get("field-id", 1000 + number): part["source-id"]
            for number, part in enumerate(spec.get("fields") or ())
            if part.get("transform") == "identity" and "source-id" in part
        }
        for spec in specs
    }


def current_spec(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the fields of the table's default partition spec."""
    specs = document.get("partition-specs")
    if specs is None:
        return list(document.get("partition-spec") or ())
    current = document.get("default-spec-id", 0)
    return list(next((spec.get("fields") or () for spec in specs if spec.get("spec-id") == current), ()))


def _schema(document: Mapping[str, Any]) -> Mapping[str, Any]:
    current = document.get("current-schema-id")
    schemas = document.get("schemas") or ()
    return next((schema for schema in schemas if schema.get("schema-id") == current), document.get("schema") or {})


def _columns(fields: Iterable[Mapping[str, Any]], prefix: str = "") -> Iterable[tuple[int, tuple[str, str | None]]]:
    for field in fields:
        name, kind = f"{prefix}{field.get('name')}", field.get("type")
        yield field["id"], (name, kind if isinstance(kind, str) else None)
        if isinstance(kind, Mapping) and kind.get("type") == "struct":
            yield from _columns(kind.get("fields") or (), f"{name}.")


def _joined(kind: str, parts: Sequence[Any]) -> Any:
    """Return a balanced tree, because Iceberg visits expressions by recursion."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return {"type": kind, "left": _joined(kind, parts[:middle]), "right": _joined(kind, parts[middle:])}


def _predicate(field: PartitionField, value: Any) -> Any | None:
    if field.column is None or field.type is None:
        return None
    is_identity = field.kind == "identity"
    term: Any = field.column
    if not is_identity:
        term = {"type": "transform", "transform": field.transform, "term": field.column}
    if value is None:
        # Only null has a null transform.
        return {"type": "is-null", "term": field.column}
    if isinstance(value, float) and math.isnan(value):
        return {"type": "is-nan", "term": field.column} if is_identity else None
    literal = _literal_of(field, value)
    return None if literal is None else {"type": "eq", "term": term, "value": literal}


def _literal_of(field: PartitionField, value: Any) -> Any | None:
    """Return a value in Iceberg's JSON (Appendix C, JSON single-value serialization)."""
    if field.kind in _SOURCED:
        return _literal(field.type or "", value)
    if field.kind == _DAY:
        return _literal("date", value)
    if field.kind in _NUMBERED or field.kind == "bucket":
        return _literal("int", value)
    return None


def _literal(kind: str, value: Any) -> Any | None:
    """Return None for a value of another type, or outside the range of Python's dates."""
    expected, convert = _LITERALS.get(kind.partition("(")[0].partition("[")[0], (None, None))
    if expected is None or convert is None or type(value) is not expected:
        return None
    try:
        return convert(kind, value)
    except (ValueError, OverflowError):
        return None


def _float(_kind: str, value: float) -> float | None:
    return value if math.isfinite(value) else None


def _date(_kind: str, days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _time(_kind: str, micros: int) -> str:
    return (_EPOCH + timedelta(microseconds=micros)).time().isoformat("microseconds")


def _timestamp(kind: str, micros: int) -> str:
    text = (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds")
    return text if kind == "timestamptz" else text.removesuffix("+00:00")


def _decimal(kind: str, unscaled: bytes) -> str:
    scale = int(kind.partition(",")[2].strip(" )"))
    return format(Decimal(int.from_bytes(unscaled, signed=True)).scaleb(-scale, _WIDE), "f")


def _same(_kind: str, value: Any) -> Any:
    return value


def _hex(_kind: str, value: bytes) -> str:
    return value.hex().upper()


_LITERALS: Final[Mapping[str, tuple[type, Callable[[str, Any], Any]]]] = {
    "boolean": (bool, _same),
    "int": (int, _same),
    "long": (int, _same),
    "float": (float, _float),
    "double": (float, _float),
    "string": (str, _same),
    "date": (int, _date),
    "time": (int, _time),
    "timestamp": (int, _timestamp),
    "timestamptz": (int, _timestamp),
    "uuid": (bytes, lambda _kind, value: str(UUID(bytes=value))),
    "binary": (bytes, _hex),
    "fixed": (bytes, _hex),
    "decimal": (bytes, _decimal),
}
