"""UTC timestamps and durations."""

import re
import sys
import time
from datetime import UTC, datetime, timedelta
from operator import methodcaller
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError

_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
# Compared and converted without a call of Python code: a request has some thirty of them.
Timestamp = Annotated[AwareDatetime, Field(ge=_FIRST, le=_LAST), AfterValidator(methodcaller("astimezone", UTC))]
"""An aware datetime, converted to UTC; a naive one, or one outside of UTC's range, is refused."""


def stored_time(text: Any) -> datetime:
    """Return a stored time in UTC. Raises TypeError or ValueError for other text, or without time zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text} is out of range in UTC") from None


def stored_time_or(otherwise: datetime, text: Any) -> datetime:
    """Return a stored time, `otherwise` for other text: a damaged entry must not end the reading of an index."""
    try:
        return stored_time(text)
    except (TypeError, ValueError):
        return otherwise


def stored_epoch(seconds: Any) -> datetime:
    """Return a stored time in epoch seconds. Raises TypeError or ValueError for other values."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(str(error)) from None


def isoformat(moment: datetime) -> str:
    """Return RFC 3339 text in UTC of fixed width, with microseconds, so that text order is time order."""
    # Not strftime: on Linux its %Y does not pad years before 1000.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


_SHORT: Final = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_ISO_8601: Final = TypeAdapter(timedelta, config=ConfigDict(defer_build=True))
LONGEST_DURATION: Final = timedelta(days=3650)


def parse_duration(text: str) -> timedelta:
    """Parse a duration up to ten years such as `500ms`, `30s`, `1h` or ISO 8601 `PT1H`. Raises ValueError."""
    text = text.strip()
    if match := _SHORT.fullmatch(text):
        try:
            parsed = timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError as error:
            raise ValueError(f"{text!r} is too long for a duration") from error
    elif text.upper().startswith("P"):
        try:
            parsed = _ISO_8601.validate_python(text.upper())
        except ValidationError as error:
            raise ValueError(f"{text!r} is not an ISO 8601 duration") from error
    else:
        raise ValueError(f"{text!r} is not a duration like 30s, 1h or PT1H")
    if parsed <= timedelta(0):
        raise ValueError(f"{text!r} is not positive")
    if parsed > LONGEST_DURATION:
        raise ValueError(f"{text!r} is longer than {LONGEST_DURATION.days} days")
    return parsed


def utc_now() -> datetime:
    return datetime.now(UTC)


def elapsed() -> float:
    """Return seconds of a clock that is never set; on Linux not CLOCK_MONOTONIC, which stops during suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()
