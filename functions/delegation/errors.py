"""The root of every error this service raises on purpose; subclasses differ in what the caller can do next."""

from collections.abc import Sequence
from typing import Any, ClassVar


class DelegationError(Exception):
    """Something this service foresees; its text never holds a credential and may be shown to a caller.

    `code` is the machine-readable error code recorded on a task and shown in `ErrorResponse.error_code`
    (delegation-service.txt, appendix); `retryable` says whether the same call may succeed later unchanged.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Instances can be pickled whatever their constructor takes: executors send them to their driver."""
        return _restored, (type(self), self.args, dict(self.__dict__))


def _restored(kind: type[DelegationError], args: tuple[Any, ...], fields: dict[str, Any]) -> DelegationError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class GuardRefused(DelegationError):
    """A guard refused before anything was deleted; the table is whole."""

    code: ClassVar[str] = "REFUSED"


def printable(text: str, limit: int = 200) -> str:
    """Text safe for a log line or an error message: control characters escaped, bounded."""
    clean = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return clean if len(clean) <= limit else clean[:limit] + "…"


def shown(sample: Sequence[str]) -> str:
    """The first few of a sample, for a message."""
    return ", ".join(printable(one) for one in sample[:3]) or "none"
