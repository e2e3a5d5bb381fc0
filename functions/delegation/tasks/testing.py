"""Tasks in memory on a clock that a test moves. Processes crash, lose their lease or hand over on demand."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, Unpack, overload

from pydantic import BaseModel

from delegation.errors import RunHandedOver
from delegation.tasks.admission import WorkersAdmission
from delegation.tasks.authoring import Context
from delegation.tasks.calls import outcome_of
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.base import Create, TaskChange
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.submit import Call, Handle, Options, Tasks
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.author_context import SAME
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior, TaskBehavior
from delegation.tasks.work.hooks import NoDispatchQueue
from delegation.tasks.work.plugins import Plugins
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import Worker, WorkerSettings

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)
V = TypeVar("V")
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_ATTEMPTS: Final = 10_000
_PAGE: Final = 500


class Crash(BaseException):
    """The process ends here, as by SIGKILL: nothing more runs or is written."""


class MissingBehaviorError(AssertionError):
    """The harness has no behavior for the type of a submitted task, a child for example."""


class _KnownTypes(MemoryTaskStore):
    """A store that ends the process which creates a task without a behavior."""

    def __init__(self, task_types: Collection[str]) -> None:
        super().__init__()
        self._task_types = task_types
        self.missing: str | None = None

    def apply_locked(self, change: TaskChange) -> Task:
        if isinstance(change, Create) and change.after.task_type not in self._task_types:
            self.missing = change.after.task_type
            raise Crash
        return super().apply_locked(change)


class NeverIdleError(AssertionError):
    """Tasks kept becoming due: endless retries, or a parent of a child that nothing runs."""


@dataclass(frozen=True, slots=True)
class _Interruption:
    """What happens to the next attempt of a task type: at its n-th checkpoint, or after its work if that is None."""

    what: str
    at_checkpoint: int | None


class TaskHarness:
    """A task store in memory, workers that run on it in turn, and a clock that only `advance` moves. Worker, leases,
    retries and records are a deployment's, with these `properties`."""

    def __init__(
        self,
        *behaviors: Behavior[Any, Any] | TaskBehavior,
        now: datetime = START,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.now = now
        task_types: set[str] = set()
        self.store = _KnownTypes(task_types)
        plugins = Plugins(behaviors)
        policies = plugins.policies(Policies.from_properties(properties or {}))
        due_at_once = replace(policies, dispatch=replace(policies.dispatch, grace=timedelta(0)))
        self.service = TaskService(self.store, due_at_once, NoDispatchQueue(), clock=lambda: self.now)
        self.tasks = Tasks(self.service)
        runnable = [self._runnable(behavior) for behavior in behaviors]
        task_types.update(task_type for behavior in runnable for task_type in behavior.task_types)
        self._behaviors = Behaviors(runnable)
        self._interruptions: dict[str, _Interruption] = {}
        self._workers = 0
        self._admission = WorkersAdmission(self.service, self.store, self._behaviors.task_types)

    def advance(self, time: timedelta) -> datetime:
        """Move the clock and return the new time; work may call this to simulate duration."""
        self.now += time
        return self.now

    @overload
    def submit(self, behavior: Call[V], **options: Unpack[Options]) -> Handle[V]: ...
    @overload
    def submit(self, behavior: Behavior[P, R], parameters: P, **options: Unpack[Options]) -> Handle[R]: ...

    def submit(
        self, behavior: Behavior[Any, Any] | Call[Any], parameters: Any = None, **options: Unpack[Options]
    ) -> Handle[Any]:
        call = behavior if isinstance(behavior, Call) else Call(behavior, parameters)
        with self._naming_missing():
            submitted = self.tasks.submit(call, **options)
        return self.tasks.handle(call.behavior, submitted.task_id)

    def history(self, handle: Handle[Any]) -> list[Status]:
        return [row.status for row in self.store.history(handle.task_id, limit=_MOST_ATTEMPTS)]

    def run_due(self) -> int:
        """Run due tasks until none is left, without moving the clock; return the number of attempts."""
        for attempts in range(_MOST_ATTEMPTS):
            if not self._run_one():
                return attempts
        raise NeverIdleError(f"after {_MOST_ATTEMPTS} attempts, at {self.now}, tasks are still due")

    def run_until_idle(self) -> int:
        """Run what is due, and what becomes due by waiting for retries or children; return the number of attempts. The
        clock moves to those times. It never moves to the end of a lease, nor to the time of a task that was submitted
        for later or recurs: use `advance`."""
        attempts = self.run_due()
        while (at := self._next_retry()) is not None:
            if attempts >= _MOST_ATTEMPTS:
                raise NeverIdleError(
                    f"after {attempts} attempts, at {self.now}, tasks still retry or wait for children"
                )
            self.now = max(self.now, at)
            attempts += self.run_due()
        return attempts

    def crash(
        self, behavior: Behavior[Any, Any], *, at_checkpoint: int | None = None, after_work: bool = False
    ) -> None:
        """End the process of the next attempt: at its n-th checkpoint, or with its work done and not recorded."""
        self._interrupt(behavior, "crash", at_checkpoint, after_work=after_work)

    def lose(self, behavior: Behavior[Any, Any], *, at_checkpoint: int | None = None, after_work: bool = False) -> None:
        """Let the next attempt lose its lease while it works, like a process that is paused for too long. The clock
        moves beyond the lease, and the loss is recorded: later writes of the attempt are refused."""
        self._interrupt(behavior, "lose", at_checkpoint, after_work=after_work)

    def hand_over(self, behavior: Behavior[Any, Any], *, at_checkpoint: int) -> None:
        """Have the next attempt hand over at its n-th checkpoint, as on SIGTERM or at the time limit of a Lambda."""
        self._interrupt(behavior, "hand over", at_checkpoint)

    def _interrupt(
        self, behavior: Behavior[Any, Any], what: str, at_checkpoint: int | None, *, after_work: bool = False
    ) -> None:
        if (at_checkpoint is None) != after_work:
            raise ValueError("interrupt an attempt either at a checkpoint or after its work")
        self._interruptions[behavior.task_type] = _Interruption(what, at_checkpoint)

    def _run_one(self) -> bool:
        self._workers += 1
        settings = WorkerSettings(owner=f"process {self._workers}")
        worker = Worker(
            self.service,
            self._behaviors,
            settings,
            monotonic=self._seconds,
            waits=_until_done,
            admission=self._admission,
        )
        with self._naming_missing():
            try:
                return worker.run_once() is not None
            except Crash:
                if self.store.missing is not None:
                    raise
                return True

    @contextlib.contextmanager
    def _naming_missing(self) -> Iterator[None]:
        try:
            yield
        except Crash:
            task_type, self.store.missing = self.store.missing, None
            if task_type is None:
                raise
            text = f"a task of type {task_type} was submitted, and the harness has no behavior for this type"
            raise MissingBehaviorError(f"{text}. Pass the behavior to TaskHarness") from None

    def _next_retry(self) -> datetime | None:
        times: list[datetime] = []
        cursor: str | None = None
        while True:
            page = self.store.heads(cursor=cursor, limit=_PAGE)
            waiting = [task for task in page.tasks if task.status is Status.RETRY_SCHEDULED]
            known = [task for task in waiting if task.task_type in self._behaviors]
            times += [task.next_scheduled_run_ts for task in known if task.next_scheduled_run_ts is not None]
            cursor = page.cursor
            if cursor is None:
                return min(times, default=None)

    def _seconds(self) -> float:
        return self.now.timestamp()

    def _runnable(self, behavior: Behavior[Any, Any] | TaskBehavior) -> TaskBehavior:
        if not isinstance(behavior, Behavior):
            return behavior

        def attempt(tasks: TaskService, task: Task, **settings: Any) -> AttemptContext:
            return _Interrupted(self, tasks, task, self._interruptions.pop(behavior.task_type, None), settings)

        def work(parameters: BaseModel, run: Any) -> Any:
            result = outcome_of(behavior.task_type, lambda: behavior.work(parameters, run), run)
            run.interrupt(None)
            return result

        return FunctionBehavior(self.service, replace(behavior, work=work), monotonic=self._seconds, attempt=attempt)


def _until_done(work: "Future[Any]", _seconds: float) -> bool:
    """Wait for the work, however far it moves the clock; its lease decides what it may still write."""
    wait([work])
    return True


class _Interrupted(Context):
    """An attempt that is interrupted once, at a checkpoint or after its work."""

    def __init__(
        self,
        harness: TaskHarness,
        tasks: TaskService,
        task: Task,
        interruption: _Interruption | None,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(tasks, task, **settings)
        self._harness = harness
        self._interruption = interruption
        self._checkpoints = 0

    def checkpoint(self, *, cursor: Any = SAME, moved: bool = True) -> None:
        self._move(cursor)
        if moved:
            self._checkpoints += 1
            self.interrupt(self._checkpoints)
        super().checkpoint(moved=moved)

    def interrupt(self, point: int | None) -> None:
        """Interrupt the attempt if that was requested for this checkpoint (None: after its work)."""
        if self._interruption is None or self._interruption.at_checkpoint != point:
            return
        what, self._interruption = self._interruption.what, None
        if what == "crash":
            raise Crash
        if what == "hand over":
            raise RunHandedOver(self.task_id)
        self._harness.advance(self.tasks.policies.lease.lost_timeout)
        self.tasks.dispatching.presume_lost(self.task_id)
