"""The base class of errors that are raised on purpose, and texts of their messages."""

import traceback
from collections.abc import Sequence
from enum import IntEnum
from typing import Any


class ErrorScope(IntEnum):
    """How far an error reaches: one item (a table, task, policy or record), the items of one catalog, or everything. A
    loop over items sets failed ones aside, and stops for an error that reaches further."""

    ITEM = 1
    CATALOG = 2
    SERVICE = 3


class DelegationError(Exception):
    """An error that this service raises on purpose; its text holds no credential and may be shown to a caller.

    `code` is recorded on a task and returned as `ErrorResponse.error_code` (Delegation Service proposal, Appendix).
    `retryable` is whether the same call may succeed later. An error that nobody catches by its class has no class: it
    is its parent with a code of its own. `task_id` is that of the task concerned.
    """

    code: str = "INTERNAL_ERROR"
    retryable: bool = False
    scope: ErrorScope = ErrorScope.ITEM

    def __init__(
        self,
        *args: object,
        code: str | None = None,
        retryable: bool | None = None,
        task_id: str | None = None,
        scope: ErrorScope | None = None,
    ) -> None:
        super().__init__(*args)
        given = {"code": code, "retryable": retryable, "task_id": task_id, "scope": scope}
        self.__dict__.update({name: value for name, value in given.items() if value is not None})

    def __reduce__(self) -> tuple[Any, ...]:
        """Make instances picklable for any constructor: Spark executors send them to the driver."""
        return restored, (type(self), self.args, dict(self.__dict__))


def restored(kind: type[BaseException], args: tuple[Any, ...], fields: dict[str, Any]) -> BaseException:
    """Return a pickled error, for any constructor."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with the noun in its form; `plural` is for a noun that does not just get an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def printable(text: str, limit: int = 200) -> str:
    """Return text for a log line or a message: control characters escaped, cut to `limit` characters."""
    clean = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return clean if len(clean) <= limit else clean[:limit] + "…"


def shown(sample: Sequence[str]) -> str:
    """Return the first three of a sample for a message."""
    return ", ".join(printable(text) for text in sample[:3]) or "none"


def traceback_of(error: BaseException) -> list[str]:
    """Return the class and stack frames of an error without its text, which may quote a request."""
    frames = traceback.extract_tb(error.__traceback__)
    return [type(error).__qualname__, *(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)]
