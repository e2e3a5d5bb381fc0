"""What a task function reports while it works: typed progress, and a map of its own. Pure functions."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from polaris_common.errors import DelegationError

MOST_BYTES: Final = 16_384
"""Bytes of the map as JSON text; it must fit into the record beside payload and result."""


def bad_report(reason: str) -> DelegationError:
    """Return the error for a report that a task's record cannot hold; `reason` names the field."""
    return DelegationError(f"run.report: {reason}", code="BAD_REPORT")


class TaskProgress(BaseModel):
    """The work's progress: `done` of `total` things of a `unit`, and a `message` for people."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    done: int | None = Field(default=None, ge=0, lt=2**63)
    total: int | None = Field(default=None, ge=0, lt=2**63)
    unit: str | None = Field(default=None, max_length=64)
    message: str | None = Field(default=None, max_length=1_024)


def advanced(before: TaskProgress | None, given: Mapping[str, Any]) -> TaskProgress | None:
    """Return the progress with the given members replaced; None without any. Raises DelegationError (BAD_REPORT), which
    names the member."""
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        return before
    try:
        return TaskProgress.model_validate({**(before.model_dump() if before else {}), **changes})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise bad_report(f"{first['loc'][0]}: {first['msg']}") from None


def merged(before: Mapping[str, Any], details: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the map with the given details added; a detail that is None is removed. DelegationError (BAD_REPORT) names
    the detail that JSON cannot hold or that exceeds MOST_BYTES."""
    if details is None:
        return dict(before)
    _require_json(details)
    text = _json_text({name: value for name, value in {**before, **details}.items() if value is not None})
    size = len(text)
    if size > MOST_BYTES:
        raise bad_report(f"details: has {size:,} bytes, more than {MOST_BYTES:,}. Return large values as the result")
    return json.loads(text)  # type: ignore[no-any-return] # a copy: the caller may change its own


def storable(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return details as every store returns them: plain text, numbers, lists and maps. DelegationError (BAD_REPORT)
    names the detail that JSON cannot hold."""
    _require_json(details)
    return json.loads(_json_text(details))  # type: ignore[no-any-return]


def _require_json(details: Mapping[str, Any]) -> None:
    for path, reason in _faults(details, "details"):
        raise bad_report(f"{path}: {reason}")


def _json_text(details: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(details, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # a lone surrogate, or lists nested without end
        raise bad_report("details: is not valid JSON text; report plain text, numbers, lists and maps") from None


_DEEPEST: Final = 32
"""The most levels of lists and maps; deeper ones would exhaust a reader's stack."""


def _faults(value: object, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the path of each value that JSON cannot hold, and why."""
    match value:
        case None | bool() | int() | str():
            return
        case float():
            if not math.isfinite(value):
                yield path, f"JSON has no number {value}"
        case Mapping() if depth < _DEEPEST:
            for name, item in value.items():
                if isinstance(name, str):
                    yield from _faults(item, f"{path}.{name}", depth + 1)
                else:
                    yield path, f"the name {name!r} is not text"
        case list() | tuple() if depth < _DEEPEST and path != "details":
            for place, item in enumerate(value):
                yield from _faults(item, f"{path}.{place}", depth + 1)
        case _:
            expected = "a map" if path == "details" else "text, a number, a list or a map"
            yield path, f"must be {expected}, not {type(value).__name__}"
