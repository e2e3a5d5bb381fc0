"""The requests of the API as values, and whether and when one is sent again. Pure functions."""

import json
import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, TypeVar

from delegation.client.errors import (
    AnswerLost,
    DelegationClientError,
    IdempotencyWindowExpired,
    RequestStillRunning,
    ServiceFailed,
    ServiceUnreachable,
)
from delegation.identifiers import encoded, encoded_query
from delegation.wire.tables import PurgeRequest
from polaris_common.backoff import exponential

EXECUTE: Final = "v1/tasks/execute/synchronous"
SUBMIT: Final = "v1/tasks"
_NO_HEADERS: Final[Mapping[str, str]] = {}

Payload = PurgeRequest | Mapping[str, Any]
"""What is to be done: a purge, or the JSON object of a TaskPayload."""


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request without its token; `path` is relative to the API's address."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS)
    content: bytes | None = field(default=None, repr=False)

    def headers_with(self, token: str) -> dict[str, str]:
        return {"Accept": "application/json", **self.headers, "Authorization": f"Bearer {token}"}


def submission(path: str, payload: Payload, key: str | None) -> ServiceRequest:
    """Return the request to perform a task; it is serialized once, so that every repeat sends the same bytes."""
    synchronous = path == EXECUTE
    document = payload.request(synchronous=synchronous) if isinstance(payload, PurgeRequest) else payload
    request = change(path, json.dumps(document, allow_nan=False))  # json keeps integers exact
    return request if key is None else replace(request, headers={**request.headers, "Idempotency-Key": key})


def change(path: str, content: str) -> ServiceRequest:
    """Return a POST with a JSON text."""
    return ServiceRequest("POST", path, {"Content-Type": "application/json"}, content.encode())


def with_query(path: str, parameters: Mapping[str, str | None]) -> str:
    query = encoded_query((name, value) for name, value in parameters.items() if value is not None)
    return f"{path}?{query}" if query else path


def of_task(task_id: str, part: str = "") -> str:
    return f"v1/tasks/{encoded(task_id)}{part}"


def of_tombstone(tombstone_id: str, part: str = "") -> str:
    """Return the path of a tombstone, or of what can be done with it."""
    return f"v1/tombstones/{encoded(tombstone_id)}{part}"


T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Bearer:
    """Obtain a token, another one than `refused`; its text or a TokenUnavailable is sent back."""

    refused: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request with a token; an httpx.Response or an httpx.RequestError is sent back. `longest_seconds` limits
    connecting and answering, if less than the client's own limit."""

    request: ServiceRequest
    token: str = field(repr=False)
    longest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a time in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Notify:
    """Call a function of the caller's with a value."""

    receiver: Callable[[Any], Any]
    value: Any


@dataclass(frozen=True, slots=True)
class Give(Generic[V]):
    """Give a value to the caller, who iterates over them."""

    value: V


Step = Bearer | Send | Pause | Notify | Give[Any]
Conversation = Generator[Step, Any, T]
"""Ends with what was asked for."""
Giving = Generator[Bearer | Send | Pause | Notify | Give[V], Any, Any]
"""Gives one value after the other."""


logger = logging.getLogger("delegation.client")
PASSING: Final = (ServiceFailed, ServiceUnreachable, AnswerLost)
"""Failures after which a request that changes nothing, or nothing twice, may be sent again."""
WITH_KEY: Final = (RequestStillRunning, *PASSING)
"""Failures after which any request may be sent again with its idempotency key."""
READ_ATTEMPTS: Final = 4


class Pauses(Protocol):
    """How long to wait before a request is sent again."""

    def wait(self, attempt: int, retry_after_seconds: float | None) -> float | None:
        """Return the seconds to wait after failed request number `attempt` (from 1), None not to send it again."""
        ...


@dataclass(frozen=True, slots=True)
class SameKeyPauses:
    """Pauses between repeats, doubling from `first_seconds` to `longest_seconds`; never shorter than `Retry-After`."""

    first_seconds: float = 1.0
    longest_seconds: float = 30.0

    def wait(self, attempt: int, retry_after_seconds: float | None) -> float:
        if retry_after_seconds is not None:
            return max(retry_after_seconds, self.first_seconds)
        return exponential(attempt, self.first_seconds, self.longest_seconds)


@dataclass(frozen=True, slots=True)
class NoRepeats:
    """No request is sent again, for a caller that has its own way to try again."""

    def wait(self, attempt: int, retry_after_seconds: float | None) -> None:
        del attempt, retry_after_seconds


@dataclass(frozen=True, slots=True)
class Repeat:
    """A request is about to be sent again: the number of the attempt that failed, its answer as an error, the pause."""

    attempt: int
    last: DelegationClientError
    wait_seconds: float

    def __str__(self) -> str:
        return f"attempt {self.attempt} failed: {self.last}; the request is sent again in {self.wait_seconds:g} s"


ReportRepeat = Callable[[Repeat], Any]
"""Called for every repeat before its pause; with the asyncio client it may be a coroutine function."""


def log_repeat(repeat: Repeat) -> None:
    """Log a repeat as a warning with the last answer, so that nobody waits in silence."""
    logger.warning("%s", repeat)


def read_wait(error: DelegationClientError, attempt: int, pauses: Pauses) -> float | None:
    """Return the pause before a request without a key is sent again, None if it is not."""
    return None if attempt >= READ_ATTEMPTS else pauses.wait(attempt, retry_after_seconds(error))


def same_key_wait(
    error: DelegationClientError, attempt: int, pauses: Pauses, *, key: str, window: timedelta, elapsed: timedelta
) -> float | None:
    """Return the pause before a request is sent again with its key, None if it is not. Raises IdempotencyWindowExpired
    when the service may have forgotten the key by then: `elapsed` since the first request and the pause reach the
    advertised `window`."""
    wait = pauses.wait(attempt, retry_after_seconds(error))
    if wait is not None and elapsed + timedelta(seconds=wait) >= window:
        raise IdempotencyWindowExpired(key, window, error) from error
    return wait


def retry_after_seconds(error: DelegationClientError) -> float | None:
    """Return the `Retry-After` of an answer that asks to wait."""
    return error.retry_after_seconds if isinstance(error, RequestStillRunning | ServiceFailed) else None
