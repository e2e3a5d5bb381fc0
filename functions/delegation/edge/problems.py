"""The mapping from errors to HTTP answers (Delegation Service proposal, Appendix, ErrorResponse).

An error is answered with the status of its code (`codes.json`), or of the code of its nearest ancestor that has one.
Any other error is answered with 500 and a message that reveals nothing about it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from delegation.edge.errors import BadRequest, MethodNotAllowed
from delegation.wire.responses import ErrorResponse, render
from polaris_common.errors import DelegationError

_INTERNAL_MESSAGE: Final = "the service failed unexpectedly; search its log for this request's X-Request-ID"
_RETRY: Final = {"Retry-After": "2"}
_BY_STATUS: Final[Mapping[int, Mapping[str, str]]] = {401: {"WWW-Authenticate": "Bearer"}, 503: _RETRY}
_BY_CODE: Final[Mapping[str, Mapping[str, str]]] = {
    "UNSUPPORTED_MEDIA_TYPE": {"Accept": "application/json"},
    "UNSUPPORTED_CONTENT_ENCODING": {"Accept-Encoding": "identity"},
    "request_in_progress": _RETRY,
}
"""The headers of answers with a status or a code."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as an HTTP answer; `error` is its code."""

    status: int
    error: str
    body: bytes
    headers: Mapping[str, str]


def status_of(error: BaseException) -> int | None:
    """Return the status of an error's answer; None if the answer must reveal nothing about it."""
    from delegation.edge.codes import by_code  # noqa: PLC0415 - only failures need it

    if not isinstance(error, DelegationError):
        return None
    ancestors = (vars(kind).get("code", "") for kind in type(error).__mro__)
    known = (by_code()[code] for code in (error.code, *ancestors) if code in by_code())
    return next((meaning.status for meaning in known), None)


def problem_of(error: BaseException) -> Problem:
    known = status_of(error)
    status = known or 500
    code = error.code if known and isinstance(error, DelegationError) else DelegationError.code
    retryable = _retryable(status, error)
    own = _own_headers(error, retryable=retryable)
    headers = {**_BY_STATUS.get(status, {}), **_BY_CODE.get(code, {}), **own}
    details = "; ".join(error.others) if isinstance(error, BadRequest) else None
    task_id = getattr(error, "task_id", None) if isinstance(error, DelegationError) else None
    body = ErrorResponse(
        error_code=code,
        message=str(error) if known else _INTERNAL_MESSAGE,
        details=details or None,
        delegation_task_id=task_id if isinstance(task_id, str) else None,
        retryable=retryable,
    )
    return Problem(status, code, render(body), headers)


def _retryable(status: int, error: BaseException) -> bool | None:
    """Return whether the request may be repeated as it is: True with 503, the error's word with 502, else None."""
    if status == 502:
        return isinstance(error, DelegationError) and error.retryable
    return True if status == 503 else None


def _own_headers(error: BaseException, *, retryable: bool | None) -> dict[str, str]:
    """Return the headers that this very error has: the methods it allows, or the seconds that it knows to wait."""
    if isinstance(error, MethodNotAllowed):
        return {"Allow": ", ".join(error.allowed)}
    seconds: object = getattr(error, "retry_after", None)
    if retryable and isinstance(seconds, float):
        return {"Retry-After": str(max(1, math.ceil(seconds)))}
    return {}
