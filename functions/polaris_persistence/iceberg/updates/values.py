"""Reading JSON values of updates and requirements as strictly as Iceberg's parsers do (Iceberg's JsonUtil)."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from polaris_persistence.objects.objects import nests_beyond

MAX_SHOWN: Final = 200
"""The most characters of a client's value that a message quotes."""
INT: Final = range(-(2**31), 2**31)
LONG: Final = range(-(2**63), 2**63)


class UpdateRefusal(Exception):
    """A reason why Iceberg refuses an update; `stale` if the same change may be accepted on newer metadata.

    It never leaves this package: the caller names the update and raises InvalidIcebergUpdate or IcebergConflict.
    """

    def __init__(self, reason: str, *, stale: bool = False) -> None:
        self.reason = reason
        self.stale = stale
        super().__init__(reason)


def check(condition: object, reason: str) -> None:
    """Raise UpdateRefusal unless the condition holds."""
    if not condition:
        raise UpdateRefusal(reason)


def text_of(value: Any) -> str:
    """Return a value as compact JSON for messages; of a long one only the start."""
    if nests_beyond(value, MAX_SHOWN):
        return "(a value that nests deeply)"
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def is_int(value: Any, within: range = INT) -> bool:
    """Return whether a value is an integer of Java's int (or of `within`); true and 1.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value in within


def object_of(value: Any, what: str) -> Mapping[str, Any]:
    """Return a JSON object. Raises UpdateRefusal."""
    if not isinstance(value, dict):
        raise UpdateRefusal(f"{what}: {text_of(value)}")
    return value


def node(name: str, value: Any) -> Any:
    """Return a required field that is not null."""
    found = value.get(name) if isinstance(value, dict) else None
    if found is None:
        raise UpdateRefusal(f"Cannot parse missing field: {name}")
    return found


def integer(name: str, value: Any) -> int:
    """Return a required field of Java's int."""
    return int(_required(name, value, "int", "an integer", is_int))


def integer_or_none(name: str, value: Any) -> int | None:
    """Return an optional field of Java's int."""
    return None if _absent(name, value) else integer(name, value)


def long(name: str, value: Any) -> int:
    """Return a required field of Java's long."""
    return int(_required(name, value, "long", "a long", lambda found: is_int(found, LONG)))


def long_or_none(name: str, value: Any) -> int | None:
    """Return an optional field of Java's long."""
    return None if _absent(name, value) else long(name, value)


def boolean(name: str, value: Any) -> bool:
    """Return a required boolean field."""
    return bool(_required(name, value, "boolean", "a boolean", lambda found: isinstance(found, bool)))


def string(name: str, value: Any) -> str:
    """Return a required text field."""
    return str(_required(name, value, "string", "a string", lambda found: isinstance(found, str)))


def string_or_none(name: str, value: Any) -> str | None:
    """Return an optional text field; null is none."""
    return None if _absent(name, value) else string(name, value)


def string_map(name: str, value: Any) -> dict[str, str]:
    """Return a required object of texts."""
    found = _required(name, value, "map", None, lambda _: True)
    if not isinstance(found, dict):
        raise UpdateRefusal(f"Cannot parse string map from non-object value: {name}: {text_of(found)}")
    for key, text in found.items():
        # Iceberg's message has the value, which may be a secret.
        check(isinstance(text, str), f"Cannot parse to a string value: {key}")
    return dict(found)


def array(name: str, value: Any, what: str) -> list[Any]:
    """Return a required array; `what` names the collection in a message."""
    found = _required(name, value, what, None, lambda _: True)
    if not isinstance(found, list):
        raise UpdateRefusal(f"Cannot parse JSON array from non-array value: {name}: {text_of(found)}")
    return found


def strings(name: str, value: Any, what: str) -> list[str]:
    """Return a required array of texts without repetitions, in order."""
    return _each(array(name, value, what), lambda item: isinstance(item, str), f"string from non-text value in {name}")


def integers(name: str, value: Any, what: str) -> list[int]:
    """Return a required array of Java's int without repetitions, in order."""
    return _each(array(name, value, what), is_int, f"integer from non-int value in {name}")


def longs(name: str, value: Any, what: str) -> list[int]:
    """Return a required array of Java's long without repetitions, in order."""
    return _each(array(name, value, what), lambda item: is_int(item, LONG), f"long from non-long value in {name}")


def number_from(text: str) -> int:
    """Return the Java int that a text names. Raises UpdateRefusal."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Digits are counted first, without leading zeros: Python refuses to parse a very long number at all.
    significant = digits.lstrip("0") or "0"
    whole = digits.isascii() and digits.isdigit() and len(significant) <= len(str(INT.stop))
    number = int(significant) * (-1 if text[:1] == "-" else 1) if whole else None
    if number is None or number not in INT:
        raise UpdateRefusal(f'For input string: "{text[:MAX_SHOWN]}"')
    return number


def unknown(value: Mapping[str, Any], known: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Return the fields that this release does not know, which are kept as the client wrote them."""
    return ((name, part) for name, part in value.items() if name not in known)


def _absent(name: str, value: Any) -> bool:
    return not isinstance(value, dict) or value.get(name) is None


def _required(name: str, value: Any, missing: str, kind: str | None, fits: Callable[[Any], bool]) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise UpdateRefusal(f"Cannot parse missing {missing}: {name}")
    found = value[name]
    if kind is not None and not fits(found):
        raise UpdateRefusal(f"Cannot parse to {kind} value: {name}: {text_of(found)}")
    return found


def _each(found: list[Any], fits: Callable[[Any], bool], reason: str) -> list[Any]:
    for element in found:
        if not fits(element):
            raise UpdateRefusal(f"Cannot parse {reason}: {text_of(element)}")
    return list(dict.fromkeys(found))
