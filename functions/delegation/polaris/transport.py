"""Sends requests to Polaris, with bounded retries where repeating is safe."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from delegation.polaris.answers import NOT_APPLIED, PolarisOutcomeUnknown, PolarisUnavailable, is_transient, retry_after
from polaris_common.backoff import exponential
from polaris_common.errors import ErrorScope

TIMEOUT = httpx.Timeout(20.0, connect=3.0)

# The request was not sent, so even a write may be repeated.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class RequestRetries:
    """Up to `attempts` requests, with pauses that double from `first_seconds` up to `longest_seconds`. None starts
    later than `patience_seconds` after the first: a request to a hung server lasts a whole timeout, and the caller's
    time is limited."""

    attempts: int = 4
    first_seconds: float = 0.2
    longest_seconds: float = 2.0
    patience_seconds: float = 15.0

    def wait(self, attempt: int, asked_seconds: float | None = None, *, spent_seconds: float = 0.0) -> float | None:
        """Return the seconds to wait after failed request number `attempt` (from 1), None to stop. A `Retry-After`
        longer than the longest pause stops the retries: the caller retries later."""
        if attempt >= self.attempts or (asked_seconds is not None and asked_seconds > self.longest_seconds):
            return None
        wait = max(exponential(attempt, self.first_seconds, self.longest_seconds), asked_seconds or 0.0)
        return wait if spent_seconds + wait <= self.patience_seconds else None


class Transport:
    """Sends requests, and repeats those that are safe to repeat; returns any answer, also an error. In a Lambda
    function each request has the invocation's X-Ray header, which joins the traces. Without an answer it raises
    PolarisUnavailable if nothing was written, PolarisOutcomeUnknown if a write may have been applied."""

    def __init__(
        self,
        http: httpx.Client | None = None,
        *,
        backoff: RequestRetries | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = http or httpx.Client(timeout=TIMEOUT)
        self._backoff = backoff or RequestRetries()
        self._sleep = sleep
        self._monotonic = monotonic

    def send(
        self,
        method: str,
        url: str,
        *,
        idempotent: bool,
        headers: dict[str, str],
        form: dict[str, str] | None = None,
        document: Mapping[str, Any] | None = None,
        within: float | None = None,
    ) -> httpx.Response:
        """Send a request. With `within` it is sent once, and each part of its answer may take that many seconds."""
        began = self._monotonic()
        timeout = httpx.USE_CLIENT_DEFAULT if within is None else httpx.Timeout(within)
        attempt = 0
        headers = headers | trace_header()
        while True:
            attempt += 1
            try:
                response = self._http.request(method, url, headers=headers, data=form, json=document, timeout=timeout)
            except httpx.TransportError as error:
                repeatable = idempotent or isinstance(error, _NOT_SENT)
                wait = self._wait(attempt, began) if repeatable and within is None else None
                if wait is None:
                    kind = PolarisUnavailable if repeatable else PolarisOutcomeUnknown
                    scope = ErrorScope.CATALOG if isinstance(error, _NOT_SENT) else None
                    raise kind(f"Polaris did not answer: {type(error).__name__}", scope=scope) from error
            else:
                status = response.status_code
                repeatable = is_transient(status) if idempotent else status in NOT_APPLIED
                wait = self._wait(attempt, began, retry_after(response)) if repeatable and within is None else None
                if wait is None:
                    return response
            self._sleep(wait)

    def _wait(self, attempt: int, began: float, asked_seconds: float | None = None) -> float | None:
        return self._backoff.wait(attempt, asked_seconds, spent_seconds=self._monotonic() - began)


def trace_header() -> dict[str, str]:
    """Return this invocation's X-Ray header, none outside of Lambda; for AWS services botocore sends it. It changes
    with each invocation (AWS Lambda developer guide, "Defined runtime environment variables")."""
    value = os.environ.get("_X_AMZN_TRACE_ID")
    return {"X-Amzn-Trace-Id": value} if value else {}
