"""How a request is sent and repeated, and what its answers mean: all decisions, no I/O. A client performs the steps of
a conversation, blocking or with asyncio."""

import json
import logging
import re
import ssl
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from delegation.client.errors import (
    AnswerLost,
    DelegationClientError,
    ErrorAnswer,
    HttpError,
    IdempotencyWindowExpired,
    IssuerUnavailable,
    NotAuthenticated,
    RequestStillRunning,
    ServiceFailed,
    ServiceUnreachable,
    TlsRefused,
    TokenUnavailable,
    UnexpectedAnswer,
    error_for,
)
from delegation.identifiers import encoded, encoded_query
from delegation.polaris.answers import PolarisError, PolarisUnavailable, retry_after
from delegation.wire.requests import KEY_RULE, is_key
from delegation.wire.responses import ServiceConfig
from delegation.wire.tables import PurgeRequest
from polaris_common.backoff import exponential

EXECUTE: Final = "v1/tasks/execute/synchronous"
SUBMIT: Final = "v1/tasks"
_NO_HEADERS: Final[Mapping[str, str]] = {}

Payload = PurgeRequest | Mapping[str, Any]
"""A purge, or the JSON object of a TaskPayload."""


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
    return ServiceRequest("POST", path, {"Content-Type": "application/json"}, content.encode())


def with_query(path: str, parameters: Mapping[str, str | None]) -> str:
    query = encoded_query((name, value) for name, value in parameters.items() if value is not None)
    return f"{path}?{query}" if query else path


def of_task(task_id: str, part: str = "") -> str:
    return f"v1/tasks/{encoded(task_id)}{part}"


def of_tombstone(tombstone_id: str, part: str = "") -> str:
    """Return the path of a tombstone, or of an action on it."""
    return f"v1/tombstones/{encoded(tombstone_id)}{part}"


T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Bearer:
    """Obtain a token, a different one from `refused`; its text or a TokenUnavailable is sent back."""

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
    """A wait, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Notify:
    """Call the caller's function with a value."""

    receiver: Callable[[Any], Any]
    value: Any


@dataclass(frozen=True, slots=True)
class Give(Generic[V]):
    """Give a value to the caller, who iterates over them."""

    value: V


Step = Bearer | Send | Pause | Notify | Give[Any]
Conversation = Generator[Step, Any, T]
"""Returns the result at its end."""
Giving = Generator[Bearer | Send | Pause | Notify | Give[V], Any, Any]
"""Gives one value after the other."""


logger = logging.getLogger("delegation.client")
PASSING: Final = (ServiceFailed, ServiceUnreachable, AnswerLost)
"""Failures after which a request without an effect, or with the same effect twice, may be sent again."""
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
    """Sends no request again, for a caller with its own retries."""

    def wait(self, attempt: int, retry_after_seconds: float | None) -> None:
        del attempt, retry_after_seconds


@dataclass(frozen=True, slots=True)
class Repeat:
    """An upcoming repeat: the number of the failed attempt, its answer as an error, and the pause."""

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


def same_key_wait(
    error: DelegationClientError, attempt: int, pauses: Pauses, *, key: str, window: timedelta, elapsed: timedelta
) -> float | None:
    """Return the pause before a request is sent again with its key, None if it is not. Raises IdempotencyWindowExpired
    if the service may have forgotten the key by then: `elapsed` since the first request, plus the pause, reaches the
    advertised `window`."""
    wait = pauses.wait(attempt, retry_after_seconds(error))
    if wait is not None and elapsed + timedelta(seconds=wait) >= window:
        raise IdempotencyWindowExpired(key, window, error) from error
    return wait


def retry_after_seconds(error: DelegationClientError) -> float | None:
    return error.retry_after_seconds if isinstance(error, RequestStillRunning | ServiceFailed) else None


AnswerType = TypeVar("AnswerType", bound=BaseModel)
Reply = httpx.Response | httpx.RequestError
"""The result of a request: an answer with its body read, or the error that prevented one."""

_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_CERTIFICATE_ALERT: Final = re.compile("CERTIFICATE|UNKNOWN_CA")
_MESSAGE_LIMIT: Final = 1000


def checked(reply: Reply, request: ServiceRequest, base_url: str, answer: type[AnswerType]) -> AnswerType:
    """Return the answer's body. Raises the DelegationClientError that states why there is none."""
    if isinstance(reply, httpx.RequestError):
        raise transport_error(reply, base_url) from reply
    if not reply.is_success:
        raise error_for(error_response(reply))
    try:
        return answer.model_validate_json(reply.content)
    except ValidationError as error:
        place = ".".join(str(step) for step in error.errors(include_input=False)[0]["loc"])
        what = f"the field {place} of its answer is missing or invalid" if place else "its answer is not valid JSON"
        path = request.path.partition("?")[0]
        raise UnexpectedAnswer(f"{request.method} {path} returned {reply.status_code}, but {what}") from None


def transport_error(error: httpx.RequestError, base_url: str) -> DelegationClientError:
    """Return the error for a request without a usable answer; whether it was sent decides what may be repeated."""
    refusal = _certificate_refusal(error)
    if refusal is not None:
        return TlsRefused(f"mutual TLS with {base_url} failed, so nothing was sent: {refusal}")
    if isinstance(error, _NOT_SENT):
        return ServiceUnreachable(f"{base_url} cannot be reached, so nothing was sent: {type(error).__name__}")
    return AnswerLost(f"{base_url} did not answer: {type(error).__name__}")


def error_response(response: httpx.Response) -> HttpError:
    """Return the error's fields from the body; API Gateway's error bodies have at most a message."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    body = body if isinstance(body, dict) else {}

    def text(name: str) -> str | None:
        value = body.get(name)
        return value[:_MESSAGE_LIMIT] if isinstance(value, str) and value else None

    status = response.status_code
    return HttpError(
        http_status=status,
        error_code=text("error_code") or f"HTTP_{status}",
        message=text("message") or response.reason_phrase or "no reason given",
        details=text("details"),
        delegation_task_id=text("delegation_task_id"),
        status=text("status"),
        retryable=retryable if isinstance(retryable := body.get("retryable"), bool) else None,
        retry_after_seconds=retry_after(response),
    )


def token_unavailable(error: PolarisError) -> TokenUnavailable:
    """Return the error for a refused token, IssuerUnavailable if a later request may get one. The token source's
    messages name Polaris, but this token endpoint may be another issuer's."""
    answer = "did not answer" if error.status is None else f"answered {error.status} {error.error_type or ''}"
    kind = IssuerUnavailable if isinstance(error, PolarisUnavailable) else TokenUnavailable
    unavailable = kind(f"no access token: the token endpoint {answer.strip()}")
    unavailable.__cause__ = error
    return unavailable


def _certificate_refusal(error: BaseException) -> str | None:
    """Return why a certificate was refused, by this side or by an alert of the other (RFC 8446, Section 6.2)."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        if isinstance(cause, ssl.SSLError) and _CERTIFICATE_ALERT.search(cause.reason or ""):
            return cause.reason
        cause = cause.__cause__ or cause.__context__
    return None


A = TypeVar("A", bound=BaseModel)
_NO_DISCOVERY: Final = frozenset({404, 405})


class Conversations:
    """Conversations about requests; `base_url` is the API's address, for messages."""

    def __init__(
        self,
        base_url: str,
        *,
        clock: Callable[[], datetime],
        key: Callable[[], str],
        pauses: Pauses,
        on_repeat: ReportRepeat,
    ) -> None:
        self.base_url = base_url
        self._clock = clock
        self._new_key = key
        self._pauses = pauses
        self._on_repeat = on_repeat
        self._config: ServiceConfig | None = None
        self._has_answered = False

    def with_pauses(self, pauses: Pauses) -> Self:
        """Return the same operations with other pauses between repeats."""
        return type(self)(self.base_url, clock=self._clock, key=self._new_key, pauses=pauses, on_repeat=self._on_repeat)

    def config(self) -> Conversation[ServiceConfig]:
        """Return the service's configuration, requested once. A service without a readable `/v1/config` supports no
        keys (Idempotency-Key proposal, Discovery)."""
        if self._config is None:
            try:
                self._config = yield from self._read(ServiceRequest("GET", "v1/config"), ServiceConfig)
            except UnexpectedAnswer:
                self._config = ServiceConfig()
            except ErrorAnswer as error:
                if error.http_status not in _NO_DISCOVERY:
                    raise
                self._config = ServiceConfig()
        return self._config

    def _submitted(
        self, request_with: Callable[[str | None], ServiceRequest], key: str | None, answer: type[AnswerType]
    ) -> Conversation[AnswerType]:
        if key is not None and not is_key(key):
            raise ValueError(f"the idempotency key must be {KEY_RULE}")
        config = yield from self.config()
        window = config.same_key_window
        if key is None and window is not None:
            key = self._new_key()
        request = request_with(key)
        began = self._clock()

        def wait(error: DelegationClientError, attempt: int) -> float | None:
            if key is None or window is None:
                return None
            elapsed = self._clock() - began
            return same_key_wait(error, attempt, self._pauses, key=key, window=window, elapsed=elapsed)

        return (yield from self._repeated(lambda: self._sent(request, answer), WITH_KEY, wait))

    def _read(self, request: ServiceRequest, answer: type[AnswerType]) -> Conversation[AnswerType]:
        return self._repeated(lambda: self._sent(request, answer))

    def _repeated(
        self,
        once: Callable[[], Conversation[A]],
        failures: tuple[type[DelegationClientError], ...] = PASSING,
        wait_after: Callable[[DelegationClientError, int], float | None] | None = None,
    ) -> Conversation[A]:
        """Return the answer to a request that may be sent again after `failures`, unless `wait_after` returns None."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return (yield from once())
            except failures as error:
                wait = (wait_after or self._read_wait)(error, attempt)
                if wait is None:
                    raise
                failure = error
            yield from self._paused(attempt, failure, wait)

    def _read_wait(self, error: DelegationClientError, attempt: int) -> float | None:
        return None if attempt >= READ_ATTEMPTS else self._pauses.wait(attempt, retry_after_seconds(error))

    def _paused(self, attempt: int, error: DelegationClientError, wait: float) -> Conversation[None]:
        yield Notify(self._on_repeat, Repeat(attempt, error, wait))
        yield Pause(wait)

    def _sent(
        self, request: ServiceRequest, answer: type[AnswerType], *, longest_seconds: float | None = None
    ) -> Conversation[AnswerType]:
        """Send a request, and repeat it once with a fresh token after a 401, which means that it had no effect."""
        token = yield from self._token()
        try:
            return self._answered((yield Send(request, token, longest_seconds)), request, answer)
        except NotAuthenticated:
            token = yield from self._token(refused=token)
        return self._answered((yield Send(request, token, longest_seconds)), request, answer)

    def _token(self, refused: str | None = None) -> Conversation[str]:
        token: str | TokenUnavailable = yield Bearer(refused)
        if isinstance(token, TokenUnavailable):
            raise token
        return token

    def _answered(self, reply: Reply, request: ServiceRequest, answer: type[AnswerType]) -> AnswerType:
        body = checked(reply, request, self.base_url, answer)
        self._has_answered = True
        return body
