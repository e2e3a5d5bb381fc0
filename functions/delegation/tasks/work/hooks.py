"""`TaskHooks`: what a process knows of its tasks besides policies, whom it informs, and where dispatches go."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from delegation.identifiers import new_nonce
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.declared import NO_TYPES, TaskTypes
from delegation.tasks.life.model import WAITING, Task
from delegation.tasks.life.notifications import Notification
from delegation.tasks.life.policy import execution_of
from delegation.tasks.pauses import ReadPauses, nothing_paused
from delegation.tasks.work.reads import ResultStore

INLINE: Final = "inline"
"""The engine of work that runs entirely in the process that holds the task."""

SPARK: Final = "spark"
"""The engine that runs in a job run, named so by behaviors and the state machine."""


class ExternalJobs(Protocol):
    """Ends what a task's attempts run elsewhere, such as job runs. Called before the loss of an attempt is recorded,
    and again after a crash in between."""

    def end(self, task: Task) -> bool:
        """End all jobs of the task; may be repeated. False if they may still run: then no loss may be recorded."""


class NoExternalJobs:
    """ExternalJobs where no process starts jobs; attempts with jobs are left to a process that can end them."""

    def end(self, task: Task) -> bool:
        return task.engine in {None, INLINE} and task.job_run_id is None


class JobsLeftToSweeper(NoExternalJobs):
    """ExternalJobs of a worker beside a state machine: it leaves attempts of executions to the sweeper."""

    def end(self, task: Task) -> bool:
        """Return False for an execution, which is named after the task and starts its job before recording it."""
        by_execution = execution_of(task.lease.owner, task.task_id)
        return super().end(task) and (task.engine == INLINE or not by_execution)


def ignored(_task: Task) -> None: ...


def uncounted(_before: Task | None, _after: Task) -> None: ...


def announce_nothing(_owed: Sequence[Notification]) -> None:
    """Send nothing: without a queue of notifications the sweeper sends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHooks:
    """What a process knows of its tasks besides policies, and what it calls when they change. `types` are the
    deployment's task types. `external_jobs` ends what attempts run elsewhere. `results` keeps results too large for the
    store. After a write, `announce` is called with the stored notifications and raises nothing; `ended` with the last
    row of an ended task; `counted` with each step from one version to the next; `left_partly_done` with a FAILURE whose
    work had effects. `nonce` makes the nonce of a write."""

    types: TaskTypes = field(default_factory=lambda: NO_TYPES)
    external_jobs: ExternalJobs = field(default_factory=NoExternalJobs)
    results: ResultStore | None = None
    announce: Callable[[Sequence[Notification]], None] = announce_nothing
    ended: Callable[[Task], None] = ignored
    counted: Callable[[Task | None, Task], None] = uncounted
    left_partly_done: Callable[[Task], None] = ignored
    pauses: ReadPauses = field(default_factory=nothing_paused)
    nonce: Callable[[], str] = new_nonce


NO_HOOKS: Final = TaskHooks()
"""The hooks of a process that knows only policies and informs nobody."""


ANY_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task id in a message that concerns no task (RFC 9562, "Nil UUID")."""


class DispatchQueue(Protocol):
    """A queue of dispatches. A message holds the task's id, the dispatch's number, and ids that correlate logs."""

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        """Send one dispatch. `n` is its number; 0 only means that a task waits for its admission, or that the task
        ended. `correlation_id` is that of the task's request, for the dispatcher's log. Raises StoreUnavailable if the
        queue did not accept it."""


class NoDispatchQueue:
    """DispatchQueue of a process without one. Pollers (the sweeper, workers) find the tasks that it makes due."""

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:  # noqa: ARG002 - as the protocol
        """Raise StoreUnavailable."""
        raise StoreUnavailable(
            f"this process has no queue for dispatch {n} of task {task_id}. A worker or the sweeper finds the due task"
        )


@dataclass(frozen=True, slots=True)
class DispatchMessages:
    """Sends the dispatches that writes counted."""

    queue: DispatchQueue
    clock: Callable[[], datetime]
    hooks: TaskHooks

    def send(self, task: Task) -> Task:
        """Send the dispatch that the last write counted; the sweeper repeats a lost one at `due_at`. For a queued task
        it sends a `wake`. A task that waits for its time is left to the sweeper."""
        if task.next_scheduled_run_ts is not None and task.next_scheduled_run_ts > self.clock():
            return task
        if task.is_queued:
            self.wake()
        elif task.dispatches.count and task.status in WAITING and self.hooks.pauses.start(task) is None:
            with suppress(StoreUnavailable):
                self.send_again(task)
        return task

    def send_again(self, task: Task) -> Task:
        """Repeat the last dispatch that was counted. Raises StoreUnavailable if the queue did not accept it."""
        correlation_id = None if task.correlation_key is None else self.hooks.types.labels(task).correlation_id
        joined = {} if correlation_id is None else {"correlation_id": correlation_id}
        self.queue.send(task.task_id, task.dispatches.count, **joined)
        return task

    def wake(self, task_id: str = ANY_TASK) -> None:
        """Inform the dispatcher that a task waits, or that `task_id` has ended, so that tasks may start. If the message
        is lost, they start with the sweeper's next one."""
        with suppress(StoreUnavailable):
            self.queue.send(task_id, 0)
