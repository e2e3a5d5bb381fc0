"""Changes of tasks by others than their holders. `Dispatching` is for the sweeper, the dispatcher and admission,
`OperatorChanges` for callers and operators."""

from datetime import datetime, timedelta

from delegation.tasks.life import decisions, outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.decisions import Decision
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.pauses import PAUSED_WAIT
from delegation.tasks.work.parts.writes import WriteLoop, Written


class Dispatching:
    """Lets tasks start, and records lost attempts; raises TaskNotFound and the store's errors."""

    def __init__(self, writes: WriteLoop) -> None:
        self._writes = writes

    def dispatch(self, task_id: str, *, task: Task | None = None) -> Task:
        """Count one more dispatch and move `due_at` in one write, then send; the sweeper repeats a lost one. A paused
        task is returned unchanged; the sweeper dispatches it after the pause."""
        writes = self._writes
        task = task or writes.reads.get(task_id)
        if writes.hooks.pauses.start(task) is not None:
            return task
        after = self._sent(
            writes.written(task_id, lambda task, now: decisions.dispatch(task, now, writes.policies.dispatch), task)
        )
        return writes.messages.send(after) if after.is_queued else after

    def admit(self, task_id: str) -> Task | None:
        """Start a queued task and count its dispatch, which the caller sends; None if it no longer waits. A paused one
        goes behind the others of its lane, and is not started."""
        writes = self._writes
        task = writes.reads.get(task_id)
        paused = writes.hooks.pauses.start(task) is not None

        def decide(task: Task, now: datetime) -> Task:
            return decisions.admit(task, now, writes.policies.dispatch, paused_for=PAUSED_WAIT if paused else None)

        written = writes.written(task_id, decide, task)
        return None if paused or written.after is written.before else written.after

    def reconcile(self, task_id: str) -> Task:
        """Presume a due task lost, fail it, or dispatch it again, as the sweeper. Of a paused task only a loss is
        recorded; it stays due, so a sweep after the pause dispatches it."""
        writes = self._writes
        task = writes.reads.get(task_id)
        ended = writes.ended_attempt(task)
        paused = writes.hooks.pauses.start(task) is not None

        def decide(task: Task, now: datetime) -> Task:
            return decisions.reconcile(task, now, writes.policies, ended_attempt=ended, paused=paused)

        return self._sent(writes.written(task_id, decide, task))

    def presume_lost(self, task_id: str) -> Task:
        """Record the loss of an attempt whose lease ended and of which nothing runs any more; else change nothing."""

        def decide(task: Task, now: datetime) -> Decision:
            return outcomes.after_loss(task, now, self._writes.policies)

        return self._writes.change(task_id, decide)

    def excuse_refused_start(self, task_id: str, attempt: int) -> Task:
        """Excuse an attempt that was found lost and was never started; of any other attempt change nothing."""
        return self._writes.change(task_id, lambda task, _now: outcomes.excused_loss(task, attempt))

    def end_external_jobs(self, task: Task) -> bool:
        """End what the task's attempt runs elsewhere; False when that may still run."""
        return self._writes.hooks.external_jobs.end(task)

    def _sent(self, written: Written) -> Task:
        """Send the dispatch that a write counted; raises StoreUnavailable when the queue did not accept it."""
        after = written.after
        if after.dispatches.count > written.before.dispatches.count and not after.is_terminal:
            self._writes.messages.send_again(after)
        return after


class OperatorChanges:
    """Cancels, retries and releases tasks; raises TaskNotFound, LeaseLost and the store's errors."""

    def __init__(self, writes: WriteLoop) -> None:
        self._writes = writes

    def cancel(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Fail a waiting task (`CANCELLED`); request a held one or a parent, which cancels its children, to stop."""
        return self._writes.change(task_id, lambda task, now: decisions.cancel(task, now, by))

    def retry(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Retry a failed task for `by` with a fresh attempt budget, due at once, as the rules of its type resume it."""
        writes = self._writes

        def decide(task: Task, now: datetime) -> Task:
            if task.status is not Status.FAILURE:
                return task
            again = t.resubmit(
                task,
                now,
                payload=task.task_payload,
                synchronous=False,
                grace=timedelta(0),
                restarted=writes.hooks.types.restarted(task),
                deadline_ts=writes.policies.deadline(task.task_type, now),
                requested_by=by,
            )
            return writes.notifying(again)

        return writes.change(task_id, decide)

    def release(self, task_id: str, attempt: int, reason: str) -> Task:
        """Record an attempt as lost although its lease lasts; its holder's later writes are refused."""

        def decide(task: Task, now: datetime) -> Task:
            return decisions.release(task, attempt, reason, now, self._writes.policies)

        return self._writes.change(task_id, decide)
