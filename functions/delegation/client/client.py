"""The blocking client of the Delegation Service's REST API."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Self, TypeVar, Unpack

import httpx

from delegation.client.protocol.answers import token_unavailable
from delegation.client.protocol.calls import (
    ApiCalls,
    Bearer,
    Conversation,
    Give,
    Notify,
    OnProgress,
    Pause,
    Polls,
    Send,
    Step,
)
from delegation.client.protocol.filters import TaskFilters
from delegation.client.protocol.repeats import NoRepeats, Pauses, ReportRepeat, SameKeyPauses, log_repeat
from delegation.client.protocol.requests import Payload
from delegation.client.settings import ClientSettings
from delegation.client.tls import blocking_client
from delegation.polaris.errors import PolarisError
from delegation.polaris.tokens import ClientCredentials, OAuth2TokenSource, TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now
from delegation.wire.config import ServiceConfig
from delegation.wire.pauses import PauseList, PauseRequest, ResumeRequest
from delegation.wire.responses import Estimate, Health, Receipt, TaskAccepted, TaskPlace, TaskSuccessResponse
from delegation.wire.tasks import TaskList, TaskRecord
from delegation.wire.tombstones import RestoredName, TombstoneList, TombstoneRecord

TIMEOUT: Final = httpx.Timeout(35.0, connect=5.0)
"""Longer than API Gateway's integration timeout of 29 s, after which no answer can arrive."""
LONGEST_POLL_SECONDS: Final = 15.0
T = TypeVar("T")


def new_key() -> str:
    """Return a new idempotency key, a UUID of version 4 (Idempotency-Key proposal, API Design)."""
    return str(uuid.uuid4())


class DelegationClient:
    """Calls the Delegation Service at `base_url`, which ends with `/delegation-service/api`; thread-safe.

    `execute` and `submit` send the given key. If `GET /v1/config` advertises idempotency keys, without one they send a
    new UUID, and they repeat the request with its key after `request_in_progress`, 429, 5xx and lost answers until the
    advertised lifetime ends (IdempotencyWindowExpired). Neither a terminal failure nor an answer with `retryable` false
    is repeated. A malformed key is a ValueError, and nothing is sent.
    `on_repeat` gets each repeat with the last answer; by default it is logged.
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
        sleep: Callable[[float], Any] = time.sleep,
        key: Callable[[], str] = new_key,
        backoff: Pauses | None = None,
        on_repeat: ReportRepeat = log_repeat,
        owned: Iterable[httpx.Client] = (),
    ) -> None:
        """`owned` are the HTTP clients that `close` closes."""
        self._calls = ApiCalls(
            base_url.rstrip("/"), clock=clock, key=key, pauses=backoff or SameKeyPauses(), on_repeat=on_repeat
        )
        self._token = token
        self._http = http
        self._sleep = sleep
        self._owned = tuple(owned)

    @classmethod
    def connect(cls, settings: ClientSettings, *, on_repeat: ReportRepeat = log_repeat) -> Self:
        """Return a client with the certificate and the OAuth2 client of the settings; raises ClientMisconfigured.

        Certificates that are rotated, which means that their files change, are used from the next handshake on. Close
        the client, or use it in a `with` statement, when it is no longer needed.
        """
        issuer = blocking_client(settings.issuer_tls(), TIMEOUT)
        service = blocking_client(settings.service_tls(), TIMEOUT)
        token = tokens_of(settings, issuer)
        return cls(settings.edge_url, token, http=service, on_repeat=on_repeat, owned=(issuer, service))

    def without_repeats(self) -> "DelegationClient":
        """Return a client over the same connections that sends each request once, and leaves repeats to its caller."""
        once = DelegationClient(self._calls.base_url, self._token, http=self._http, sleep=self._sleep)
        once._calls = self._calls.with_pauses(NoRepeats())
        return once

    def close(self) -> None:
        """Close the connections that `connect` opened; may be called again."""
        for client in self._owned:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def execute(self, payload: Payload, *, key: str | None = None) -> TaskSuccessResponse:
        """Execute a task and wait for its outcome, with as many requests as needed; raises TaskFailed."""
        return self._run(self._calls.execute(payload, key))

    def submit(self, payload: Payload, *, key: str | None = None, dry_run: bool = False) -> TaskAccepted:
        """Submit a task for background processing; with `dry_run` it ends with its plan and deletes nothing."""
        return self._run(self._calls.submit(payload, key, dry_run=dry_run))

    def get(self, task_id: str) -> TaskRecord:
        """Return a task's current version; raises NotFound."""
        return self._run(self._calls.get(task_id))

    def versions(self, task_id: str, *, page_size: int = 100) -> Iterator[TaskRecord]:
        """Yield every version of a task, oldest first; pages are requested on demand. Raises NotFound."""
        return self._each(self._calls.versions(task_id, page_size))

    def list(self, **filters: Unpack[TaskFilters]) -> Iterator[TaskRecord]:
        """Yield the tasks of the filters, the newest received first; pages are requested on demand.

        A task that is submitted again meanwhile moves to the front, and is missing if it was not yet yielded.
        """
        for page in self.list_pages(**filters):
            yield from page.tasks

    def list_pages(self, **filters: Unpack[TaskFilters]) -> Iterator[TaskList]:
        """Yield the same tasks in pages; a page may be empty although others follow."""
        return self._each(self._calls.list_pages(filters))

    def list_page(self, *, token: str | None = None, **filters: Unpack[TaskFilters]) -> TaskList:
        """Return a page of tasks; `token` is the `next_page_token` of the page before, with the same filters."""
        return self._run(self._calls.list_page(filters, token))

    def receipt(self, task_id: str) -> Receipt:
        """Return the receipt of a purge that ended; raises NotFound without one (`RECEIPT_NOT_FOUND`)."""
        return self._run(self._calls.receipt(task_id))

    def estimate(self, task_id: str) -> Estimate:
        """Return what the execution of a task's plan takes; raises NotFound without a plan (`ESTIMATE_NOT_FOUND`).

        To know it before a purge, submit it with `dry_run`, wait for that task, and pass its id.
        """
        return self._run(self._calls.estimate(task_id))

    def place(self, task_id: str) -> TaskPlace:
        """Return for what a task waits: its lane, its place in the lane, and what keeps the lane's next from starting.

        Raises the errors of `get`.
        """
        return self._run(self._calls.place(task_id))

    def cancel(self, task_id: str) -> TaskRecord:
        """Cancel a task, or ask a running one to stop; raises Conflict if it ended otherwise (`TASK_ENDED`)."""
        return self._run(self._calls.cancel(task_id))

    def retry(self, task_id: str) -> TaskRecord:
        """Retry a FAILURE; raises Conflict for any other task (`TASK_NOT_FAILED`).

        If the answer is lost the request is repeated; a refusal of the repeat then means that the first had effect.
        """
        return self._run(self._calls.retry(task_id))

    def tombstones(self, *, page_size: int = 100) -> Iterator[TombstoneRecord]:
        """Yield the tables that were dropped through the gateway, the newest first; pages are requested on demand.

        Raises NotFound in a deployment without a gateway (`NO_TOMBSTONES`), as the other three do.
        """
        return self._each(self._calls.tombstones(page_size))

    def tombstone_page(self, *, token: str | None = None, page_size: int = 100) -> TombstoneList:
        """Return a page of tombstones; `token` is the `next_page_token` of the page before."""
        return self._run(self._calls.tombstone_page(page_size, token))

    def tombstone(self, tombstone_id: str) -> TombstoneRecord:
        """Return a tombstone as it is now; raises NotFound."""
        return self._run(self._calls.tombstone(tombstone_id))

    def restore_tombstone(self, tombstone_id: str, *, to: RestoredName | None = None) -> TombstoneRecord:
        """Give a dropped table its name back, or another one; raises Conflict (`RESTORE_REFUSED`, `NAME_TAKEN`)."""
        return self._run(self._calls.restore_tombstone(tombstone_id, to))

    def purge_tombstone(self, tombstone_id: str) -> TombstoneRecord:
        """End a tombstone's grace period, or retry its purge; raises Conflict (`PURGE_NOT_POSSIBLE`)."""
        return self._run(self._calls.purge_tombstone(tombstone_id))

    def dismiss_tombstone(self, tombstone_id: str) -> TombstoneRecord:
        """End a FAILED tombstone, drop its entry, keep its files; raises Conflict (`DISMISSAL_REFUSED`)."""
        return self._run(self._calls.dismiss_tombstone(tombstone_id))

    def health(self) -> Health:
        """Return whether the service works; a service that says it does not raises ServiceFailed."""
        return self._run(self._calls.health())

    def pauses(self) -> PauseList:
        """Return everything that is paused."""
        return self._run(self._calls.pauses())

    def pause(self, wanted: PauseRequest) -> PauseList:
        """Pause tasks and return everything that is paused; a repeat changes nothing."""
        return self._run(self._calls.pause(wanted))

    def resume(self, wanted: ResumeRequest) -> PauseList:
        """End the pause of a scope and return everything that is still paused."""
        return self._run(self._calls.resume(wanted))

    def config(self) -> ServiceConfig:
        """Return the service's configuration; it is requested once. One without `/v1/config` supports no keys."""
        return self._run(self._calls.config())

    def wait(
        self,
        task_id: str,
        *,
        on_progress: OnProgress | None = None,
        interval_seconds: float = 1.0,
        longest_seconds: float = LONGEST_POLL_SECONDS,
        timeout_seconds: float | None = None,
    ) -> TaskRecord:
        """Wait for the end of a task and return it, SUCCESS or FAILURE; `on_progress` gets it now and at each change.

        It is read after `interval_seconds`, and while nothing changes after growing pauses of `longest_seconds` at
        most. Raises NotFound, and WaitTimedOut after `timeout_seconds`; the task then continues.
        """
        polls = Polls(interval_seconds, longest_seconds, timeout_seconds)
        return self._run(self._calls.wait(task_id, polls, on_progress))

    def follow(
        self, task_id: str, *, interval_seconds: float = 1.0, timeout_seconds: float | None = None
    ) -> Iterator[TaskRecord]:
        """Yield the task now and after each change, until it is terminal or the timeout ends; raises NotFound."""
        return self._each(self._calls.follow(task_id, Polls(interval_seconds, interval_seconds, timeout_seconds)))

    # The former names of the first client.
    execute_synchronous = execute
    task = get

    def _run(self, conversation: Conversation[T]) -> T:
        """Perform the steps of a conversation and return its result."""
        reply: Any = None
        while True:
            try:
                step = conversation.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = self._perform(step)

    def _each(self, conversation: Conversation[Any]) -> Iterator[Any]:
        """Perform the steps of a conversation and yield what it gives."""
        reply: Any = None
        while True:
            try:
                step = conversation.send(reply)
            except StopIteration:
                return
            if isinstance(step, Give):
                reply = None
                yield step.value
            else:
                reply = self._perform(step)

    def _perform(self, step: Step) -> Any:
        match step:
            case Bearer(refused):
                try:
                    return self._token.token() if refused is None else self._token.replace(refused)
                except PolarisError as error:
                    return token_unavailable(error)
            case Send(request, token, longest):
                url, headers = f"{self._calls.base_url}/{request.path}", request.headers_with(token)
                try:
                    return self._http.request(
                        request.method,
                        url,
                        headers=headers,
                        content=request.content,
                        timeout=limited(self._http.timeout, longest),
                    )
                except httpx.RequestError as error:
                    return error
            case Pause(seconds):
                self._sleep(seconds)
            case Notify(receiver, value):
                receiver(value)
        return None


def limited(own: httpx.Timeout, longest_seconds: float | None) -> httpx.Timeout:
    """Return a client's own time limits, each at most `longest_seconds`."""
    if longest_seconds is None:
        return own
    limits = {name: min(longest_seconds, limit or longest_seconds) for name, limit in own.as_dict().items()}
    return httpx.Timeout(**limits)


def tokens_of(settings: ClientSettings, issuer: httpx.Client) -> OAuth2TokenSource:
    """Return the source of the settings' tokens, which are fetched with `issuer`."""
    secret = settings.client_secret
    return OAuth2TokenSource(
        settings.token_url,
        lambda: ClientCredentials(settings.client_id, secret),
        clock=utc_now,
        scope=settings.scope,
        transport=Transport(issuer),
    )
