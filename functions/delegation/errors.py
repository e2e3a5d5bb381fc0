"""The errors of guards, and what stops an attempt."""

from typing import Any, ClassVar

from polaris_common.errors import DelegationError, restored


class GuardRefused(DelegationError):
    """A guard refused the purge before its first delete."""

    code = "REFUSED"


class RunStopped(BaseException):
    """The attempt must not continue, although nothing of it failed. Not an Exception, so that work which catches those
    does not continue after it; the attempt's runner catches it (`tasks.work.attempt_context.AttemptRunner`). A lost
    lease is an error of a write, `tasks.errors.LeaseLost`."""

    code: ClassVar[str]

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args, dict(self.__dict__))


class RunCancelled(RunStopped):
    """A cancellation of the task was requested; its run must start nothing more."""

    code = "CANCELLED"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id} was cancelled on request")
        self.task_id = task_id


class RunHandedOver(RunStopped):
    """This process has no time left for the run; the next attempt continues it."""

    code = "HANDED_OVER"

    def __init__(self, task_id: str, reason: str | None = None) -> None:
        """`reason` replaces the text that this process has no time left."""
        super().__init__(reason or f"this process has no time left for task {task_id}. The next attempt continues it")
        self.task_id = task_id


class RunPaused(RunHandedOver):
    """The task is paused: the run is handed over, uncounted, and continues after `delegation resume`."""

    code = "PAUSED"

    def __init__(self, task_id: str, pause: str) -> None:
        super().__init__(
            task_id, f"task {task_id} was {pause}. After `delegation resume` the task continues where it stopped"
        )


class RunTimedOut(RunStopped):
    """The attempt has worked for as long as its behavior allows; it is retried like any failed attempt."""

    code = "TIMED_OUT"

    def __init__(self, task_id: str, seconds: float) -> None:
        super().__init__(f"the attempt of task {task_id} reached its behavior's time limit of {seconds:.0f}s")
        self.task_id = task_id
