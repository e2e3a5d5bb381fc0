"""Default values of columns as Iceberg writes them (Iceberg Table Spec, JSON Single-Value Serialization)."""

import math
import re
import struct
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from polaris_persistence.iceberg.updates.types import kind_of, type_name
from polaris_persistence.iceberg.updates.values import LONG, UpdateRefusal, check, is_int, text_of

_TIME: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{0,9}))?)?", re.ASCII)
_ZONE: Final = re.compile(r"(?:Z|[+-]00:00(?::00)?)", re.IGNORECASE)
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX: Final = re.compile(r"(?:[0-9A-F]{2})*")
_MOST_SCALE: Final = 10_000
"""The most digits after the point of a default, written without an exponent; Iceberg has no limit."""
_MICROS, _NANOS = 6, 9
_NANO_YEARS: Final = range(1678, 2262)
"""The years whose every nanosecond since 1970 is a Java long."""


def default_value(type_: Any, value: Any) -> Any:
    """Return a default value of a parsed type. Raises UpdateRefusal for what Iceberg does not read, such as null."""
    if value is None:
        raise UpdateRefusal("Cannot create expression literal from null")
    if isinstance(type_, dict):
        raise UpdateRefusal(f"Invalid default value for {type_name(type_)}: {text_of(value)} (must be null)")
    parse = _PARSERS.get(kind_of(type_))
    if parse is None:
        raise UpdateRefusal(f"Type: {type_} is not supported")
    return parse(type_, value)


def _bad(type_: str, value: Any, why: str = "") -> UpdateRefusal:
    return UpdateRefusal(f"Cannot parse default as a {type_} value: {text_of(value)}{why}")


def _if(fits: Callable[[Any], bool]) -> Callable[[str, Any], Any]:
    def parse(type_: str, value: Any) -> Any:
        if not fits(value):
            raise _bad(type_, value)
        return value

    return parse


def _text(type_: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _bad(type_, value)
    return value


def _floating(type_: str, value: Any) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        raise _bad(type_, value)
    if type_ == "double":
        return value
    try:
        [single] = struct.unpack("f", struct.pack("f", value))
    except OverflowError as error:
        raise _bad(type_, value) from error
    # The shortest text that names the same float of 32 bits, as Java prints it.
    texts = (f"{single:.{digits}g}" for digits in range(1, 10))
    return next(float(text) for text in texts if struct.unpack("f", struct.pack("f", float(text)))[0] == single)


def _decimal(type_: str, value: Any) -> str:
    text = _text(type_, value)
    scale = int(type_.rstrip(")").rpartition(",")[2])
    try:
        number = Decimal(text) if _DECIMAL.fullmatch(text) else None
    except InvalidOperation:
        number = None
    if number is None:
        raise _bad(type_, value)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent != scale:
        raise _bad(type_, value, ", the scale doesn't match")
    if scale > _MOST_SCALE:
        raise _bad(type_, value, f", a default has at most {_MOST_SCALE} digits after the point")
    return f"{number or abs(number):f}"


def _uuid(type_: str, value: Any) -> str:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise _bad(type_, value)
    return value.lower()


def _day(text: str) -> str:
    try:
        day = date.fromisoformat(text) if len(text) == len("2026-01-01") else None
    except ValueError:
        day = None
    if day is None:
        raise UpdateRefusal(f"Text '{text}' could not be parsed at index 0")
    return day.isoformat()


def _clock(text: str, digits: int) -> str:
    match = _TIME.fullmatch(text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59 or int(match[3] or 0) > 59:
        raise UpdateRefusal(f"Text '{text}' could not be parsed at index 0")
    fraction = (match[4] or "")[:digits].rstrip("0")
    return f"{match[1]}:{match[2]}:{match[3] or '00'}{'.' + fraction if fraction else ''}"


def _date(type_: str, value: Any) -> str:
    return _day(_text(type_, value))


def _time(type_: str, value: Any) -> str:
    return _clock(_text(type_, value), _MICROS)


def _timestamp(type_: str, value: Any) -> str:
    text = _text(type_, value)
    digits = _NANOS if type_.endswith("_ns") else _MICROS
    zoned = "tz" in type_
    zone = re.search(r"(?:Z|[+-]\d\d:\d\d(?::\d\d)?)$", text, re.IGNORECASE)
    check(bool(zone) == zoned, f"Text '{text}' could not be parsed at index 0")
    if zone is not None:
        if not _ZONE.fullmatch(zone[0]):
            raise _bad(type_, value, ", offset must be +00:00")
        text = text[: zone.start()]
    day, separator, clock = text.partition("T") if "T" in text else text.partition("t")
    check(separator, f"Text '{text}' could not be parsed at index 0")
    written = f"{_day(day)}T{_clock(clock, digits)}"
    check(digits == _MICROS or int(written[:4]) in _NANO_YEARS, "long overflow")
    return written + ("+00:00" if zoned else "")


def _bytes(type_: str, value: Any) -> str:
    text = _text(type_, value).upper()
    if type_ != "binary":
        length = int(type_[len("fixed[") : -1])
        reason = f"Cannot parse default {type_} value: {text_of(value)}, incorrect length: {len(text)}"
        check(len(text) == 2 * length, reason)
    check(_HEX.fullmatch(text), f"Cannot decode {text_of(value)} as hexadecimal bytes")
    return text


_PARSERS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "boolean": _if(lambda value: isinstance(value, bool)),
    "int": _if(is_int),
    "long": _if(lambda value: is_int(value, LONG)),
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "string": _if(lambda value: isinstance(value, str)),
    "uuid": _uuid,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamp_ns": _timestamp,
    "fixed": _bytes,
    "binary": _bytes,
}
