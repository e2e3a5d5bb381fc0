"""The base classes of the service's errors; subclasses differ in what the caller can do next."""

import traceback
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar


class ErrorScope(IntEnum):
    """How far an error reaches: one item (a table, task, policy or record), the items of one catalog, or everything.

    A loop over items sets those aside that fail (`delegation.items`), and stops for an error that reaches further.
    """

    ITEM = 1
    CATALOG = 2
    SERVICE = 3


class DelegationError(Exception):
    """An error that this service raises on purpose; its text holds no credential and may be shown to a caller.

    `code` is recorded on a task and returned as `ErrorResponse.error_code` (Delegation Service proposal, Appendix);
    `retryable` is whether the same call may succeed later. An error that nobody catches by its class is its parent with
    a code of its own. `task_id` is that of the task that it is about.
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
        """Make instances picklable whatever their constructor takes: Spark executors send them to the driver."""
        return _restored, (type(self), self.args, dict(self.__dict__))


def _restored(kind: type[BaseException], args: tuple[Any, ...], fields: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class GuardRefused(DelegationError):
    """A guard refused the purge before its first delete."""

    code = "REFUSED"


class RunStopped(BaseException):
    """The attempt must not continue, and nothing of it failed.

    No Exception, so that work which catches those does not continue after it; what runs the attempt catches it
    (`tasks.work.work_errors.AttemptRunner`). A lost lease is an error of a write, `tasks.errors.LeaseLost`.
    """

    code: ClassVar[str]

    def __reduce__(self) -> tuple[Any, ...]:
        """See DelegationError.__reduce__."""
        return _restored, (type(self), self.args, dict(self.__dict__))


class RunCancelled(RunStopped):
    """A cancellation of the task was requested; its run must begin nothing more."""

    code = "CANCELLED"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id} was cancelled on request")
        self.task_id = task_id


class RunHandedOver(RunStopped):
    """This process has no time left for the run; the next attempt continues it."""

    code = "HANDED_OVER"

    def __init__(self, task_id: str, reason: str | None = None) -> None:
        """`reason` replaces that this process has no time left."""
        super().__init__(reason or f"this process has no time left for task {task_id}; the next attempt continues it")
        self.task_id = task_id


class RunPaused(RunHandedOver):
    """The task is paused: the run is handed over, uncounted, and continues after `delegation resume`."""

    code = "PAUSED"

    def __init__(self, task_id: str, pause: str) -> None:
        """`pause` states who paused what, and why."""
        super().__init__(
            task_id, f"task {task_id} was {pause}; it continues where it stopped after `delegation resume`"
        )


class RunTimedOut(RunStopped):
    """The attempt has worked for as long as its behavior allows; it is retried like any failed attempt."""

    code = "TIMED_OUT"

    def __init__(self, task_id: str, seconds: float) -> None:
        super().__init__(f"the attempt of task {task_id} worked for {seconds:.0f}s, as long as its behavior allows")
        self.task_id = task_id


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
