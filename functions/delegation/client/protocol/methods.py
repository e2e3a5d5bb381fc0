"""The methods of both clients, made of the table of operations: coroutines and asynchronous iterators with asyncio."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from delegation.client.protocol.operations import Operations
from delegation.client.protocol.requests import Conversation, Giving

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")


class BlockingPerformer(Protocol):
    """Performs conversations in the calling thread."""

    operations: Operations

    def run(self, conversation: Conversation[T]) -> T:
        """Perform the steps of a conversation and return its result."""

    def each(self, conversation: Giving[V]) -> Iterator[V]:
        """Perform the steps of a conversation and yield what it gives."""


class AsyncioPerformer(Protocol):
    """Performs conversations in coroutines."""

    operations: Operations

    def run(self, conversation: Conversation[T]) -> Coroutine[Any, Any, T]: ...

    def each(self, conversation: Giving[V]) -> AsyncIterator[V]: ...


class Answered(Generic[P, T]):
    """A method that performs an operation and returns its answer."""

    def __init__(self, operation: Callable[Concatenate[Operations, P], Conversation[T]]) -> None:
        self._operation = operation

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: BlockingPerformer, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncioPerformer, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: BlockingPerformer | AsyncioPerformer | None, owner: type) -> Callable[..., Any]:
        return self._operation if client is None else _method(self._operation, client, client.run)


class Given(Generic[P, V]):
    """A method that performs an operation and iterates over the values that it gives."""

    def __init__(self, operation: Callable[Concatenate[Operations, P], Giving[V]]) -> None:
        self._operation = operation

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: BlockingPerformer, owner: type) -> Callable[P, Iterator[V]]: ...
    @overload
    def __get__(self, client: AsyncioPerformer, owner: type) -> Callable[P, AsyncIterator[V]]: ...

    def __get__(self, client: BlockingPerformer | AsyncioPerformer | None, owner: type) -> Callable[..., Any]:
        return self._operation if client is None else _method(self._operation, client, client.each)


def _method(
    operation: Callable[..., Any], client: BlockingPerformer | AsyncioPerformer, perform: Callable[[Any], Any]
) -> Callable[..., Any]:
    @wraps(operation)
    def method(*args: Any, **options: Any) -> Any:
        return perform(operation(client.operations, *args, **options))

    return method


class Methods:
    """The methods; each is described where its operation is (`protocol.operations`)."""

    execute = Answered(Operations.execute)
    submit = Answered(Operations.submit)
    get = Answered(Operations.get)
    versions = Given(Operations.versions)
    list = Given(Operations.list)
    list_pages = Given(Operations.list_pages)
    list_page = Answered(Operations.list_page)
    receipt = Answered(Operations.receipt)
    estimate = Answered(Operations.estimate)
    place = Answered(Operations.place)
    cancel = Answered(Operations.cancel)
    retry = Answered(Operations.retry)
    approve = Answered(Operations.approve)
    tombstones = Given(Operations.tombstones)
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
    follow = Given(Operations.follow)
