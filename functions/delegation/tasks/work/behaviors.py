"""Task behaviors: what kinds of work there are, how a task of each is identified, retried and repeated.

Two layers. `TaskBehavior` is what a driver needs of any kind: choose an engine, run an attempt. `Behavior` declares a
kind whose work is one function (reliable-tasks.md, "Design"); `FunctionBehavior` makes it drivable.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from delegation.errors import DelegationError
from delegation.tasks.errors import LeaseLost, MalformedRecord, RunCancelled, RunHandedOver, TaskError
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass, parked_error
from delegation.tasks.work.attempt_context import AttemptContext, elapsed
from delegation.tasks.work.external_jobs import INLINE
from delegation.tasks.work.service import TaskService

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)

CHILDREN_PENDING: Final = "CHILDREN_PENDING"
CHILD_FAILED: Final = "CHILD_FAILED"
ILLEGAL_RESULT: Final = "ILLEGAL_RESULT"
_LONGEST_WAIT: Final = timedelta(minutes=1)


class TaskBehavior(Protocol):
    """One or more kinds of work, as drivers see it. Both methods are called by who holds the task; both may repeat."""

    @property
    def kinds(self) -> frozenset[str]:
        """The stored task types that this behavior runs."""

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        """Choose the engine for a held task (`inline` or `spark`), None when the attempt ended already.

        At `hand_over_at` what takes time is given up, and the attempt handed over.
        Who runs the attempt notes the choice on the task, in a write that it makes anyway.
        Errors of the work are recorded on the task, not raised; TaskError is.
        """

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """Do the work in this process and record its outcome; at `hand_over_at` start nothing more, and hand over."""


class Behaviors(dict[str, TaskBehavior]):
    """Behaviors by task type. A type that is not here belongs to a newer deployment and is left alone."""

    def __init__(self, behaviors: Iterable[TaskBehavior]) -> None:
        super().__init__((kind, behavior) for behavior in behaviors for kind in behavior.kinds)


class OnLost(StrEnum):
    """What becomes of a task whose run was lost."""

    RETRY = "retry"
    FAIL = "fail"


class Run(Protocol):
    """What a task function may ask and tell while it works."""

    @property
    def task(self) -> Task:
        """The task as last seen."""

    def checkpoint(self) -> None:
        """To be called before each piece of work; what it raises ends the run and is to be let through."""

    def report(self, **details: Any) -> None:
        """Progress, as details of the task."""


TaskFunction = Callable[[P, Run], R | None]
"""The work: parameters and a run in, a result out. A DelegationError that it raises is recorded by its class."""


@dataclass(frozen=True)
class Behavior(Generic[P, R]):
    """A kind of work: its parameters and result (pydantic), what identifies a task of it, how it is repeated.

    With `identify` the id is computed from the parameters, so that a second submission meets the same task; without it
    every submission is a task of its own. `every` makes a task recur that long after each end. Retries follow the
    properties of the kind. With a `result` type a run has to return one.
    """

    kind: str
    parameters: type[P]
    work: TaskFunction[P, R]
    result: type[R] | None = None
    identify: Callable[[P], str] | None = None
    every: timedelta | None = None
    on_lost: OnLost = OnLost.RETRY

    def task_id(self, parameters: P) -> str:
        """The id of a task with these parameters; a new one at each call when it is not deterministic."""
        if self.identify is None:
            return str(uuid.uuid4())
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-task:{self.kind}:{self.identify(parameters)}"))

    def read_parameters(self, task: Task) -> P:
        """The parameters of a stored task; MalformedRecord when this release cannot read them."""
        try:
            return self.parameters.model_validate_json(task.task_payload)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "payload"
            raise MalformedRecord(f"task {task.task_id}: task_payload: {where}: {first['msg']}") from None

    def read_result(self, task: Task) -> R | None:
        """The recorded result of a SUCCESS; None for behaviors without one."""
        if self.result is None or task.result_extended is None:
            return None
        return self.result.model_validate_json(task.result_extended)


class IllegalResult(DelegationError):
    """A task function returned nothing, or something of another type, where its behavior declares a result."""

    code = ILLEGAL_RESULT


class FunctionBehavior(Generic[P, R]):
    """TaskBehavior for a declared Behavior: runs its function, waits for its children, records result or error."""

    def __init__(
        self,
        tasks: TaskService,
        behavior: Behavior[P, R],
        *,
        children_wait: timedelta = timedelta(seconds=5),
        monotonic: Callable[[], float] = elapsed,
    ) -> None:
        self._tasks = tasks
        self._behavior = behavior
        self._children_wait = children_wait
        self._monotonic = monotonic

    @property
    def kinds(self) -> frozenset[str]:
        """See TaskBehavior.kinds."""
        return frozenset({self._behavior.kind})

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:  # noqa: ARG002 - runs anywhere
        """See TaskBehavior.prepare."""
        return INLINE

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run."""
        run = AttemptContext(self._tasks, task, hand_over_at=hand_over_at, monotonic=self._monotonic)
        try:
            if task.cancel_requested and task.children:
                return self._after_children(task)
            if task.pending_result is None:
                task = self._work(task, run)
            return self._after_children(task) if task.children else self._succeed(task)
        except LeaseLost:
            return self._tasks.get(task.task_id)
        except RunCancelled as error:
            return self._cancelled(task, error)
        except RunHandedOver as error:
            return self._end(task, AttemptError(t.HANDED_OVER, str(error), ErrorClass.HANDED_OVER))
        except TaskError:
            raise
        except DelegationError as error:
            kind = ErrorClass.TRANSIENT if error.retryable else ErrorClass.PERMANENT
            return self._end(task, AttemptError(error.code, str(error), kind))

    def _work(self, task: Task, run: AttemptContext) -> Task:
        """Run the function and note its result; with children, the result waits for them on the record."""
        run.write(lambda: self._tasks.start(task.task_id, task.attempt_count))
        result = self._behavior.work(self._behavior.read_parameters(task), run)
        expected = self._behavior.result
        if expected is not None and not isinstance(result, expected):
            raise IllegalResult(f"{self._behavior.kind} has to return {expected.__name__}")
        recorded = "null" if result is None or expected is None else result.model_dump_json()
        if not self._tasks.get(task.task_id).children:
            return task.evolve(pending_result=recorded)
        return run.write(lambda: self._tasks.note(task.task_id, task.attempt_count, pending_result=recorded))

    def _cancelled(self, task: Task, error: RunCancelled) -> Task:
        """End a cancelled attempt, a parent's after its children; what another attempt holds by now is left to it."""
        head = self._tasks.get(task.task_id)
        if not head.is_held or head.attempt_count != task.attempt_count:
            return head
        if not head.children:
            return self._end(task, AttemptError(t.CANCELLED, str(error), ErrorClass.PERMANENT))
        with suppress(LeaseLost):
            return self._after_children(head)
        return self._tasks.get(task.task_id)

    def _succeed(self, task: Task) -> Task:
        result = None if task.pending_result == "null" else task.pending_result
        return self._tasks.succeed(task.task_id, task.attempt_count, "done", result_extended=result)

    def _after_children(self, task: Task) -> Task:
        """A parent ends after its children, and by them (reliable tasks: subtasks by `parent_id`)."""
        stored = [self._tasks.find(child) for child in task.children]
        open_ = [child for child in stored if child is not None and not child.is_terminal]
        if open_:
            if task.cancel_requested:
                for child in open_:
                    self._tasks.cancel(child.task_id)
            text = f"{len(open_)} of {len(stored)} children are not done"
            wait = self._wait_for(open_)
            return self._end(task, AttemptError(CHILDREN_PENDING, text, ErrorClass.WAITING), wait)
        # One that was never created belongs to a run that ended before it could be; its successor made its own.
        failed = [child for child in stored if child is not None and child.status is Status.FAILURE]
        if task.cancel_requested:
            cancelled = AttemptError(t.CANCELLED, "cancelled on request", ErrorClass.PERMANENT, after_children=True)
            return self._end(task, cancelled)
        own = parked_error(task.pending_result)
        if own is not None:
            return self._end(task, own)
        if failed:
            text = f"{len(failed)} of {len(stored)} children failed"
            return self._end(task, AttemptError(CHILD_FAILED, text, ErrorClass.PERMANENT, after_children=True))
        return self._succeed(task)

    def _wait_for(self, children: Sequence[Task]) -> timedelta:
        """Until the next look at them: every look is an attempt, and four rows of a history that is kept."""
        age = self._tasks.clock() - min(child.received_timestamp for child in children)
        return max(min(age / 10, _LONGEST_WAIT), self._children_wait)

    def _end(self, task: Task, error: AttemptError, wait: timedelta | None = None) -> Task:
        with suppress(LeaseLost):
            return self._tasks.give_back(task.task_id, task.attempt_count, error, wait=wait)
        return self._tasks.get(task.task_id)
