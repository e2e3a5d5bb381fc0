"""The blocking and the asyncio client of the REST API; both get their methods from the table of operations."""

import asyncio
import inspect
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from copy import copy
from datetime import datetime
from functools import wraps
from typing import Any, ClassVar, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, overload

import httpx

from delegation.client.conversations import (
    Bearer,
    Conversation,
    Give,
    Giving,
    NoRepeats,
    Notify,
    Pause,
    Pauses,
    ReportRepeat,
    SameKeyPauses,
    Send,
    Step,
    log_repeat,
    token_unavailable,
)
from delegation.client.errors import TokenUnavailable
from delegation.client.operations import Operations
from delegation.client.settings import ClientSettings, ClientTls, asyncio_client, blocking_client
from delegation.polaris.answers import PolarisError
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource, TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)


class Answered(Generic[P, T]):
    """A method that performs an operation and returns its answer."""

    def __init__(self, operation: Callable[Concatenate[Operations, P], Conversation[T]]) -> None:
        self._operation = operation

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: "DelegationClient", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncDelegationClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: "DelegationClient | AsyncDelegationClient | None", owner: type) -> Callable[..., Any]:
        return self._operation if client is None else _method(self._operation, client, client.run)


class IteratedMethod(Generic[P, V]):
    """A method that performs an operation and iterates over its values."""

    def __init__(self, operation: Callable[Concatenate[Operations, P], Giving[V]]) -> None:
        self._operation = operation

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: "DelegationClient", owner: type) -> Callable[P, Iterator[V]]: ...
    @overload
    def __get__(self, client: "AsyncDelegationClient", owner: type) -> Callable[P, AsyncIterator[V]]: ...

    def __get__(self, client: "DelegationClient | AsyncDelegationClient | None", owner: type) -> Callable[..., Any]:
        return self._operation if client is None else _method(self._operation, client, client.each)


def _method(
    operation: Callable[..., Any], client: "DelegationClient | AsyncDelegationClient", perform: Callable[[Any], Any]
) -> Callable[..., Any]:
    @wraps(operation)
    def method(*args: Any, **options: Any) -> Any:
        return perform(operation(client.operations, *args, **options))

    return method


class Methods:
    """The methods, described at their operations (`client.operations`)."""

    execute = Answered(Operations.execute)
    submit = Answered(Operations.submit)
    get = Answered(Operations.get)
    versions = IteratedMethod(Operations.versions)
    list = IteratedMethod(Operations.list)
    list_pages = IteratedMethod(Operations.list_pages)
    list_page = Answered(Operations.list_page)
    receipt = Answered(Operations.receipt)
    estimate = Answered(Operations.estimate)
    place = Answered(Operations.place)
    cancel = Answered(Operations.cancel)
    retry = Answered(Operations.retry)
    approve = Answered(Operations.approve)
    tombstones = IteratedMethod(Operations.tombstones)
    tombstone_page = Answered(Operations.tombstone_page)
    tombstone = Answered(Operations.tombstone)
    restore_tombstone = Answered(Operations.restore_tombstone)
    purge_tombstone = Answered(Operations.purge_tombstone)
    dismiss_tombstone = Answered(Operations.dismiss_tombstone)
    health = Answered(Operations.health)
    pauses = Answered(Operations.pauses)
    pause = Answered(Operations.pause)
    resume = Answered(Operations.resume)
    config = Answered(Operations.config)
    wait = Answered(Operations.wait)
    follow = IteratedMethod(Operations.follow)


TIMEOUT: Final = httpx.Timeout(35.0, connect=5.0)
"""Longer than API Gateway's integration timeout of 29 s, after which no answer can arrive."""


def new_key() -> str:
    """Return a new idempotency key, a UUID of version 4 (Idempotency-Key proposal, API Design)."""
    return str(uuid.uuid4())


class _ServiceClient(Methods, Generic[H]):
    _pause: ClassVar["staticmethod[[float], Any]"]
    _opened: ClassVar["staticmethod[[ClientTls, httpx.Timeout], Any]"]

    def __init__(
        self,
        base_url: str,
        token: TokenSource,
        *,
        http: H,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Any] | None = None,
        key: Callable[[], str] = new_key,
        backoff: Pauses | None = None,
        on_repeat: ReportRepeat = log_repeat,
        owned: Iterable[httpx.Client | httpx.AsyncClient] = (),
    ) -> None:
        self.operations = Operations(
            base_url.rstrip("/"), clock=clock, key=key, pauses=backoff or SameKeyPauses(), on_repeat=on_repeat
        )
        self._token = token
        self._http: H = http
        self._sleep = sleep or self._pause
        self._owned: tuple[Any, ...] = tuple(owned)

    @classmethod
    def connect(cls, settings: ClientSettings, *, on_repeat: ReportRepeat = log_repeat) -> Self:
        """Return a client with the certificate and OAuth2 client of the settings. Changed certificate files are used
        from the next handshake on. Close the client, or use it in a `with` or `async with` statement. Raises
        ClientMisconfigured."""
        issuer = blocking_client(settings.issuer_tls(), TIMEOUT)
        service = cls._opened(settings.service_tls(), TIMEOUT)
        token = tokens_of(settings, issuer)
        return cls(settings.edge_url, token, http=service, on_repeat=on_repeat, owned=(issuer, service))

    def without_repeats(self) -> Self:
        """Return a client over the same connections that sends each request once, and leaves repeats to its caller."""
        once = copy(self)
        vars(once).update(operations=self.operations.with_pauses(NoRepeats()), _owned=())
        return once

    def _bearer(self, refused: str | None) -> str | TokenUnavailable:
        try:
            return self._token.token() if refused is None else self._token.replace(refused)
        except PolarisError as error:
            return token_unavailable(error)

    def _arguments(self, step: Send, own: httpx.Timeout) -> dict[str, Any]:
        """Return the arguments for a client of httpx, within its `own` time limits."""
        request = step.request
        return {
            "method": request.method,
            "url": f"{self.operations.base_url}/{request.path}",
            "headers": request.headers_with(step.token),
            "content": request.content,
            "timeout": limited(own, step.longest_seconds),
        }


class DelegationClient(_ServiceClient[httpx.Client]):
    """Calls the Delegation Service at `base_url`, which ends with `/delegation-service/api`; thread-safe.

    `execute` and `submit` send the given key. Without one they send a new UUID if `GET /v1/config` advertises
    idempotency keys. They repeat the request with its key after `request_in_progress`, 429, 5xx and lost answers until
    the advertised lifetime ends (IdempotencyWindowExpired). Neither a terminal failure nor an answer with `retryable`
    false is repeated. A malformed key is a ValueError, and nothing is sent. `on_repeat` gets each repeat with the last
    answer; by default it is logged. Every method raises ServiceUnreachable, TlsRefused, TokenUnavailable, AnswerLost,
    UnexpectedAnswer, and an ErrorAnswer for an error of the service.
    """

    _pause = staticmethod(time.sleep)
    _opened = staticmethod(blocking_client)

    def close(self) -> None:
        """Close the connections that `connect` opened; may be repeated."""
        for client in self._owned:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        """Perform the steps of a conversation and yield its values."""
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
                return self._bearer(refused)
            case Send():
                try:
                    return self._http.request(**self._arguments(step, self._http.timeout))
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
    secret = settings.client_secret
    return OAuth2TokenSource(
        settings.token_url,
        lambda: ClientCredentials(settings.client_id, secret),
        clock=utc_now,
        scope=settings.scope,
        transport=Transport(issuer),
    )


class AsyncDelegationClient(_ServiceClient[httpx.AsyncClient]):
    """Calls the Delegation Service like DelegationClient; its methods are coroutines and asynchronous iterators. A
    blocking, thread-safe source provides tokens, in a thread. `on_repeat` and `on_progress` may be functions or
    coroutine functions. A cancelled coroutine may have sent its request: repeat it with its key, or search for the
    task."""

    _pause = staticmethod(asyncio.sleep)
    _opened = staticmethod(asyncio_client)

    async def aclose(self) -> None:
        """Close the connections that `connect` opened; may be repeated."""
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
        reply: Any = None
        while True:
            try:
                step = conversation.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await self._perform(step)

    async def each(self, conversation: Giving[V]) -> AsyncIterator[V]:
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
                return await asyncio.to_thread(self._bearer, refused)
            case Send():
                try:
                    return await self._http.request(**self._arguments(step, self._http.timeout))
                except httpx.RequestError as error:
                    return error
            case Pause(seconds):
                await self._sleep(seconds)
            case Notify(receiver, value):
                returned = receiver(value)
                if inspect.isawaitable(returned):
                    await returned
        return None
