"""The table of the API's operations: requests, answers, repeats. `client.client` makes both clients from it."""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypedDict, TypeVar, Unpack

from delegation.client.conversations import (
    EXECUTE,
    PASSING,
    READ_ATTEMPTS,
    SUBMIT,
    Conversation,
    Conversations,
    Give,
    Giving,
    Notify,
    Pause,
    Payload,
    ServiceRequest,
    change,
    of_task,
    of_tombstone,
    retry_after_seconds,
    submission,
    with_query,
)
from delegation.client.errors import Conflict, DelegationClientError, IssuerUnavailable, WaitTimedOut
from delegation.timestamps import isoformat
from delegation.wire.operators import (
    PauseList,
    PauseRequest,
    RestoredName,
    RestoreRequest,
    ResumeRequest,
    TombstoneList,
    TombstoneRecord,
)
from delegation.wire.responses import Estimate, Health, Receipt, TaskAccepted, TaskPlace, TaskSuccessResponse
from delegation.wire.tables import PlanApproval
from delegation.wire.tasks import TaskList, TaskRecord, TaskVersions
from polaris_common.backoff import exponential


class TaskFilters(TypedDict, total=False):
    """Which tasks a list has; None is no filter. `status` is one or several, `type` a task type, `table` a table's
    dotted name (catalog.namespace.name). `since` is the earliest time of receipt. `page_size` is from 1 to 100."""

    status: str | Iterable[str] | None
    type: str | None
    table: str | None
    since: datetime | None
    correlation_id: str | None
    page_size: int | None


def query_of(filters: TaskFilters) -> dict[str, str]:
    return {name: _text(value) for name, value in filters.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return isoformat(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


LAST_READ_SECONDS: Final = 1.0
"""The longest read of a task at a timeout."""
LONGEST_POLL_SECONDS: Final = 15.0
OnProgress = Callable[[TaskRecord], Any]
"""Called with a task now and after each change; with the asyncio client it may be a coroutine function."""


class _Page(Protocol):
    @property
    def next_page_token(self) -> str | None: ...


SomePage = TypeVar("SomePage", bound=_Page)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Polls:
    """When a task is read again: after `interval_seconds`, doubling to `longest_seconds` while nothing changes."""

    interval_seconds: float
    longest_seconds: float
    timeout_seconds: float | None = None

    def pause(self, unchanged: int) -> float:
        """Return the seconds until the next read, after this many reads in a row without a change."""
        return exponential(unchanged + 1, self.interval_seconds, max(self.interval_seconds, self.longest_seconds))

    def left(self, elapsed: timedelta) -> float | None:
        """Return the seconds until the timeout, not below 0; None without one."""
        return None if self.timeout_seconds is None else max(0.0, self.timeout_seconds - elapsed.total_seconds())


class Operations(Conversations):
    """Each operation of the API once, as the conversation that performs it; those that give values are iterated."""

    def execute(self, payload: Payload, *, key: str | None = None) -> Conversation[TaskSuccessResponse]:
        """Execute a task and wait for its outcome, with as many requests as needed. Raises TaskFailed."""
        return self._submitted(lambda key: submission(EXECUTE, payload, key), key, TaskSuccessResponse)

    def submit(self, payload: Payload, *, key: str | None = None, dry_run: bool = False) -> Conversation[TaskAccepted]:
        """Submit a task for background processing; with `dry_run` it ends with its plan and deletes nothing."""
        path = with_query(SUBMIT, {"dry-run": "true" if dry_run else None})
        return self._submitted(lambda key: submission(path, payload, key), key, TaskAccepted)

    def get(self, task_id: str) -> Conversation[TaskRecord]:
        """Return a task's current version. Raises NotFound."""
        return self._read(ServiceRequest("GET", of_task(task_id)), TaskRecord)

    def versions(self, task_id: str, *, page_size: int = 100) -> Giving[TaskRecord]:
        """Yield every version of a task, oldest first; pages are requested on demand. Raises NotFound."""

        def page(token: str | None) -> Conversation[TaskVersions]:
            query = {"page_size": str(page_size), "page_token": token}
            return self._read(ServiceRequest("GET", with_query(of_task(task_id, "/versions"), query)), TaskVersions)

        return _given(page, lambda page: page.versions)

    def list(self, **filters: Unpack[TaskFilters]) -> Giving[TaskRecord]:
        """Yield the tasks of the filters, newest received first; pages are requested on demand. A task that is
        submitted again meanwhile moves to the front, and is missing if it was not yet yielded."""
        return _given(lambda token: self.list_page(token=token, **filters), lambda page: page.tasks)

    def list_pages(self, **filters: Unpack[TaskFilters]) -> Giving[TaskList]:
        """Yield the same tasks in pages; a page may be empty although others follow."""
        return _given(lambda token: self.list_page(token=token, **filters), lambda page: (page,))

    def list_page(self, *, token: str | None = None, **filters: Unpack[TaskFilters]) -> Conversation[TaskList]:
        """Return a page of tasks; `token` is the `next_page_token` of the page before, with the same filters."""
        path = with_query("v1/tasks", {**query_of(filters), "page_token": token})
        return self._read(ServiceRequest("GET", path), TaskList)

    def receipt(self, task_id: str) -> Conversation[Receipt]:
        """Return the receipt of a purge that ended. Raises NotFound without one (`RECEIPT_NOT_FOUND`)."""
        return self._read(ServiceRequest("GET", of_task(task_id, "/receipt")), Receipt)

    def estimate(self, task_id: str) -> Conversation[Estimate]:
        """Return what executing a task's plan takes. To know it before a purge, submit the purge with `dry_run`, wait
        for that task, and pass its id. Raises NotFound without a plan (`ESTIMATE_NOT_FOUND`)."""
        return self._read(ServiceRequest("GET", of_task(task_id, "/estimate")), Estimate)

    def place(self, task_id: str) -> Conversation[TaskPlace]:
        """Return what a task waits for: its lane, its place there, and what keeps the next from starting. Raises as
        `get`."""
        return self._read(ServiceRequest("GET", of_task(task_id, "/place")), TaskPlace)

    def cancel(self, task_id: str) -> Conversation[TaskRecord]:
        """Cancel a task, or request a running one to stop. Raises Conflict if it ended otherwise (`TASK_ENDED`)."""
        return self._read(ServiceRequest("POST", of_task(task_id, "/cancel")), TaskRecord)

    def retry(self, task_id: str) -> Conversation[TaskRecord]:
        """Retry a FAILURE. If the answer is lost the request is repeated; a refusal of the repeat means that the first
        had effect. Raises Conflict for any other task (`TASK_NOT_FAILED`)."""
        sent = itertools.count(1)

        def once() -> Conversation[TaskRecord]:
            number = next(sent)
            try:
                return (yield from self._sent(ServiceRequest("POST", of_task(task_id, "/retry")), TaskRecord))
            except Conflict:
                if number == 1:
                    raise
            return (yield from self.get(task_id))

        return self._repeated(once)

    def approve(
        self, task_id: str, plan: str, *, sha256: str | None = None, including: Sequence[str] = ()
    ) -> Conversation[TaskRecord]:
        """Approve the plan with which a task ended, and return the task; a repeat changes nothing. Raises Conflict for
        any other plan (`APPROVAL_REFUSED`)."""
        wanted = PlanApproval(plan=plan, sha256=sha256, including=tuple(including))
        return self._read(change(of_task(task_id, "/approve"), wanted.model_dump_json(exclude_none=True)), TaskRecord)

    def tombstones(self, *, page_size: int = 100) -> Giving[TombstoneRecord]:
        """Yield the tables dropped through the gateway, newest first; pages are requested on demand. Like the other
        operations on tombstones, raises NotFound in a deployment without a gateway (`NO_TOMBSTONES`)."""
        return _given(lambda token: self.tombstone_page(token=token, page_size=page_size), lambda page: page.tombstones)

    def tombstone_page(self, *, token: str | None = None, page_size: int = 100) -> Conversation[TombstoneList]:
        """Return a page of tombstones; `token` is the `next_page_token` of the page before."""
        path = with_query("v1/tombstones", {"page_size": str(page_size), "page_token": token})
        return self._read(ServiceRequest("GET", path), TombstoneList)

    def tombstone(self, tombstone_id: str) -> Conversation[TombstoneRecord]:
        """Return a tombstone as it is now. Raises NotFound."""
        return self._read(ServiceRequest("GET", of_tombstone(tombstone_id)), TombstoneRecord)

    def restore_tombstone(self, tombstone_id: str, *, to: RestoredName | None = None) -> Conversation[TombstoneRecord]:
        """Give a dropped table its name back, or another one. Raises Conflict (`RESTORE_REFUSED`, `NAME_TAKEN`)."""
        content = RestoreRequest(to=to).model_dump_json(exclude_none=True)
        return self._read(change(of_tombstone(tombstone_id, "/restore"), content), TombstoneRecord)

    def purge_tombstone(self, tombstone_id: str) -> Conversation[TombstoneRecord]:
        """End a tombstone's grace period, or retry its purge. Raises Conflict (`PURGE_NOT_POSSIBLE`)."""
        return self._read(ServiceRequest("POST", of_tombstone(tombstone_id, "/purge")), TombstoneRecord)

    def dismiss_tombstone(self, tombstone_id: str) -> Conversation[TombstoneRecord]:
        """End a FAILED tombstone: drop its entry, keep its files. Raises Conflict (`DISMISSAL_REFUSED`)."""
        return self._read(ServiceRequest("POST", of_tombstone(tombstone_id, "/dismiss")), TombstoneRecord)

    def health(self) -> Conversation[Health]:
        """Return whether the service works. Raises ServiceFailed if the service reports a failure."""
        return self._read(ServiceRequest("GET", "v1/health"), Health)

    def pauses(self) -> Conversation[PauseList]:
        """Return everything that is paused."""
        return self._read(ServiceRequest("GET", "v1/pause"), PauseList)

    def pause(self, wanted: PauseRequest) -> Conversation[PauseList]:
        """Pause tasks and return everything that is paused; a repeat changes nothing."""
        return self._read(change("v1/pause", json.dumps(wanted.model_dump(exclude_none=True))), PauseList)

    def resume(self, wanted: ResumeRequest) -> Conversation[PauseList]:
        """End the pause of a scope and return everything that is still paused."""
        return self._read(change("v1/resume", json.dumps(wanted.model_dump(exclude_none=True))), PauseList)

    def wait(
        self,
        task_id: str,
        *,
        on_progress: OnProgress | None = None,
        interval_seconds: float = 1.0,
        longest_seconds: float = LONGEST_POLL_SECONDS,
        timeout_seconds: float | None = None,
    ) -> Conversation[TaskRecord]:
        """Wait for a task's end and return it, SUCCESS or FAILURE; `on_progress` gets it now and at each change. It is
        read after `interval_seconds`; while nothing changes the pauses grow to `longest_seconds`. Raises NotFound, and
        WaitTimedOut after `timeout_seconds`; the task then continues."""
        following = self._followed(task_id, Polls(interval_seconds, longest_seconds, timeout_seconds))
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

    def follow(
        self, task_id: str, *, interval_seconds: float = 1.0, timeout_seconds: float | None = None
    ) -> Giving[TaskRecord]:
        """Yield the task now and after each change, until it is terminal or the timeout ends. Raises NotFound."""
        return self._followed(task_id, Polls(interval_seconds, interval_seconds, timeout_seconds))

    def _followed(self, task_id: str, polls: Polls) -> Giving[TaskRecord]:
        """Give the task now and after each change, until its end or the timeout; return it as last read. Reads continue
        through outages. Without a timeout, a service that never answered this client is given up after READ_ATTEMPTS
        reads, because its address may be wrong."""
        began = self._clock()
        task: TaskRecord | None = None
        unchanged = failed = 0

        def left() -> float | None:
            return polls.left(self._clock() - began)

        while True:
            limit = None if (rest := left()) is None else max(rest, LAST_READ_SECONDS)
            try:
                latest = yield from self._sent(
                    ServiceRequest("GET", of_task(task_id)), TaskRecord, longest_seconds=limit
                )
            except (*PASSING, IssuerUnavailable) as error:
                failed += 1
                pause = self._pauses.wait(failed, retry_after_seconds(error))
                rest = left()
                is_new = rest is None and not self._has_answered
                if pause is None or (is_new and failed >= READ_ATTEMPTS) or (rest == 0 and task is None):
                    raise
                failure: DelegationClientError | None = error
            else:
                is_changed = task is None or (latest.version, latest.revision) != (task.version, task.revision)
                task, failure, failed = latest, None, 0
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


def _given(
    read: Callable[[str | None], Conversation[SomePage]], values: Callable[[SomePage], Iterable[V]]
) -> Giving[V]:
    """Give the values of each page, and request the next page when a page is used up."""
    token: str | None = None
    while True:
        page = yield from read(token)
        for value in values(page):
            yield Give(value)
        token = page.next_page_token
        if token is None:
            return
