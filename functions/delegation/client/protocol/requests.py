"""The requests of the API as values, built by pure functions (Delegation Service proposal, Appendix)."""

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from delegation.identifiers import encoded, encoded_query
from delegation.wire.tables import PurgeRequest

EXECUTE: Final = "v1/tasks/execute/synchronous"
SUBMIT: Final = "v1/tasks"
_NO_HEADERS: Final[Mapping[str, str]] = {}

Payload = PurgeRequest | Mapping[str, Any]
"""What is to be done: a purge, or the JSON object of a TaskPayload."""


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
    """Return a POST with a JSON text."""
    return ServiceRequest("POST", path, {"Content-Type": "application/json"}, content.encode())


def with_query(path: str, parameters: Mapping[str, str | None]) -> str:
    query = encoded_query((name, value) for name, value in parameters.items() if value is not None)
    return f"{path}?{query}" if query else path


def of_task(task_id: str, part: str = "") -> str:
    return f"v1/tasks/{encoded(task_id)}{part}"


def of_tombstone(tombstone_id: str, part: str = "") -> str:
    """Return the path of a tombstone, or of what can be done with it."""
    return f"v1/tombstones/{encoded(tombstone_id)}{part}"


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
