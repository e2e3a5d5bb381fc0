"""The client of the Delegation Service's REST API for asyncio; what it sends and decides is `DelegationClient`'s."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Self, TypeVar

import httpx

from delegation.client.client import TIMEOUT, limited, new_key, tokens_of
from delegation.client.protocol.answers import token_unavailable
from delegation.client.protocol.methods import Methods
from delegation.client.protocol.operations import Operations
from delegation.client.protocol.repeats import NoRepeats, Pauses, ReportRepeat, SameKeyPauses, log_repeat
from delegation.client.protocol.requests import Bearer, Conversation, Give, Giving, Notify, Pause, Send, Step
from delegation.client.settings import ClientSettings
from delegation.client.tls import asyncio_client, blocking_client
from delegation.polaris.errors import PolarisError
from delegation.polaris.tokens import TokenSource
from delegation.timestamps import utc_now

T = TypeVar("T")
V = TypeVar("V")


class AsyncDelegationClient(Methods):
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
        self.operations = Operations(
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
        once = AsyncDelegationClient(self.operations.base_url, self._token, http=self._http, sleep=self._sleep)
        once.operations = self.operations.with_pauses(NoRepeats())
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

    async def run(self, conversation: Conversation[T]) -> T:
        """Perform the steps of a conversation and return its result."""
        reply: Any = None
        while True:
            try:
                step = conversation.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await self._perform(step)

    async def each(self, conversation: Giving[V]) -> AsyncIterator[V]:
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
                url, headers = f"{self.operations.base_url}/{request.path}", request.headers_with(token)
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
