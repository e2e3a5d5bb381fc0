"""What an attempt has running outside of the processes that hold its task, and that has to end with it."""

from typing import Final, Protocol

from delegation.tasks.life.model import Task

INLINE: Final = "inline"
"""The engine of work that is done by the process that holds the task: nothing of it runs elsewhere."""

SPARK: Final = "spark"
"""The engine that runs in a job of its own, as behaviors choose it and the state machine knows it."""


class ExternalJobs(Protocol):
    """Ends what a task's attempts have running elsewhere, job runs for example.

    It is asked before an attempt is given up for another's doing (its loss), so that no crash in between forgets what
    runs: until the loss is on record, the next look asks again.
    """

    def end(self, task: Task) -> bool:
        """End all that may be there; repeatable. False when that is not settled: then no loss is to be recorded."""


class NoExternalJobs:
    """Outside where nobody starts anything elsewhere; an attempt that did all the same is left to who can end it."""

    def end(self, task: Task) -> bool:
        """See ExternalJobs.end."""
        return task.engine in {None, INLINE} and task.job_run_id is None


class LeftToSweeper(NoExternalJobs):
    """ExternalJobs for who cannot end jobs beside a state machine, whose executions may have started any."""

    def end(self, task: Task) -> bool:
        """See ExternalJobs.end: an execution starts its job before noting it, by a name that begins with the task."""
        by_execution = task.lease_owner is not None and task.lease_owner.startswith(f"{task.task_id}-")
        return super().end(task) and (task.engine == INLINE or not by_execution)
