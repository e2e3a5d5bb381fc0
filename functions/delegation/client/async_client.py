"""The client of the Delegation Service's REST API for asyncio; what it sends and decides is `DelegationClient`'s."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Self, TypeVar, Unpack

import httpx

from delegation.client.client import LONGEST_POLL_SECONDS, TIMEOUT, limited, new_key, tokens_of
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
from delegation.client.tls import asyncio_client, blocking_client
from delegation.polaris.errors import PolarisError
from delegation.polaris.tokens import TokenSource
from delegation.timestamps import utc_now
from delegation.wire.config import ServiceConfig
from delegation.wire.pauses import PauseList, PauseRequest, ResumeRequest
from delegation.wire.responses import Estimate, Health, Receipt, TaskAccepted, TaskPlace, TaskSuccessResponse
from delegation.wire.tasks import TaskList, TaskRecord
from delegation.wire.tombstones import RestoredName, TombstoneList, TombstoneRecord

T = TypeVar("T")


class AsyncDelegationClient:
    """Calls the Delegation Service as DelegationClient does; its methods are coroutines and asynchronous iterators.

    Tokens come from a blocking, thread-safe source, so they are obtained in a thread. `on_repeat` and `on_progress` may
    be functions or coroutine functions. A cancelled coroutine may have sent its request: repeat it with its key, or
    look for the task.
    """

    def __init__(
        self,
        base_url: str,
        token: TokenSource,
        *,
        http: httpx.AsyncClient,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        key: Callable[[], str] = new_key,
        backoff: Pauses | None = None,
        on_repeat: ReportRepeat = log_repeat,
        owned: Iterable[httpx.Client | httpx.AsyncClient] = (),
    ) -> None:
        """`owned` are the HTTP clients that `aclose` closes."""
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

        Close it, or use it in an `async with` statement, when it is no longer needed.
        """
        issuer = blocking_client(settings.issuer_tls(), TIMEOUT)
        service = asyncio_client(settings.service_tls(), TIMEOUT)
        token = tokens_of(settings, issuer)
        return cls(settings.edge_url, token, http=service, on_repeat=on_repeat, owned=(issuer, service))

    def without_repeats(self) -> "AsyncDelegationClient":
        """See DelegationClient.without_repeats."""
        once = AsyncDelegationClient(self._calls.base_url, self._token, http=self._http, sleep=self._sleep)
        once._calls = self._calls.with_pauses(NoRepeats())
        return once

    async def aclose(self) -> None:
        """Close the connections that `connect` opened; may be called again."""
        for client in self._owned:
            if isinstance(client, httpx.AsyncClient):
                await client.aclose()
            else:
                client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def execute(self, payload: Payload, *, key: str | None = None) -> TaskSuccessResponse:
        """See DelegationClient.execute."""
        return await self._run(self._calls.execute(payload, key))

    async def submit(self, payload: Payload, *, key: str | None = None, dry_run: bool = False) -> TaskAccepted:
        """See DelegationClient.submit."""
        return await self._run(self._calls.submit(payload, key, dry_run=dry_run))

    async def get(self, task_id: str) -> TaskRecord:
        """See DelegationClient.get."""
        return await self._run(self._calls.get(task_id))

    def versions(self, task_id: str, *, page_size: int = 100) -> AsyncIterator[TaskRecord]:
        """See DelegationClient.versions."""
        return self._each(self._calls.versions(task_id, page_size))

    async def list(self, **filters: Unpack[TaskFilters]) -> AsyncIterator[TaskRecord]:
        """See DelegationClient.list."""
        async for page in self.list_pages(**filters):
            for task in page.tasks:
                yield task

    def list_pages(self, **filters: Unpack[TaskFilters]) -> AsyncIterator[TaskList]:
        """See DelegationClient.list_pages."""
        return self._each(self._calls.list_pages(filters))

    async def list_page(self, *, token: str | None = None, **filters: Unpack[TaskFilters]) -> TaskList:
        """See DelegationClient.list_page."""
        return await self._run(self._calls.list_page(filters, token))

    async def receipt(self, task_id: str) -> Receipt:
        """See DelegationClient.receipt."""
        return await self._run(self._calls.receipt(task_id))

    async def estimate(self, task_id: str) -> Estimate:
        """See DelegationClient.estimate."""
        return await self._run(self._calls.estimate(task_id))

    async def place(self, task_id: str) -> TaskPlace:
        """See DelegationClient.place."""
        return await self._run(self._calls.place(task_id))

    async def cancel(self, task_id: str) -> TaskRecord:
        """See DelegationClient.cancel."""
        return await self._run(self._calls.cancel(task_id))

    async def retry(self, task_id: str) -> TaskRecord:
        """See DelegationClient.retry."""
        return await self._run(self._calls.retry(task_id))

    def tombstones(self, *, page_size: int = 100) -> AsyncIterator[TombstoneRecord]:
        """See DelegationClient.tombstones."""
        return self._each(self._calls.tombstones(page_size))

    async def tombstone_page(self, *, token: str | None = None, page_size: int = 100) -> TombstoneList:
        """See DelegationClient.tombstone_page."""
        return await self._run(self._calls.tombstone_page(page_size, token))

    async def tombstone(self, tombstone_id: str) -> TombstoneRecord:
        """See DelegationClient.tombstone."""
        return await self._run(self._calls.tombstone(tombstone_id))

    async def restore_tombstone(self, tombstone_id: str, *, to: RestoredName | None = None) -> TombstoneRecord:
        """See DelegationClient.restore_tombstone."""
        return await self._run(self._calls.restore_tombstone(tombstone_id, to))

    async def purge_tombstone(self, tombstone_id: str) -> TombstoneRecord:
        """See DelegationClient.purge_tombstone."""
        return await self._run(self._calls.purge_tombstone(tombstone_id))

    async def dismiss_tombstone(self, tombstone_id: str) -> TombstoneRecord:
        """See DelegationClient.dismiss_tombstone."""
        return await self._run(self._calls.dismiss_tombstone(tombstone_id))

    async def health(self) -> Health:
        """See DelegationClient.health."""
        return await self._run(self._calls.health())

    async def pauses(self) -> PauseList:
        """See DelegationClient.pauses."""
        return await self._run(self._calls.pauses())

    async def pause(self, wanted: PauseRequest) -> PauseList:
        """See DelegationClient.pause."""
        return await self._run(self._calls.pause(wanted))

    async def resume(self, wanted: ResumeRequest) -> PauseList:
        """See DelegationClient.resume."""
        return await self._run(self._calls.resume(wanted))

    async def config(self) -> ServiceConfig:
        """See DelegationClient.config."""
        return await self._run(self._calls.config())

    async def wait(
        self,
        task_id: str,
        *,
        on_progress: OnProgress | None = None,
        interval_seconds: float = 1.0,
        longest_seconds: float = LONGEST_POLL_SECONDS,
        timeout_seconds: float | None = None,
    ) -> TaskRecord:
        """See DelegationClient.wait."""
        polls = Polls(interval_seconds, longest_seconds, timeout_seconds)
        return await self._run(self._calls.wait(task_id, polls, on_progress))

    def follow(
        self, task_id: str, *, interval_seconds: float = 1.0, timeout_seconds: float | None = None
    ) -> AsyncIterator[TaskRecord]:
        """See DelegationClient.follow."""
        return self._each(self._calls.follow(task_id, Polls(interval_seconds, interval_seconds, timeout_seconds)))

    async def _run(self, conversation: Conversation[T]) -> T:
        """Perform the steps of a conversation and return its result."""
        reply: Any = None
        while True:
            try:
                step = conversation.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await self._perform(step)

    async def _each(self, conversation: Conversation[Any]) -> AsyncIterator[Any]:
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
                reply = await self._perform(step)

    async def _perform(self, step: Step) -> Any:
        match step:
            case Bearer(refused):
                try:
                    return await asyncio.to_thread(self._bearer, refused)
                except PolarisError as error:
                    return token_unavailable(error)
            case Send(request, token, longest):
                url, headers = f"{self._calls.base_url}/{request.path}", request.headers_with(token)
                try:
                    return await self._http.request(
                        request.method,
                        url,
                        headers=headers,
                        content=request.content,
                        timeout=limited(self._http.timeout, longest),
                    )
                except httpx.RequestError as error:
                    return error
            case Pause(seconds):
                await self._sleep(seconds)
            case Notify(receiver, value):
                returned = receiver(value)
                if inspect.isawaitable(returned):
                    await returned
        return None

    def _bearer(self, refused: str | None) -> str:
        return self._token.token() if refused is None else self._token.replace(refused)
