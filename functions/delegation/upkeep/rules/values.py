"""Bounded numbers, ages and words of policies and properties. Functions raise ValueError with the end of a sentence
that does not quote the value."""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

DAY_MS: Final = 86_400_000
FOREVER_MS: Final = 2**63 - 1
"""Java's Long.MAX_VALUE, Iceberg's default of the age that a ref may reach: it is never removed."""
MOST: Final = 2**31 - 1
"""Java's Integer.MAX_VALUE."""
_NUMBER: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,9})?")
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}")


def number_in(value: object) -> int | Decimal:
    """Return a JSON number, or one in a string such as `7` or `0.5`, from 0 to Java's largest long."""
    match value:
        case bool():
            found: int | Decimal | None = None
        case int():
            found = value
        case float():
            found = Decimal(repr(value)) if math.isfinite(value) else None
        case str() if _NUMBER.fullmatch(value):
            found = Decimal(value)
        case _:
            found = None
    if found is None:
        raise ValueError("is not a number")
    if not 0 <= found <= FOREVER_MS:
        raise ValueError(f"is not a number from 0 to {FOREVER_MS}")
    return found


def age_in_days(value: object) -> int:
    """Return the milliseconds of a number of days, rounded up."""
    milliseconds = math.ceil(number_in(value) * DAY_MS)
    if milliseconds > FOREVER_MS:
        raise ValueError(f"is more than {FOREVER_MS // DAY_MS} days")
    return milliseconds


def age_in_ms(text: str) -> int:
    return _long(text, 0, FOREVER_MS)


def count_in_property(text: str) -> int:
    """Return an Iceberg property of at least 1."""
    return _long(text, 1, MOST)


def size_in_property(text: str) -> int:
    """Return an Iceberg property in bytes."""
    return _long(text, 1, FOREVER_MS)


def whole(least: int, most: int = MOST) -> Callable[[object], int]:
    """Return a parser of whole numbers between two bounds."""

    def read(value: object) -> int:
        found = number_in(value)
        if found != int(found) or not least <= found <= most:
            raise ValueError(f"is not a whole number from {least} to {most}")
        return int(found)

    return read


def word(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"is not one of {', '.join(words)}")
        return value

    return read


def _long(text: str, least: int, most: int) -> int:
    if not _LONG.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"is not a whole number from {least} to {most}")
    return int(text)


def age_text(milliseconds: int) -> str:
    """Return an age in its greatest unit without a fraction, for display."""
    if milliseconds == FOREVER_MS:
        return "forever"
    for unit, length in (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if milliseconds % length == 0:
            number = milliseconds // length
            return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"
    return f"{milliseconds:,} ms"
