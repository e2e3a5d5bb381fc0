from collections.abc import Iterator, Mapping
from typing import Any


def values(event: Mapping[str, Any], name: str) -> list[str]:
    """Return all values of a header, in order; an event's `headers` has only the last value of a repeated one."""
    wanted = name.lower()
    repeated = [
        value for header, many in _items(event, "multiValueHeaders") if header == wanted for value in many or ()
    ]
    return repeated or [value for header, value in _items(event, "headers") if header == wanted and value is not None]


def single(event: Mapping[str, Any], name: str) -> str | None:
    """Return the only value of a header; None if it is absent, or repeated and therefore ambiguous."""
    given = values(event, name)
    return given[0] if len(given) == 1 else None


def _items(event: Mapping[str, Any], member: str) -> Iterator[tuple[str, Any]]:
    for name, value in (event.get(member) or {}).items():
        yield name.lower(), value
