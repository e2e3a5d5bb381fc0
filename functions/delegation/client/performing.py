"""How the clients perform the steps of a conversation: blocking, or with asyncio."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import httpx

from delegation.client.protocol.answers import token_unavailable
from delegation.client.protocol.operations import Operations
from delegation.client.protocol.steps import Bearer, Conversation, Give, Giving, Notify, Pause, Send, Step
from delegation.polaris.errors import PolarisError
from delegation.polaris.tokens import TokenSource

T = TypeVar("T")
V = TypeVar("V")


class Blocking:
    """Performs steps in the calling thread; thread-safe."""

    def __init__(
        self, operations: Operations, token: TokenSource, http: httpx.Client, sleep: Callable[[float], Any]
    ) -> None:
        self.operations = operations
        self._token = token
        self._http = http
        self._sleep = sleep

    def run(self, conversation: Conversation[T]) -> T:
        """Perform the steps of a conversation and return its result."""
        reply: Any = None
        while True:
            try:
                step = conversation.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = self._perform(step)

    def each(self, conversation: Giving[V]) -> Iterator[V]:
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
                url, headers = f"{self.operations.base_url}/{request.path}", request.headers_with(token)
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


class Asyncio:
    """Performs steps in coroutines. Tokens come from a blocking source, so they are obtained in a thread."""

    def __init__(
        self,
        operations: Operations,
        token: TokenSource,
        http: httpx.AsyncClient,
        sleep: Callable[[float], Awaitable[Any]],
    ) -> None:
        self.operations = operations
        self._token = token
        self._http = http
        self._sleep = sleep

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


def limited(own: httpx.Timeout, longest_seconds: float | None) -> httpx.Timeout:
    """Return a client's own time limits, each at most `longest_seconds`."""
    if longest_seconds is None:
        return own
    limits = {name: min(longest_seconds, limit or longest_seconds) for name, limit in own.as_dict().items()}
    return httpx.Timeout(**limits)
