"""Client of the Delegation Service's REST API, with retries as the Idempotency-Key proposal permits."""

import json
import re
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Self, TypeVar, Unpack
from urllib.parse import quote, urlencode

import httpx
from pydantic import BaseModel, ValidationError

from delegation.backoff import exponential
from delegation.client.errors import (
    AnswerLost,
    Conflict,
    DelegationClientError,
    HttpError,
    IdempotencyWindowExpired,
    NotAuthenticated,
    NotFound,
    RequestStillRunning,
    ServiceFailed,
    ServiceUnreachable,
    TlsRefused,
    TokenUnavailable,
    UnexpectedAnswer,
    error_for,
)
from delegation.client.filters import TaskFilters, query_of
from delegation.client.settings import ClientSettings
from delegation.polaris.answers import retry_after
from delegation.polaris.errors import PolarisError
from delegation.polaris.tokens import ClientCredentials, OAuth2TokenSource, TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now
from delegation.wire.config import ServiceConfig
from delegation.wire.responses import Health, Receipt, TaskAccepted, TaskSuccessResponse
from delegation.wire.tasks import TaskList, TaskRecord, TaskVersions

TIMEOUT = httpx.Timeout(35.0, connect=5.0)
"""Longer than API Gateway's integration timeout of 29 s, after which no answer can arrive."""

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_REPEATABLE_WITH_KEY = (RequestStillRunning, ServiceFailed, ServiceUnreachable, AnswerLost)
_CERTIFICATE_ALERT = re.compile("CERTIFICATE|UNKNOWN_CA")
_READ_ATTEMPTS = 4
_MESSAGE_LIMIT = 1000

AnswerType = TypeVar("AnswerType", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class SameKeyPauses:
    """Pauses between retries, doubling from `first_seconds` to `longest_seconds`; never shorter than `Retry-After`."""

    first_seconds: float = 1.0
    longest_seconds: float = 30.0

    def wait(self, attempt: int, retry_after_seconds: float | None) -> float:
        """Return the seconds to wait after failed request number `attempt` (from 1)."""
        if retry_after_seconds is not None:
            return max(retry_after_seconds, self.first_seconds)
        return exponential(attempt, self.first_seconds, self.longest_seconds)


def new_key() -> str:
    """Return a new idempotency key, a UUID of version 4 (Idempotency-Key proposal, API Design)."""
    return str(uuid.uuid4())


class DelegationClient:
    """Calls the Delegation Service at `base_url`, which ends with `/delegation-service/api`; thread-safe.

    `execute_synchronous` and `submit` send the given key. If `GET /v1/config` advertises idempotency keys, without one
    they send a new UUID, and they repeat the request with its key after `request_in_progress`, 429, 5xx and lost
    answers until the advertised lifetime ends (IdempotencyWindowExpired). Neither a terminal failure nor a 5xx with
    `retryable` false is repeated.
    Every method raises ServiceUnreachable, TlsRefused, TokenUnavailable, AnswerLost, UnexpectedAnswer, and an
    ErrorAnswer for an error that the service answers with.
    """

    def __init__(
        self,
        base_url: str,
        token: TokenSource,
        *,
        http: httpx.Client,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], None] = time.sleep,
        key: Callable[[], str] = new_key,
        backoff: SameKeyPauses | None = None,
        owned: Iterable[httpx.Client] = (),
    ) -> None:
        """`owned` are the HTTP clients that `close` closes."""
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._http = http
        self._clock = clock
        self._sleep = sleep
        self._new_key = key
        self._backoff = backoff or SameKeyPauses()
        self._owned = tuple(owned)
        self._lock = Lock()
        self._config: ServiceConfig | None = None

    @classmethod
    def connect(cls, settings: ClientSettings) -> Self:
        """Return a client with the certificate and the OAuth2 client of the settings; raises ClientMisconfigured.

        Close it, or use it in a `with` statement, when it is no longer needed.
        """
        secret = settings.client_secret
        issuer = httpx.Client(verify=settings.token_tls(), timeout=TIMEOUT)
        service = httpx.Client(verify=settings.mutual_tls(), timeout=TIMEOUT)
        token = OAuth2TokenSource(
            settings.token_url,
            lambda: ClientCredentials(settings.client_id, secret),
            clock=utc_now,
            scope=settings.scope,
            transport=Transport(issuer),
        )
        return cls(settings.edge_url, token, http=service, owned=(issuer, service))

    def close(self) -> None:
        """Close the connections that `connect` opened; may be called again."""
        for client in self._owned:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def execute_synchronous(self, payload: Mapping[str, Any], *, key: str | None = None) -> TaskSuccessResponse:
        """Execute a task and wait for its outcome, with as many requests as needed; raises TaskFailed."""
        return self._post("v1/tasks/execute/synchronous", payload, key, TaskSuccessResponse)

    def submit(self, payload: Mapping[str, Any], *, key: str | None = None) -> TaskAccepted:
        """Submit a task for background processing."""
        return self._post("v1/tasks", payload, key, TaskAccepted)

    def task(self, task_id: str) -> TaskRecord:
        """Return a task's current version; raises NotFound."""
        return self._get(_task(task_id), TaskRecord)

    def versions(self, task_id: str, *, page_size: int = 100) -> Iterator[TaskRecord]:
        """Yield every version of a task, oldest first; pages are requested on demand. Raises NotFound."""
        query: dict[str, str] = {"page_size": str(page_size)}
        while True:
            page = self._get(f"{_task(task_id)}/versions?{urlencode(query)}", TaskVersions)
            yield from page.versions
            if page.next_page_token is None:
                return
            query["page_token"] = page.next_page_token

    def list(self, **filters: Unpack[TaskFilters]) -> Iterator[TaskRecord]:
        """Yield the tasks of the filters, the newest received first; pages are requested on demand.

        A task that is submitted again meanwhile moves to the front, and is missing if it was not yet yielded.
        """
        token: str | None = None
        while True:
            page = self.list_page(token=token, **filters)
            yield from page.tasks
            token = page.next_page_token
            if token is None:
                return

    def list_page(self, *, token: str | None = None, **filters: Unpack[TaskFilters]) -> TaskList:
        """Return a page of tasks; `token` is the `next_page_token` of the page before, with the same filters."""
        query = urlencode({**query_of(filters), **({} if token is None else {"page_token": token})})
        return self._get(f"v1/tasks?{query}" if query else "v1/tasks", TaskList)

    def receipt(self, task_id: str) -> Receipt:
        """Return the receipt of a purge that ended; raises NotFound without one (`RECEIPT_NOT_FOUND`)."""
        return self._get(f"{_task(task_id)}/receipt", Receipt)

    def cancel(self, task_id: str) -> TaskRecord:
        """Cancel a task, or ask a running one to stop; raises Conflict if it ended otherwise (`TASK_ENDED`)."""
        return self._repeated(lambda: self._send("POST", f"{_task(task_id)}/cancel", TaskRecord, headers={}))

    def retry(self, task_id: str) -> TaskRecord:
        """Retry a FAILURE; raises Conflict for any other task (`TASK_NOT_FAILED`).

        If the answer is lost the request is repeated; a refusal of the repeat then means that the first had effect.
        """
        sent = 0

        def once() -> TaskRecord:
            nonlocal sent
            sent += 1
            try:
                return self._send("POST", f"{_task(task_id)}/retry", TaskRecord, headers={})
            except Conflict:
                if sent == 1:
                    raise
                return self.task(task_id)

        return self._repeated(once)

    def health(self) -> Health:
        """Return whether the service works; a service that says it does not raises ServiceFailed."""
        return self._get("v1/health", Health)

    def config(self) -> ServiceConfig:
        """Return the service's configuration; it is requested once. One without `/v1/config` supports no keys."""
        with self._lock:
            if self._config is None:
                try:
                    self._config = self._get("v1/config", ServiceConfig)
                except NotFound:
                    self._config = ServiceConfig()
            return self._config

    def follow(
        self, task_id: str, *, interval_seconds: float = 1.0, timeout_seconds: float | None = None
    ) -> Iterator[TaskRecord]:
        """Yield the task now and after each change, until it is terminal or the timeout ends; raises NotFound."""
        until = None if timeout_seconds is None else self._clock() + timedelta(seconds=timeout_seconds)
        seen: tuple[int, int] | None = None
        while True:
            view = self.task(task_id)
            if (view.version, view.revision) != seen:
                seen = (view.version, view.revision)
                yield view
            if view.is_terminal or (until is not None and self._clock() >= until):
                return
            self._sleep(interval_seconds)

    def _post(self, path: str, payload: Mapping[str, Any], key: str | None, answer: type[AnswerType]) -> AnswerType:
        window = self.config().same_key_window
        if key is None and window is not None:
            key = self._new_key()
        # Serialized once, so that every retry sends the same bytes; json keeps integers exact.
        content = json.dumps(payload, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
        started = self._clock()
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._send("POST", path, answer, headers=headers, content=content)
            except _REPEATABLE_WITH_KEY as error:
                if key is None or window is None:
                    raise
                wait = self._backoff.wait(attempt, _retry_after_seconds(error))
                if self._clock() + timedelta(seconds=wait) >= started + window:
                    raise IdempotencyWindowExpired(key, window, error) from error
            self._sleep(wait)

    def _get(self, path: str, answer: type[AnswerType]) -> AnswerType:
        return self._repeated(lambda: self._send("GET", path, answer, headers={}))

    def _repeated(self, send: Callable[[], AnswerType]) -> AnswerType:
        """Return the answer to a request that may be sent again, after failures that may pass."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return send()
            except (ServiceFailed, ServiceUnreachable, AnswerLost) as error:
                if attempt == _READ_ATTEMPTS:
                    raise
                wait = self._backoff.wait(attempt, _retry_after_seconds(error))
            self._sleep(wait)

    def _send(
        self,
        method: str,
        path: str,
        answer: type[AnswerType],
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
    ) -> AnswerType:
        """Send a request, and repeat it once with a fresh token after a 401, which means that it had no effect."""
        token = self._bearer()
        try:
            return self._send_once(method, path, answer, {**headers, "Authorization": f"Bearer {token}"}, content)
        except NotAuthenticated:
            token = self._bearer(refused=token)
        return self._send_once(method, path, answer, {**headers, "Authorization": f"Bearer {token}"}, content)

    def _bearer(self, refused: str | None = None) -> str:
        try:
            return self._token.token() if refused is None else self._token.replace(refused)
        except PolarisError as error:
            # The token source's messages name Polaris, but this token endpoint may be another issuer's.
            answer = "did not answer" if error.status is None else f"answered {error.status} {error.error_type or ''}"
            raise TokenUnavailable(f"no access token: the token endpoint {answer.strip()}") from error

    def _send_once(
        self, method: str, path: str, answer: type[AnswerType], headers: Mapping[str, str], content: bytes | None
    ) -> AnswerType:
        url = f"{self._base_url}/{path}"
        try:
            response = self._http.request(
                method, url, headers={"Accept": "application/json", **headers}, content=content
            )
        except httpx.TransportError as error:
            raise _transport_error(error, self._base_url) from error
        if not response.is_success:
            raise error_for(_error_response(response))
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            place = ".".join(str(step) for step in error.errors(include_input=False)[0]["loc"]) or "body"
            raise UnexpectedAnswer(
                f"{method} {path} was answered {response.status_code} with an unusable {place}"
            ) from None


def _task(task_id: str) -> str:
    return f"v1/tasks/{quote(task_id, safe='')}"


def _retry_after_seconds(error: DelegationClientError) -> float | None:
    return error.retry_after_seconds if isinstance(error, RequestStillRunning | ServiceFailed) else None


def _transport_error(error: httpx.TransportError, base_url: str) -> DelegationClientError:
    refusal = _certificate_refusal(error)
    if refusal is not None:
        return TlsRefused(f"mutual TLS with {base_url} failed: {refusal}")
    if isinstance(error, _NOT_SENT):
        return ServiceUnreachable(f"{base_url} cannot be reached: {type(error).__name__}")
    return AnswerLost(f"{base_url} did not answer: {type(error).__name__}")


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


def _error_response(response: httpx.Response) -> HttpError:
    """Return the fields that the body has; API Gateway's error bodies have at most a message."""
    try:
        body = json.loads(response.content)
    except ValueError:
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
