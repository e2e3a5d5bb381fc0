"""The base classes of the service's errors; subclasses differ in what the caller can do next."""

import traceback
from collections.abc import Sequence
from typing import Any, ClassVar


class DelegationError(Exception):
    """An error that this service raises on purpose; its text holds no credential and may be shown to a caller.

    `code` is recorded on a task and returned as `ErrorResponse.error_code` (Delegation Service proposal, Appendix);
    `retryable` is whether the same call may succeed later.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Make instances picklable whatever their constructor takes: Spark executors send them to the driver."""
        return _restored, (type(self), self.args, dict(self.__dict__))


def _restored(kind: type[DelegationError], args: tuple[Any, ...], fields: dict[str, Any]) -> DelegationError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class GuardRefused(DelegationError):
    """A guard refused the purge before its first delete."""

    code: ClassVar[str] = "REFUSED"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with the noun in its form; `plural` is of a noun that does not just get an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def printable(text: str, limit: int = 200) -> str:
    """Return text for a log line or a message: control characters escaped, cut to `limit` characters."""
    clean = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return clean if len(clean) <= limit else clean[:limit] + "…"


def shown(sample: Sequence[str]) -> str:
    """Return the first three of a sample for a message."""
    return ", ".join(printable(one) for one in sample[:3]) or "none"


def traceback_of(error: BaseException) -> list[str]:
    """Return the class and stack frames of an error without its text, which may quote a request."""
    frames = traceback.extract_tb(error.__traceback__)
    return [type(error).__qualname__, *(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)]
