"""Submission of tasks: each is accepted at most once, then run within the request if small, else dispatched."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from delegation.edge import answers
from delegation.edge.answers import ApiResponse
from delegation.idempotency.keys import RequestInProgress, Scope, payload_hashes
from delegation.idempotency.service import Acceptance, Accepted, IdempotentRequest, Replayed
from delegation.idempotency.store import StoredAnswer
from delegation.tasks.errors import LeaseLost, TaskError
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.options import RequestForm, RequestSources
from delegation.tasks.work.hooks import SPARK
from delegation.tasks.work.service import TaskService
from polaris_common.backoff import pauses

if TYPE_CHECKING:
    from delegation.tasks.work.behaviors import TaskBehavior

HAND_OVER_AFTER: Final = 0.8
"""The part of the synchronous budget after which the inline engine starts no more batches (20 of 25 s)."""
_LEASE_AFTER_DEADLINE: Final = timedelta(seconds=10)
_TIME_TO_ANSWER: Final = timedelta(seconds=1)
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Submission:
    """A validated request of the token's client (`caller`) and `subject`. `path` is the resource's path, `document` the
    parsed body, `payload` the form's result."""

    caller: str
    method: str
    path: str
    key: str | None
    document: Mapping[str, Any] = field(repr=False)
    form: RequestForm
    payload: Any = field(repr=False)
    subject: str = ""


@dataclass(slots=True)
class Submissions:
    """Accepts tasks synchronously and asynchronously, of every type that has a form of requests. `behavior` returns
    what runs a type's tasks within a request, on demand, as most asynchronous requests need none. `sources` are for the
    forms. `budget` is how long a synchronous request is held open. Methods raise RequestInProgress, ResubmittedTooSoon,
    ResubmitsExhausted, KeyConflict, IdempotencyError, the form's errors, and those of the stores; nothing is stored for
    a request that is not accepted."""

    tasks: TaskService
    acceptance: Acceptance
    behavior: Callable[[str], "TaskBehavior"]
    _: KW_ONLY
    sources: RequestSources
    budget: timedelta
    sleep: Callable[[float], None]

    def submit(self, submission: Submission) -> ApiResponse:
        """Accept a task for background processing; the answer is 202 whether or not the task existed."""
        accepted = self._accept(submission, synchronous=False)
        if isinstance(accepted, Replayed):
            return _as_answer(accepted.answer, accepted.task_id, "replayed")
        if accepted.submitted:
            self.tasks.messages.send(accepted.task)
        kind = "accepted" if accepted.submitted else "attached"
        return _as_answer(answers.accepted(accepted.task), accepted.task.task_id, kind)

    def execute(self, submission: Submission, *, received: datetime, deadline: datetime, owner: str) -> ApiResponse:
        """Accept a task, run it or wait for it, and answer with its outcome. The budget starts at `received`;
        `deadline` is the end of this invocation, `owner` its unique name. A form may refuse requests that cannot be
        waited for. Raises RequestInProgress if the budget ends first."""
        submission.form.refuse_waiting(submission.payload)
        until = min(received + self.budget, deadline - _TIME_TO_ANSWER)
        accepted = self._accept(submission, synchronous=True)
        if isinstance(accepted, Replayed):
            return _as_answer(accepted.answer, accepted.task_id, "replayed")
        if accepted.submitted:
            hand_over_at = received + self.budget * HAND_OVER_AFTER
            self._run_or_hand_over(accepted.task, owner, hand_over_at=hand_over_at, deadline=deadline)
        if self.tasks.pauses.start(accepted.task) is not None:
            until = received  # waiting does not help: the caller repeats its request
        outcome = self._wait_for_outcome(accepted, until)
        if outcome is None:
            raise RequestInProgress(accepted.task.task_id)
        answer = self.acceptance.conclude(accepted, outcome, self._outcome)
        return _as_answer(answer, outcome.task_id, "completed" if answer.status == 200 else "failed")

    def _accept(self, submission: Submission, *, synchronous: bool) -> Accepted | Replayed:
        asked = cache(partial(submission.form.asked, submission.payload, submission.document, self.sources))
        by = Caller(client_id=submission.caller, subject=submission.subject)
        tasks = self.tasks.submission
        scope = None
        if submission.key is not None:
            realm = self.sources.realm
            scope = Scope(submission.caller, realm, submission.method, submission.path, submission.key)
        return self.acceptance.accept(
            IdempotentRequest(
                scope=scope,
                payload_hash=payload_hashes(submission.document),
                answer_now=None if synchronous else answers.accepted,
                answer_of=self._outcome,
                first=partial(tasks.requested, asked, synchronous=synchronous, requested_by=by),
                obstacle=partial(tasks.obstacle, asked),
                again=partial(tasks.requested_again, asked, synchronous=synchronous, requested_by=by),
            )
        )

    def _outcome(self, task: Task) -> StoredAnswer:
        return answers.outcome(task, self.tasks.types)

    def _run_or_hand_over(self, task: Task, owner: str, *, hand_over_at: datetime, deadline: datetime) -> None:
        """Run a small task here and hand over any other; after an error the sweeper dispatches the task."""
        try:
            held = self.tasks.leases.acquire(
                task.task_id, owner, lambda now: Lease.until(deadline + _LEASE_AFTER_DEADLINE, now), task=task
            )
            if held.lease.owner != owner:
                return
            behavior = self.behavior(held.task_type)
            engine = behavior.prepare(held, hand_over_at=hand_over_at)
            if engine == SPARK:
                error = AttemptError(t.HANDED_OVER, "too large to run within the request", ErrorClass.HANDED_OVER)
                after = self.tasks.holding(held).leases.end_attempt(held.task_id, held.attempt_count, error)
            elif engine is not None:
                after = behavior.run(held, hand_over_at=hand_over_at)
            else:
                after = self.tasks.reads.get(held.task_id)
            if not after.is_terminal and not after.is_held:
                self.tasks.dispatching.dispatch(after.task_id, task=after)
        except (TaskError, LeaseLost):
            return

    def _wait_for_outcome(self, accepted: Accepted, until: datetime) -> Task | None:
        """Poll for the outcome with growing pauses; None if there is none by `until`."""
        for pause in pauses(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, multiplier=1.5):
            outcome = self.acceptance.outcome(accepted.task.task_id, accepted.bound_version)
            if outcome is not None:
                return outcome
            left = (until - self.tasks.clock()).total_seconds()
            if left <= 0:
                return None
            self.sleep(min(pause, left))
        return None


def _as_answer(answer: StoredAnswer, task_id: str, kind: str) -> ApiResponse:
    return ApiResponse(answer.status, answer.body.encode(), task_id, kind)
