"""How a request is sent and repeated, as conversations; all decisions are here, once, and no I/O.

A client performs the steps, blocking or with asyncio.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final, Self, TypeVar

from pydantic import BaseModel

from delegation.client.errors import (
    DelegationClientError,
    ErrorAnswer,
    NotAuthenticated,
    TokenUnavailable,
    UnexpectedAnswer,
)
from delegation.client.protocol.answers import AnswerType, Reply, checked
from delegation.client.protocol.repeats import (
    PASSING,
    WITH_KEY,
    Pauses,
    Repeat,
    ReportRepeat,
    read_wait,
    same_key_wait,
)
from delegation.client.protocol.requests import Bearer, Conversation, Notify, Pause, Send, ServiceRequest
from delegation.wire.requests import KEY_RULE, is_key
from delegation.wire.responses import ServiceConfig

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
        """Return the service's configuration, which is requested once.

        A service without `/v1/config` supports no keys, and neither does one whose configuration cannot be read
        (Idempotency-Key proposal, Discovery).
        """
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
        attempt = 0
        while True:
            attempt += 1
            try:
                return (yield from self._sent(request, answer))
            except WITH_KEY as error:
                if key is None or window is None:
                    raise
                elapsed = self._clock() - began
                wait = same_key_wait(error, attempt, self._pauses, key=key, window=window, elapsed=elapsed)
                if wait is None:
                    raise
                failure = error
            yield from self._paused(attempt, failure, wait)

    def _read(self, request: ServiceRequest, answer: type[AnswerType]) -> Conversation[AnswerType]:
        return self._repeated(lambda: self._sent(request, answer))

    def _repeated(self, once: Callable[[], Conversation[A]]) -> Conversation[A]:
        """Return the answer to a request that may be sent again, after failures that may pass."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return (yield from once())
            except PASSING as error:
                wait = read_wait(error, attempt, self._pauses)
                if wait is None:
                    raise
                failure = error
            yield from self._paused(attempt, failure, wait)

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
        found: str | TokenUnavailable = yield Bearer(refused)
        if isinstance(found, TokenUnavailable):
            raise found
        return found

    def _answered(self, reply: Reply, request: ServiceRequest, answer: type[AnswerType]) -> AnswerType:
        found = checked(reply, request, self.base_url, answer)
        self._has_answered = True
        return found
