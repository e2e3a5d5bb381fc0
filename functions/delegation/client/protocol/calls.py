"""The calls of the API as conversations: generators that yield what is to be done and receive what came of it.

All decisions are here, once: which request follows, whether it is repeated, what the answer means. A client performs
the steps, blocking or with asyncio.
"""

import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from delegation.backoff import exponential
from delegation.client.errors import (
    Conflict,
    DelegationClientError,
    ErrorAnswer,
    IssuerUnavailable,
    NotAuthenticated,
    TokenUnavailable,
    UnexpectedAnswer,
    WaitTimedOut,
)
from delegation.client.protocol import requests
from delegation.client.protocol.answers import AnswerType, Reply, judged
from delegation.client.protocol.filters import TaskFilters
from delegation.client.protocol.repeats import (
    PASSING,
    READ_ATTEMPTS,
    WITH_KEY,
    Pauses,
    Repeat,
    ReportRepeat,
    read_wait,
    retry_after_seconds,
    same_key_wait,
)
from delegation.client.protocol.requests import Payload, ServiceRequest
from delegation.wire.config import ServiceConfig
from delegation.wire.keys import KEY_RULE, is_key
from delegation.wire.pauses import PauseList, PauseRequest, ResumeRequest
from delegation.wire.responses import Estimate, Health, Receipt, TaskAccepted, TaskPlace, TaskSuccessResponse
from delegation.wire.tasks import TaskList, TaskRecord, TaskVersions
from delegation.wire.tombstones import RestoredName, TombstoneList, TombstoneRecord

T = TypeVar("T")
A = TypeVar("A", bound=BaseModel)
LAST_READ_SECONDS: Final = 1.0
"""What the read of a task at a timeout may take."""
_NO_DISCOVERY: Final = frozenset({404, 405})


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
class Give:
    """Give a value to the caller, who iterates over them."""

    value: Any


Step = Bearer | Send | Pause | Notify | Give
Conversation = Generator[Step, Any, T]
OnProgress = Callable[[TaskRecord], Any]
"""Called with a task now and after each change; with the asyncio client it may be a coroutine function."""


@dataclass(frozen=True, slots=True)
class Polls:
    """When a task is read again: after `interval_seconds`, doubling to `longest_seconds` while nothing changes."""

    interval_seconds: float
    longest_seconds: float
    timeout_seconds: float | None = None

    def pause(self, unchanged: int) -> float:
        """Return the seconds until the next read, after that many reads in a row without a change."""
        return exponential(unchanged + 1, self.interval_seconds, max(self.interval_seconds, self.longest_seconds))

    def left(self, elapsed: timedelta) -> float | None:
        """Return the seconds until the timeout, not below 0; None without one."""
        return None if self.timeout_seconds is None else max(0.0, self.timeout_seconds - elapsed.total_seconds())


class ApiCalls:
    """Conversations for each operation; `base_url` is the API's address, for messages."""

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

    def with_pauses(self, pauses: Pauses) -> "ApiCalls":
        """Return the same calls with other pauses between repeats."""
        return ApiCalls(self.base_url, clock=self._clock, key=self._new_key, pauses=pauses, on_repeat=self._on_repeat)

    def execute(self, payload: Payload, key: str | None) -> Conversation[TaskSuccessResponse]:
        """Run a task and return its outcome, with as many requests as needed."""
        return self._submitted(lambda key: requests.execute(payload, key), key, TaskSuccessResponse)

    def submit(self, payload: Payload, key: str | None, *, dry_run: bool) -> Conversation[TaskAccepted]:
        """Submit a task for background processing."""
        return self._submitted(lambda key: requests.submit(payload, key, dry_run=dry_run), key, TaskAccepted)

    def get(self, task_id: str) -> Conversation[TaskRecord]:
        """Return a task's current version."""
        return self._read(requests.task(task_id), TaskRecord)

    def versions(self, task_id: str, page_size: int) -> Conversation[None]:
        """Give every version of a task, oldest first."""
        token: str | None = None
        while True:
            page = yield from self._read(requests.versions(task_id, page_size, token), TaskVersions)
            for version in page.versions:
                yield Give(version)
            if page.next_page_token is None:
                return
            token = page.next_page_token

    def list_page(self, filters: TaskFilters, token: str | None) -> Conversation[TaskList]:
        """Return a page of tasks."""
        return self._read(requests.tasks(filters, token), TaskList)

    def list_pages(self, filters: TaskFilters) -> Conversation[None]:
        """Give every page of tasks, the newest received first."""
        token: str | None = None
        while True:
            page = yield from self.list_page(filters, token)
            yield Give(page)
            token = page.next_page_token
            if token is None:
                return

    def receipt(self, task_id: str) -> Conversation[Receipt]:
        """Return a purge's receipt."""
        return self._read(requests.receipt(task_id), Receipt)

    def estimate(self, task_id: str) -> Conversation[Estimate]:
        """Return what the execution of a task's plan takes."""
        return self._read(requests.estimate(task_id), Estimate)

    def place(self, task_id: str) -> Conversation[TaskPlace]:
        """Return for what a task waits."""
        return self._read(requests.place(task_id), TaskPlace)

    def health(self) -> Conversation[Health]:
        """Return whether the service works."""
        return self._read(requests.health(), Health)

    def cancel(self, task_id: str) -> Conversation[TaskRecord]:
        """Cancel a task; a second request has no other effect than the first."""
        return self._read(requests.cancel(task_id), TaskRecord)

    def retry(self, task_id: str) -> Conversation[TaskRecord]:
        """Try a failed task again; a refusal of a repeated request means that an earlier one had effect."""
        sent = itertools.count(1)

        def once() -> Conversation[TaskRecord]:
            number = next(sent)
            try:
                return (yield from self._sent(requests.retry(task_id), TaskRecord))
            except Conflict:
                if number == 1:
                    raise
            return (yield from self.get(task_id))

        return self._repeated(once)

    def tombstone_page(self, page_size: int, token: str | None) -> Conversation[TombstoneList]:
        """Return a page of tombstones."""
        return self._read(requests.tombstones(page_size, token), TombstoneList)

    def tombstones(self, page_size: int) -> Conversation[None]:
        """Give every tombstone, the newest first."""
        token: str | None = None
        while True:
            page = yield from self.tombstone_page(page_size, token)
            for found in page.tombstones:
                yield Give(found)
            token = page.next_page_token
            if token is None:
                return

    def tombstone(self, tombstone_id: str) -> Conversation[TombstoneRecord]:
        """Return a tombstone as it is now."""
        return self._read(requests.tombstone(tombstone_id), TombstoneRecord)

    def restore_tombstone(self, tombstone_id: str, to: RestoredName | None) -> Conversation[TombstoneRecord]:
        """Give a tombstone a name back; a second request finishes what the first began."""
        return self._read(requests.restore_tombstone(tombstone_id, to), TombstoneRecord)

    def purge_tombstone(self, tombstone_id: str) -> Conversation[TombstoneRecord]:
        """Have a tombstone purged now; a second request has no other effect than the first."""
        return self._read(requests.purge_tombstone(tombstone_id), TombstoneRecord)

    def dismiss_tombstone(self, tombstone_id: str) -> Conversation[TombstoneRecord]:
        """End a tombstone that failed; a second request finishes what the first began."""
        return self._read(requests.dismiss_tombstone(tombstone_id), TombstoneRecord)

    def pauses(self) -> Conversation[PauseList]:
        """Return what is paused."""
        return self._read(requests.pauses(), PauseList)

    def pause(self, wanted: PauseRequest) -> Conversation[PauseList]:
        """Pause tasks; a second request has no other effect than the first."""
        return self._read(requests.pause(wanted), PauseList)

    def resume(self, wanted: ResumeRequest) -> Conversation[PauseList]:
        """End a pause; a second request has no other effect than the first."""
        return self._read(requests.resume(wanted), PauseList)

    def config(self) -> Conversation[ServiceConfig]:
        """Return the service's configuration, which is requested once.

        A service without one supports no keys, and neither does one whose configuration cannot be read
        (Idempotency-Key proposal, Discovery).
        """
        if self._config is None:
            try:
                self._config = yield from self._read(requests.config(), ServiceConfig)
            except UnexpectedAnswer:
                self._config = ServiceConfig()
            except ErrorAnswer as error:
                if error.http_status not in _NO_DISCOVERY:
                    raise
                self._config = ServiceConfig()
        return self._config

    def follow(self, task_id: str, polls: Polls) -> Conversation[TaskRecord]:
        """Give the task now and after each change, until it has ended or the timeout has; return it as read last.

        The reads continue through outages, until the timeout. Without a timeout a service that never answered this
        client is given up after READ_ATTEMPTS reads, because its address may be wrong.
        """
        began = self._clock()
        task: TaskRecord | None = None
        unchanged = failed = 0

        def left() -> float | None:
            return polls.left(self._clock() - began)

        while True:
            limit = None if (rest := left()) is None else max(rest, LAST_READ_SECONDS)
            try:
                found = yield from self._sent(requests.task(task_id), TaskRecord, longest_seconds=limit)
            except (*PASSING, IssuerUnavailable) as error:
                failed += 1
                pause = self._pauses.wait(failed, retry_after_seconds(error))
                rest = left()
                is_new = rest is None and not self._has_answered
                if pause is None or (is_new and failed >= READ_ATTEMPTS) or (rest == 0 and task is None):
                    raise
                failure: DelegationClientError | None = error
            else:
                is_changed = task is None or (found.version, found.revision) != (task.version, task.revision)
                task, failure, failed = found, None, 0
                unchanged = 0 if is_changed else unchanged + 1
                if is_changed:
                    yield Give(task)
                pause, rest = polls.pause(unchanged), left()
            if task is not None and (task.is_terminal or rest == 0):
                return task
            pause = pause if rest is None else min(pause, rest)
            if failure is None:
                yield Pause(pause)
            else:
                yield from self._paused(failed, failure, pause)

    def wait(self, task_id: str, polls: Polls, on_progress: OnProgress | None) -> Conversation[TaskRecord]:
        """Return the task when it has ended; raises WaitTimedOut."""
        following = self.follow(task_id, polls)
        reply: Any = None
        while True:
            try:
                step = following.send(reply)
            except StopIteration as end:
                task: TaskRecord = end.value
                break
            reply = None
            if not isinstance(step, Give):
                reply = yield step
            elif on_progress is not None:
                yield Notify(on_progress, step.value)
        if not task.is_terminal:
            raise WaitTimedOut(task)
        return task

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
        found = judged(reply, request, self.base_url, answer)
        self._has_answered = True
        return found
