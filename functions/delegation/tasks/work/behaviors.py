"""Task behaviors: which types of tasks there are, and how a task of each is identified, retried and repeated.

`TaskBehavior` is what drivers need of any task type: choose an engine, run an attempt. `Behavior` declares a task type
whose work is one function (Asynchronous & reliable tasks proposal, Design); `FunctionBehavior` runs it.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from delegation.errors import DelegationError
from delegation.tasks.errors import LeaseLost, MalformedPayload, RunCancelled, RunHandedOver, TaskError
from delegation.tasks.life import transitions as t
from delegation.tasks.life.kinds import KnownKinds
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
    """The work of one or more task types. Both methods are called by the lease holder and may be called again."""

    @property
    def kinds(self) -> frozenset[str]:
        """The stored task types that this behavior runs."""

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        """Return the engine for a held task (`inline` or `spark`), None when the attempt already ended.

        At `hand_over_at` it stops what takes long and hands the attempt over. The caller records the choice on the
        task, in a write that it makes anyway. Errors of the work are recorded on the task; only TaskError is raised.
        """

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """Do the work in this process and record its outcome; at `hand_over_at` begin nothing more, and hand over."""


class Behaviors(dict[str, TaskBehavior]):
    """Behaviors by task type. A task of a type that is missing here belongs to a newer deployment and is left alone."""

    def __init__(self, behaviors: Iterable[TaskBehavior]) -> None:
        super().__init__((kind, behavior) for behavior in behaviors for kind in behavior.kinds)

    @property
    def kinds(self) -> KnownKinds:
        """The task types, with the newest version of their payloads (`payload_version` of a behavior, otherwise 1)."""
        return KnownKinds((kind, getattr(behavior, "payload_version", 1)) for kind, behavior in self.items())


class OnLost(StrEnum):
    """What becomes of a task whose attempt was lost."""

    RETRY = "retry"
    FAIL = "fail"


class Run(Protocol):
    """What a task function may call while it works."""

    @property
    def task(self) -> Task:
        """The task as last read."""

    def checkpoint(self) -> None:
        """To be called before each piece of work; what it raises ends the run and must not be caught."""

    def report(self, **details: Any) -> None:
        """Report progress, as details of the task."""


TaskFunction = Callable[[P, Run], R | None]
"""The work: takes parameters and a run, returns a result. The code of a DelegationError that it raises is recorded."""


@dataclass(frozen=True)
class Behavior(Generic[P, R]):
    """A task type: its parameters and result (pydantic), what identifies a task of it, how it is repeated.

    With `identify` the id is computed from the parameters, so a second submission attaches to the same task; without it
    every submission is another task. `every` makes a task recur that long after each end. Retries follow the properties
    of the task type. With a `result` type a run has to return one. A task that is not done `deadline` after its
    submission fails. `version` is stored with the payload: raise it with a change of `parameters` that former releases
    cannot read; they leave such tasks alone, and this one has to read the former payloads too.
    """

    kind: str
    parameters: type[P]
    work: TaskFunction[P, R]
    result: type[R] | None = None
    identify: Callable[[P], str] | None = None
    every: timedelta | None = None
    on_lost: OnLost = OnLost.RETRY
    deadline: timedelta | None = None
    version: int = 1

    def task_id(self, parameters: P) -> str:
        """Return the id of a task with these parameters; another one at each call without `identify`."""
        if self.identify is None:
            return str(uuid.uuid4())
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-task:{self.kind}:{self.identify(parameters)}"))

    def read_parameters(self, task: Task) -> P:
        """Return the parameters of a stored task; raises MalformedPayload."""
        try:
            return self.parameters.model_validate_json(task.task_payload)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "payload"
            raise MalformedPayload(task.task_id, f"{where}: {first['msg']}") from None

    def read_result(self, task: Task) -> R | None:
        """Return the recorded result of a SUCCESS; None for behaviors without one."""
        if self.result is None or task.result_extended is None:
            return None
        return self.result.model_validate_json(task.result_extended)


class IllegalResult(DelegationError):
    """A task function returned nothing, or something of another type, though its behavior declares a result."""

    code = ILLEGAL_RESULT


class FunctionBehavior(Generic[P, R]):
    """TaskBehavior of a declared Behavior: runs its function, waits for its children, records result or error."""

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

    @property
    def payload_version(self) -> int:
        """The newest version of payloads that the behavior reads."""
        return self._behavior.version

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:  # noqa: ARG002 - runs anywhere
        """See TaskBehavior.prepare."""
        return INLINE

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run."""
        bound = copy(self)
        bound._tasks = self._tasks.holding(task)  # noqa: SLF001 - a copy of this object
        return bound._run(task, hand_over_at=hand_over_at)  # noqa: SLF001

    def _run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
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
        """Run the function; the result of a task with children is recorded until they have ended."""
        run.write(lambda: self._tasks.start(task.task_id, task.attempt_count))
        result = self._behavior.work(self._behavior.read_parameters(task), run)
        expected = self._behavior.result
        if expected is not None and not isinstance(result, expected):
            raise IllegalResult(f"{self._behavior.kind} must return {expected.__name__}")
        recorded = "null" if result is None or expected is None else result.model_dump_json()
        if not self._tasks.get(task.task_id).children:
            return task.evolve(pending_result=recorded)
        return run.write(lambda: self._tasks.note(task.task_id, task.attempt_count, pending_result=recorded))

    def _cancelled(self, task: Task, error: RunCancelled) -> Task:
        """End a cancelled attempt, that of a parent after its children; leave a task that another attempt holds."""
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
        """End a parent after its children: as FAILURE if one of them failed."""
        stored = [self._tasks.find(child) for child in task.children]
        open_ = [child for child in stored if child is not None and not child.is_terminal]
        if open_:
            if task.cancel_requested:
                for child in open_:
                    self._tasks.cancel(child.task_id, by=task.cancelled_by)
            text = f"{len(open_)} of {len(stored)} children have not ended"
            wait = self._wait_for(open_)
            return self._end(task, AttemptError(CHILDREN_PENDING, text, ErrorClass.WAITING), wait)
        # A child that was never created belongs to an attempt that ended first; the next attempt created another.
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
        """Return the wait until the next check of the children; each check is an attempt and adds four rows."""
        age = self._tasks.clock() - min(child.received_timestamp for child in children)
        return max(min(age / 10, _LONGEST_WAIT), self._children_wait)

    def _end(self, task: Task, error: AttemptError, wait: timedelta | None = None) -> Task:
        with suppress(LeaseLost):
            return self._tasks.end_attempt(task.task_id, task.attempt_count, error, wait=wait)
        return self._tasks.get(task.task_id)
