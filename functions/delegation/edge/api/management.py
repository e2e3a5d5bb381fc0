"""What operators do with a task, or with all at once: cancel, retry, approve, read receipts, pause and resume."""

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.edge.answers import ApiResponse, problem_of
from delegation.edge.api import lists
from delegation.edge.api.endpoints import (
    APPROVE,
    CANCEL,
    ESTIMATE,
    PAUSE,
    PAUSES,
    PLACE,
    RECEIPT,
    RESEND,
    RESUME,
    RETRY,
    VERSIONS,
    Admitted,
    Endpoint,
    admitted,
)
from delegation.edge.api.routes import Dependencies, Event, body_of, key_of, record_of, served, task_id_of
from delegation.edge.errors import EdgeError
from delegation.edge.requests import B, read_model
from delegation.edge.trust.permissions import Permission
from delegation.idempotency.answers import MutationAnswer
from delegation.idempotency.keys import Scope, payload_hashes, unread_body
from delegation.idempotency.mutations import AnswerSource, Mutation, MutationAttempt
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.transitions import CANCELLED
from delegation.tasks.pauses import PauseMode, PauseRecord, PauseScope
from delegation.tasks.work.reads import TaskReads
from delegation.wire.operators import PauseRequest, ResumeRequest
from delegation.wire.responses import render_json
from delegation.wire.tables import PlanApproval
from delegation.wire.tasks import shown
from polaris_common.errors import DelegationError

_ROWS: Final = 100
_ID_IN_PATH: Final = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True)
class Change:
    """A requested change, with its idempotency key if any. `document` is what a repeat must equal, `resource` the id in
    the path. `make` makes the change and returns the answer's document. After an unknown outcome it is made again,
    unless `verify` proves from the earlier observation that it was made."""

    caller: Admitted
    endpoint: Endpoint
    key: str | None
    document: Mapping[str, Any]
    make: Callable[[], Mapping[str, Any]]
    resource: str = ""
    observe: Callable[[], str | None] = lambda: None
    verify: Callable[[MutationAttempt], MutationAnswer | None] = lambda _attempt: None
    keeps_refusals: bool = True


def changed(deps: Dependencies, change: Change, task_id: str = "") -> ApiResponse:
    """Make a change and answer, once for its key, or return the stored answer. A task's change is logged. Raises
    KeyConflict, MutationInProgress, the errors of the stores, and the refusal of the change, which is stored for
    repeats."""
    if change.key is None:
        return served(change.make(), task_id)
    refusals: list[DelegationError] = []

    def run(_attempt: MutationAttempt) -> MutationAnswer:
        try:
            return MutationAnswer(200, render_json(change.make()))
        except DelegationError as error:
            problem = problem_of(error)
            if problem.status >= 500 or not change.keeps_refusals:
                raise
            refusals.append(error)
            return MutationAnswer(problem.status, problem.body)

    path = _ID_IN_PATH.sub(change.resource, change.endpoint.path)
    performed = deps.mutations().perform(
        Mutation(
            scope=Scope(change.caller.client_id, deps.realm, change.endpoint.method, path, change.key),
            payload_hash=payload_hashes(change.document),
            run=run,
            verify=change.verify,
            observe=change.observe,
        )
    )
    if refusals and performed.how is AnswerSource.EXECUTED:
        raise refusals[-1]
    how = performed.how if task_id else "served"
    return ApiResponse(performed.answer.status, performed.answer.body, task_id, how)


def _observed(reads: TaskReads, task_id: str) -> str | None:
    try:
        task = reads.get(task_id)
    except TaskNotFound:
        return None
    return f"{task.version} {task.status}"


def _verified(
    reads: TaskReads, task_id: str, did: Callable[[str, Task], bool], attempt: MutationAttempt
) -> MutationAnswer | None:
    """Return the answer if a version after the observed one, or the present one, shows the change."""
    if attempt.before is None:
        return None
    version, _, status = attempt.before.partition(" ")
    head = reads.get(task_id)
    rows = reads.versions(task_id, after=int(version), limit=_ROWS)
    for row in (*rows, head):
        if did(status, row):
            shows = head if head.version == row.version else row
            return MutationAnswer(200, render_json(record_of(reads, shows)))
    return None


_LARGEST_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Management:
    """The operations on one task; the DelegationErrors that they raise are answered by `problems`."""

    deps: Dependencies

    def versions(self, event: Event, task_id: str) -> ApiResponse:
        """Return versions of a task, oldest first (Delegation Service proposal, Persistence)."""
        admitted(event, VERSIONS)
        valid_id = task_id_of(task_id)
        page = lists.read(event, of=f"versions {valid_id}", largest=_LARGEST_PAGE)
        after = lists.number_after(page)
        rows = self.deps.tasks.reads.versions(valid_id, after=after, limit=page.size + 1)
        if not rows and not after:
            raise TaskNotFound(valid_id)
        room = lists.PageBudget()
        records = itertools.takewhile(room.has_room_for, (shown(row.public()) for row in rows[: page.size]))
        versions = list(records)
        more = len(rows) > len(versions)
        last = rows[len(versions) - 1].version if versions else after
        body = {"versions": versions, "next_page_token": page.token(str(last)) if more else None}
        return served(body, valid_id)

    def receipt(self, event: Event, task_id: str) -> ApiResponse:
        """Return the receipt of a purge that ended. Raises EdgeError (RECEIPT_NOT_FOUND)."""
        admitted(event, RECEIPT)
        task = self.deps.tasks.reads.get(task_id_of(task_id))
        receipt = self.deps.receipt(task)
        if receipt is None:
            raise EdgeError(
                f"task {task.task_id} has no receipt. A receipt is written when the task ends, and kept for "
                "delegation:plan-retention-days",
                code="RECEIPT_NOT_FOUND",
                task_id=task.task_id,
            )
        return ApiResponse(200, receipt, task.task_id)

    def estimate(self, event: Event, task_id: str) -> ApiResponse:
        """Return what executing a task's plan takes, and what is left. Raises EdgeError."""
        admitted(event, ESTIMATE)
        task = self.deps.tasks.reads.get(task_id_of(task_id))
        forecast = self.deps.estimate(task)
        if forecast is None:
            raise EdgeError(
                f"task {task.task_id} has no plan to estimate from. Wait for the plan, or send the request to POST "
                "/v1/tasks?dry-run=true and read that task's estimate",
                code="ESTIMATE_NOT_FOUND",
                task_id=task.task_id,
            )
        from delegation.edge.outlook import estimate_of  # noqa: PLC0415 - a cold start does not need it

        return served(estimate_of(task, forecast, self.deps.clock(), self.deps.types), task.task_id)

    def place(self, event: Event, task_id: str) -> ApiResponse:
        """Return what a task waits for: its lane, its place in it, and what keeps the lane's next from starting."""
        admitted(event, PLACE)
        task = self.deps.tasks.reads.get(task_id_of(task_id))
        waiting = self.deps.waiting(task)
        lane, place, reasons = (None, None, ()) if waiting is None else (waiting.lane, waiting.place, waiting.reasons)
        body = {"task_id": task.task_id, "waits": waiting is not None, "lane": lane, "place": place}
        return served({**body, "reasons": list(reasons)}, task.task_id)

    def cancel(self, event: Event, task_id: str) -> ApiResponse:
        """Cancel a task; a repeat returns the cancelled task. Raises EdgeError for one that ended otherwise."""
        caller = admitted(event, CANCEL)
        valid_id = task_id_of(task_id)

        def cancel() -> Task:
            task = self.deps.tasks.operators.cancel(valid_id, by=_named(caller))
            if task.is_terminal and task.error_code != CANCELLED:
                raise EdgeError(
                    f"task {valid_id} ended as {task.status}. Nothing is left to cancel",
                    code="TASK_ENDED",
                    task_id=valid_id,
                )
            return task

        return self._changed(
            event,
            CANCEL,
            valid_id,
            caller,
            change=cancel,
            did=lambda _before, after: after.cancel_requested or after.error_code == CANCELLED,
        )

    def retry(self, event: Event, task_id: str) -> ApiResponse:
        """Retry a FAILURE with a fresh attempt budget, and dispatch it. Raises EdgeError for any other task."""
        caller = admitted(event, RETRY)
        valid_id = task_id_of(task_id)

        def retry() -> Task:
            before = self.deps.tasks.reads.get(valid_id)
            if before.status is not Status.FAILURE:
                raise EdgeError(
                    f"task {valid_id} is {before.status}; only a task that is FAILURE can be retried",
                    code="TASK_NOT_FAILED",
                    task_id=valid_id,
                )
            return self.deps.tasks.dispatching.dispatch(
                valid_id, task=self.deps.tasks.operators.retry(valid_id, by=_named(caller))
            )

        return self._changed(event, RETRY, valid_id, caller, change=retry, did=_is_retry)

    def resend(self, event: Event, task_id: str) -> ApiResponse:
        """Make the dead letters of a task's ends deliverable again, and return the task; a repeat finds none."""
        caller = admitted(event, RESEND)
        valid_id = task_id_of(task_id)

        def resend() -> Task:
            task = self.deps.tasks.reads.get(valid_id)
            self.deps.resend(valid_id)
            return task

        return self._changed(event, RESEND, valid_id, caller, change=resend, did=_shows_nothing)

    def approve(self, event: Event, task_id: str) -> ApiResponse:
        """Record the caller's approval of an ended task's plan; a repeat changes nothing. Raises BadRequest."""
        caller = admitted(event, APPROVE)
        key_of(event, self.deps)
        valid_id = task_id_of(task_id)
        wanted = read_model(body_of(event), PlanApproval)
        is_operator = Permission.APPROVE in caller.permissions

        def approve() -> Task:
            return self.deps.approve(valid_id, wanted, by=_named(caller), is_operator=is_operator)

        return self._changed(event, APPROVE, valid_id, caller, change=approve, did=_shows_nothing)

    def _changed(
        self,
        event: Event,
        endpoint: Endpoint,
        task_id: str,
        caller: Admitted,
        *,
        change: Callable[[], Task],
        did: Callable[[str, Task], bool],
    ) -> ApiResponse:
        """Change a task, at most once if the request has an idempotency key, and return it. `did` gets the first
        observed status and a later or the current version, and returns whether that shows the change."""
        reads = self.deps.tasks.reads
        wanted = Change(
            caller,
            endpoint,
            key_of(event, self.deps),
            unread_body(event.get("body") or ""),
            lambda: record_of(reads, change()),
            task_id,
            observe=lambda: _observed(reads, task_id),
            verify=lambda attempt: _verified(reads, task_id, did, attempt),
        )
        return changed(self.deps, wanted, task_id)


def _named(caller: Admitted) -> Caller:
    return Caller(client_id=caller.client_id, subject=caller.subject)


def _shows_nothing(_before: str, _after: Task) -> bool:
    """The task does not change: after a lost answer it is done again, which is harmless."""
    return False


def _is_retry(before: str, after: Task) -> bool:
    """Only a retry or another submission follows a FAILURE."""
    return before == Status.FAILURE and after.status is Status.SUBMITTED


@dataclass(frozen=True, slots=True)
class Pausing:
    """The operations on pauses. Each may be repeated, and changes something at most once per idempotency key."""

    deps: Dependencies

    def shown(self, event: Event) -> ApiResponse:
        admitted(event, PAUSES)
        return served(_body(self.deps.pauses().shown()))

    def pause(self, event: Event) -> ApiResponse:
        """Pause a scope in the caller's name. Raises BadRequest, TaskError (TOO_MANY_PAUSES)."""
        caller = admitted(event, PAUSE)

        def pause(wanted: PauseRequest) -> PauseRecord:
            return self.deps.pauses().pause(
                self._scope(wanted), by=_named(caller), reason=wanted.reason, mode=PauseMode(wanted.mode)
            )

        return self._changed(event, PAUSE, caller, PauseRequest, pause)

    def resume(self, event: Event) -> ApiResponse:
        """End the pause of a scope. Raises BadRequest."""
        caller = admitted(event, RESUME)
        return self._changed(
            event, RESUME, caller, ResumeRequest, lambda wanted: self.deps.pauses().resume(self._scope(wanted))
        )

    def _changed(
        self, event: Event, endpoint: Endpoint, caller: Admitted, model: type[B], change: Callable[[B], PauseRecord]
    ) -> ApiResponse:
        """Make a change, at most once for its key; after an unknown outcome it is made again, with the same effect."""
        key, document = key_of(event, self.deps), body_of(event)
        wanted = read_model(document, model)
        asked = Change(caller, endpoint, key, document, lambda: _body(change(wanted)), keeps_refusals=False)
        return changed(self.deps, asked)

    def _scope(self, wanted: ResumeRequest) -> PauseScope:
        realm = self.deps.realm if wanted.scope == "realm" else None
        return PauseScope(realm=realm, table=wanted.table)


def _body(record: PauseRecord) -> Mapping[str, Any]:
    return {"pauses": [pause.document() for pause in record.pauses]}
