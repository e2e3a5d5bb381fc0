"""The texts of Iceberg's primitive types and partition transforms, and what may be transformed (Iceberg Table Spec,
Schemas and Data Types; Partition Transforms)."""

import re
from typing import Any, Final

from polaris_persistence.iceberg.updates.values import UpdateRefusal, check, number_from

_SIMPLE: Final = frozenset(
    {
        "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns",
        "timestamptz_ns", "string", "uuid", "binary", "unknown", "variant", "geometry", "geography",
    }
)  # fmt: skip
_GEOMETRY: Final = re.compile(r"geometry\s*(?:\(\s*([^)]*?)\s*\))?", re.IGNORECASE | re.ASCII)
_GEOGRAPHY: Final = re.compile(r"geography\s*(?:\(\s*([^,]*?)\s*(?:,\s*(\w*)\s*)?\))?", re.IGNORECASE | re.ASCII)
_FIXED: Final = re.compile(r"fixed\[\s*(\d+)\s*\]", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", re.ASCII)
_EDGES: Final = frozenset({"SPHERICAL", "VINCENTY", "THOMAS", "ANDOYER", "KARNEY"})
_DEFAULT_CRS: Final = "OGC:CRS84"
_MOST_PRECISION: Final = 38
_NOT_IDENTITY: Final = frozenset({"variant", "geometry", "geography"})
_WITH_WIDTH: Final = re.compile(r"(\w+)\[(\d+)\]", re.ASCII)
_BUCKETED: Final = frozenset(
    {"int", "long", "decimal", "date", "time", "timestamp", "timestamp_ns", "string", "uuid", "fixed", "binary"}
)
_TRUNCATED: Final = frozenset({"int", "long", "decimal", "string", "binary"})
_PERIODS: Final = frozenset({"year", "month", "day", "hour"})
_TIMES: Final = frozenset({"timestamp", "timestamp_ns"})

MAX_LEVELS_SHOWN: Final = 5
SINCE_3: Final = frozenset({"timestamp_ns", "variant", "unknown", "geometry", "geography"})
"""The kinds of types that format version 3 introduced."""
VOID: Final = "void"


def type_text(text: str) -> str:
    """Return the text of a primitive type as Iceberg writes it. Raises UpdateRefusal."""
    lower = text.lower()
    if lower in _SIMPLE:
        return lower
    if geometry := _GEOMETRY.fullmatch(text):
        crs = _crs(geometry[1])
        return f"geometry({crs})" if crs else "geometry"
    if geography := _GEOGRAPHY.fullmatch(text):
        return _geography(geography[1], geography[2])
    if fixed := _FIXED.fullmatch(lower):
        return f"fixed[{number_from(fixed[1])}]"
    if decimal := _DECIMAL.fullmatch(lower):
        precision, scale = number_from(decimal[1]), number_from(decimal[2])
        reason = f"Decimals with precision larger than {_MOST_PRECISION} are not supported: {precision}"
        check(precision <= _MOST_PRECISION, reason)
        return f"decimal({precision}, {scale})"
    raise UpdateRefusal(f"Cannot parse type string to primitive: {text}")


def kind_of(type_: Any) -> str:
    """Return the kind of a parsed type: its name without parameters and time zone; struct, list or map if nested."""
    if isinstance(type_, dict):
        return str(type_["type"])
    name = re.split(r"[\[(]", type_, maxsplit=1)[0]
    return name.replace("tz", "")


def is_primitive(type_: Any) -> bool:
    """Return whether a parsed type is primitive; a variant is not."""
    return not isinstance(type_, dict) and type_ != "variant"


def type_name(type_: Any, *, levels: int = MAX_LEVELS_SHOWN) -> str:
    """Return a parsed type as Iceberg's messages name it, without deep nesting."""
    if not isinstance(type_, dict):
        return str(type_)
    if levels == 0:
        return f"{type_['type']}<…>"
    if type_["type"] == "list":
        return f"list<{type_name(type_['element'], levels=levels - 1)}>"
    if type_["type"] == "map":
        names = (type_name(type_[part], levels=levels - 1) for part in ("key", "value"))
        return f"map<{', '.join(names)}>"
    return f"struct<{', '.join(field_name(field, levels=levels - 1) for field in type_['fields'])}>"


def field_name(field: dict[str, Any], *, levels: int = MAX_LEVELS_SHOWN) -> str:
    """Return a field as Iceberg's messages name it, without deep nesting."""
    required = "required" if field["required"] else "optional"
    doc = f" ({field['doc']})" if field.get("doc") is not None else ""
    return f"{field['id']}: {field['name']}: {required} {type_name(field['type'], levels=levels)}{doc}"


def transform_text(text: str) -> str:
    """Return a transform as Iceberg writes it; an unknown one stays. Raises UpdateRefusal."""
    if match := _WITH_WIDTH.fullmatch(text):
        name, width = match[1].lower(), number_from(match[2])
        if name == "bucket":
            check(width > 0, f"Invalid number of buckets: {width} (must be > 0)")
        elif name == "truncate":
            check(width > 0, f"Invalid truncate width: {width} (must be > 0)")
        if name in ("bucket", "truncate"):
            return f"{name}[{width}]"
    lower = text.lower()
    return lower if lower in _PERIODS or lower in ("identity", VOID) else text


def check_binding(transform: str, type_: Any) -> None:
    """Raise UpdateRefusal if Iceberg cannot read this transform of a column of this type."""
    name, kind = _transform_kind(transform), kind_of(type_)
    if name == "identity":
        check(kind not in _NOT_IDENTITY, f"Unsupported type for identity: {type_name(type_)}")
    elif name in ("bucket", "truncate"):
        check(transforms(transform, type_), f"Cannot {name} {'by ' * (name == 'bucket')}type: {type_name(type_)}")
    elif name in _PERIODS:
        check(transforms(transform, type_), f"Unsupported type: {type_name(type_)}")


def transforms(transform: str, type_: Any, bound_to: Any = None) -> bool:
    """Return whether a transform fits a column of this type. One bound to a date no longer fits a timestamp."""
    name, kind = _transform_kind(transform), kind_of(type_)
    if name == "identity":
        return is_primitive(type_) and kind not in _NOT_IDENTITY
    if name == "bucket":
        return kind in _BUCKETED
    if name == "truncate":
        return kind in _TRUNCATED
    if name in _PERIODS:
        if bound_to is not None:
            return (kind in _TIMES) if kind_of(bound_to) in _TIMES else kind == kind_of(bound_to)
        return kind in _TIMES or (kind == "date" and name != "hour")
    return True


def _transform_kind(transform: str) -> str:
    return transform.partition("[")[0] if _WITH_WIDTH.fullmatch(transform) else transform


def _crs(text: str | None) -> str | None:
    check(text is None or text, "Invalid CRS: (empty string)")
    return None if text is None or text.upper() == _DEFAULT_CRS else text


def _geography(text: str | None, edges: str | None) -> str:
    if edges is not None:
        check(edges.upper() in _EDGES, f"Invalid edge interpolation algorithm: {edges}")
    crs = _crs(text)
    if edges is not None:
        return f"geography({crs or _DEFAULT_CRS}, {edges.lower()})"
    return f"geography({crs})" if crs else "geography"
