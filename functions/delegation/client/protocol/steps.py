"""What a conversation with the service asks of a client: generators yield steps and are sent what came of each."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from delegation.client.protocol.requests import ServiceRequest

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Bearer:
    """Obtain a token, another one than `refused`; its text or a TokenUnavailable is sent back."""

    refused: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request with a token; an httpx.Response or an httpx.RequestError is sent back.

    `longest_seconds` limits the wait for a connection and for the answer, where it is less than the client's own limit.
    """

    request: ServiceRequest
    token: str = field(repr=False)
    longest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a time in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Notify:
    """Call a function of the caller's with a value."""

    receiver: Callable[[Any], Any]
    value: Any


@dataclass(frozen=True, slots=True)
class Give(Generic[V]):
    """Give a value to the caller, who iterates over them."""

    value: V


Step = Bearer | Send | Pause | Notify | Give[Any]
Conversation = Generator[Step, Any, T]
"""Ends with what was asked for."""
Giving = Generator[Bearer | Send | Pause | Notify | Give[V], Any, Any]
"""Gives one value after the other."""
