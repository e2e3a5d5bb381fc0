"""Whether and when a request is sent again (Idempotency-Key proposal, Client-Side Changes). Pure functions."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from delegation.client.errors import (
    AnswerLost,
    DelegationClientError,
    IdempotencyWindowExpired,
    RequestStillRunning,
    ServiceFailed,
    ServiceUnreachable,
)
from polaris_common.backoff import exponential

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
    """Return the pause before a request is sent again with its key, None if it is not.

    Raises IdempotencyWindowExpired when the service may have forgotten the key by then: `elapsed` since the first
    request and the pause reach the advertised `window`.
    """
    wait = pauses.wait(attempt, retry_after_seconds(error))
    if wait is not None and elapsed + timedelta(seconds=wait) >= window:
        raise IdempotencyWindowExpired(key, window, error) from error
    return wait


def retry_after_seconds(error: DelegationClientError) -> float | None:
    """Return the `Retry-After` of an answer that asks to wait."""
    return error.retry_after_seconds if isinstance(error, RequestStillRunning | ServiceFailed) else None
