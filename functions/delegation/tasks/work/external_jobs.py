"""What an attempt runs outside of the process that holds its task."""

from typing import Final, Protocol

from delegation.tasks.life.lease import execution_of
from delegation.tasks.life.model import Task

INLINE: Final = "inline"
"""The engine of work that the process that holds the task does: nothing of it runs elsewhere."""

SPARK: Final = "spark"
"""The engine that runs in a job run, as behaviors choose it and the state machine knows it."""


class ExternalJobs(Protocol):
    """Ends what a task's attempts run elsewhere, job runs for example.

    It is called before the loss of an attempt is recorded, and again after a crash in between.
    """

    def end(self, task: Task) -> bool:
        """End all jobs of the task; may be repeated. False when they may still run: then no loss may be recorded."""


class NoExternalJobs:
    """ExternalJobs where no process starts jobs; an attempt that did is left to a process that can end them."""

    def end(self, task: Task) -> bool:
        """See ExternalJobs.end."""
        return task.engine in {None, INLINE} and task.job_run_id is None


class JobsLeftToSweeper(NoExternalJobs):
    """ExternalJobs of a worker beside a state machine: it leaves attempts of executions to the sweeper."""

    def end(self, task: Task) -> bool:
        """See ExternalJobs.end: an execution, named after the task, starts its job before recording it."""
        by_execution = execution_of(task.lease_owner, task.task_id)
        return super().end(task) and (task.engine == INLINE or not by_execution)
