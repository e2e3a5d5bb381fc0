"""Task behaviors: a task type's identity, retries, repeats and work. `TaskBehavior` is what drivers need of any type:
choose an engine, run an attempt. `Behavior` declares a type whose work is one function (Asynchronous & reliable tasks
proposal, Design); `FunctionBehavior` runs it."""

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from delegation.errors import RunCancelled
from delegation.tasks.calls import bad_behavior, illegal_result, outcome_of, require_work, stored_json
from delegation.tasks.errors import ChildrenPending, LeaseLost, MalformedPayload, waits_for_itself
from delegation.tasks.life import transitions as t
from delegation.tasks.life.declared import AWAITS, CURSOR, FORGIVEN, PLAIN_RETRY, KnownTypes, Retry
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass, parked_error
from delegation.tasks.work.attempt_context import AttemptContext, AttemptEnding, AttemptRunner, end_attempt, ending_of
from delegation.tasks.work.hooks import INLINE
from delegation.tasks.work.reads import Family, awaited, kept_result, result_fields
from delegation.tasks.work.service import TaskService
from delegation.timestamps import LONGEST_DURATION, elapsed
from polaris_common.errors import counted

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)

CHILDREN_PENDING: Final = ChildrenPending.code
CHILD_FAILED: Final = "CHILD_FAILED"
_LONGEST_WAIT: Final = timedelta(minutes=5)


class TaskBehavior(Protocol):
    """The work of one or more task types. The lease holder calls both methods, perhaps repeatedly."""

    @property
    def task_types(self) -> frozenset[str]:
        """The stored task types that this behavior runs."""

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        """Return the engine for a held task (`inline` or `spark`), None if the attempt already ended. At `hand_over_at`
        it stops long work and hands the attempt over. The caller records the choice in a write that it makes anyway.
        Errors of the work are recorded on the task; only TaskError is raised."""

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """Do the work in this process and record its outcome. At `hand_over_at` start nothing more, and hand over."""


@dataclass(frozen=True)
class BehaviorWhenNeeded:
    """A TaskBehavior that `make` creates for the first task, so that starting a process does not load its modules."""

    task_types: frozenset[str]
    make: Callable[[], TaskBehavior]
    payload_version: int = 1

    @cached_property
    def _made(self) -> TaskBehavior:
        return self.make()

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        return self._made.prepare(task, hand_over_at=hand_over_at)

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        return self._made.run(task, hand_over_at=hand_over_at)


class Behaviors(dict[str, TaskBehavior]):
    """Behaviors by task type. A task of a missing type belongs to a newer deployment and is left alone."""

    def __init__(self, behaviors: Iterable[TaskBehavior]) -> None:
        super().__init__((task_type, behavior) for behavior in behaviors for task_type in behavior.task_types)

    @property
    def task_types(self) -> KnownTypes:
        """The task types, with the newest version of their payloads (a behavior's `payload_version`, otherwise 1)."""
        return KnownTypes((task_type, getattr(behavior, "payload_version", 1)) for task_type, behavior in self.items())


class OnLost(StrEnum):
    """What happens to a task whose attempt was lost."""

    RETRY = "retry"
    FAIL = "fail"


TaskFunction = Callable[[P, Any], R | Awaitable[R | None] | None]
"""The work. It takes parameters and the context of its attempt (`Behavior.context`), and returns a result or a
coroutine, which runs in an event loop of the attempt. The code of a DelegationError that it raises is recorded."""


@dataclass(frozen=True)
class Behavior(Generic[P, R]):
    """A task type: its parameters and result (pydantic), the identity of its tasks, and its repeats.

    With `identify` the id is computed from the parameters, so a second submission attaches to the task; otherwise every
    submission is another task. `every` makes a task recur that long after each end, `cron` at a cron expression's
    times. Retries follow the task type's properties, then `retry`. An attempt may work for `timeout`; at most
    `concurrency` tasks of the type run at once. With a `result` type a run must return one. A task not done `deadline`
    after its submission fails. `version` is stored with the payload: raise it with a change of `parameters` that former
    releases cannot read. They leave such tasks alone, and this release must read the former payloads too. `context` is
    the class of the attempt that the work gets.
    """

    task_type: str
    parameters: type[P]
    work: TaskFunction[P, R]
    result: type[R] | None = None
    identify: Callable[[P], str] | None = None
    every: timedelta | None = None
    on_lost: OnLost = OnLost.RETRY
    cron: str | None = None
    retry: Retry = PLAIN_RETRY
    timeout: timedelta | None = None
    concurrency: int | None = None
    deadline: timedelta | None = None
    version: int = 1
    context: type[AttemptContext] = AttemptContext

    def __post_init__(self) -> None:
        require_work(self.task_type, self.work)
        for name, given in (("timeout", self.timeout), ("deadline", self.deadline)):
            if given is not None and not timedelta(0) < given <= LONGEST_DURATION:
                raise bad_behavior(
                    self.task_type, f"{name} must be positive and at most {LONGEST_DURATION.days} days, not {given}"
                )

    def task_id(self, parameters: P, key: str | None = None) -> str:
        """Return the id of a task with these parameters or this key; without either, a new id at each call."""
        if key is not None:
            return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-task-key:{self.task_type}:{key}"))
        if self.identify is None:
            return str(uuid.uuid4())
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-task:{self.task_type}:{self.identify(parameters)}"))

    def read_parameters(self, task: Task) -> P:
        """Return the parameters of a stored task. Raises MalformedPayload."""
        try:
            return self.parameters.model_validate_json(task.task_payload)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "payload"
            raise MalformedPayload(task.task_id, f"{where}: {first['msg']}") from None

    def read_result(self, task: Task) -> R | None:
        """Return the recorded result of a SUCCESS (`TaskService.with_result`), None for behaviors without one."""
        if self.result is None or task.result_extended is None:
            return None
        return self.result.model_validate_json(task.result_extended)


class FunctionBehavior(Generic[P, R]):
    """TaskBehavior of a declared Behavior: runs its function, waits for its children, records result or error."""

    def __init__(
        self,
        tasks: TaskService,
        behavior: Behavior[P, R],
        *,
        children_wait: timedelta = timedelta(seconds=5),
        monotonic: Callable[[], float] = elapsed,
        attempt: Callable[..., AttemptContext] | None = None,
    ) -> None:
        self._tasks = tasks
        self._behavior = behavior
        self._attempt = attempt or behavior.context
        self._children_wait = children_wait
        self._monotonic = monotonic

    @property
    def task_types(self) -> frozenset[str]:
        return frozenset({self._behavior.task_type})

    @property
    def payload_version(self) -> int:
        """The newest version of payloads that the behavior reads."""
        return self._behavior.version

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:  # noqa: ARG002 - runs anywhere
        return INLINE

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        bound = copy(self)
        bound._tasks = self._tasks.holding(task)  # noqa: SLF001 - a copy of this object
        return bound._attempted(task, hand_over_at=hand_over_at)  # noqa: SLF001

    def _attempted(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        timeout = self._behavior.timeout
        run = self._attempt(self._tasks, task, hand_over_at=hand_over_at, monotonic=self._monotonic, timeout=timeout)

        def work() -> Task:
            try:
                return self._run(task, run)
            except RunCancelled as error:
                return self._cancelled(task, error)

        classify = self._behavior.retry.error_class
        return AttemptRunner(self._tasks, lambda _task, error: ending_of(error, classify)).run(task, work)

    def _run(self, task: Task, run: AttemptContext) -> Task:
        if task.cancel_requested and task.family.children:
            return self._after_children(task)
        if task.pending_result is not None:
            return self._after_children(task) if task.family.children else self._succeed(task)
        if task.error_code == CHILDREN_PENDING:
            # The work waits for results: it runs again only when there are new ones.
            family = self._family(task)
            if family.open or family.own_ancestors:
                return self._await_results(task, family)
        try:
            task = self._work(task, run)
        except ChildrenPending:
            return self._await_results(task, self._family(self._tasks.reads.get(task.task_id)))
        # If this attempt recorded the result, the task awaits children whose outcomes the work has not read.
        awaits = task.result_attempt == task.attempt_count
        return self._after_children(task) if awaits else self._succeed(task, run.unwritten)

    def _work(self, task: Task, run: AttemptContext) -> Task:
        """Run the function. With children, the result is recorded as pending until they have ended."""
        run.write(lambda: self._tasks.leases.start(task.task_id, task.attempt_count))
        parameters = self._behavior.read_parameters(task)
        result = outcome_of(self._behavior.task_type, lambda: self._behavior.work(parameters, run), run)
        expected = self._behavior.result
        if expected is not None and not isinstance(result, expected):
            raise illegal_result(
                f"{self._behavior.task_type} must return {expected.__name__}, and returned {type(result).__name__}"
            )
        name = self._behavior.task_type
        recorded = (
            stored_json(result, lambda reason: illegal_result(f"the result of {name} is {reason}"))
            if expected is not None
            else "null"
        )
        recorded = kept_result(self._tasks.reads.results, task, recorded)
        has_children = bool(self._tasks.reads.get(task.task_id).family.children)
        if not has_children or set(self._tasks.reads.children(task.task_id)) <= run.settled:
            return task.evolve(pending_result=recorded)
        fields = {**run.unwritten, "pending_result": recorded, "result_attempt": task.attempt_count}
        forgiven = {FORGIVEN: sorted(run.forgiven) or None}
        return run.write(lambda: self._tasks.leases.note(task.task_id, task.attempt_count, details=forgiven, **fields))

    def _cancelled(self, task: Task, error: RunCancelled) -> Task:
        """End a cancelled attempt, a parent's after its children; leave a task that another attempt holds."""
        head = self._tasks.reads.get(task.task_id)
        if not head.is_held or head.attempt_count != task.attempt_count:
            return head
        if not head.family.children:
            return self._end(task, ending_of(error, self._behavior.retry.error_class).error)
        with suppress(LeaseLost):
            return self._after_children(head)
        return self._tasks.reads.get(task.task_id)

    def _succeed(self, task: Task, reported: Mapping[str, Any] = t.NOTHING) -> Task:
        fields = {**reported, **result_fields(task.pending_result)}
        cleared = dict.fromkeys((CURSOR, FORGIVEN, AWAITS))
        return self._tasks.leases.succeed(task.task_id, task.attempt_count, "done", details=cleared, **fields)

    def _await_results(self, task: Task, family: Family) -> Task:
        """End an attempt whose work needs results of children; the wait grows with the age of the open ones."""
        for ancestor in family.own_ancestors:
            circle = waits_for_itself(task.task_id, ancestor.task_id)
            return self._end(task, AttemptError(circle.code, str(circle), ErrorClass.PERMANENT))
        return self._await(task, family)

    def _await(self, task: Task, family: Family) -> Task:
        if not family.open:
            ended = AttemptError(
                CHILDREN_PENDING, "all children have ended, so the work runs again", ErrorClass.WAITING
            )
            return self._end(task, ended, timedelta(0))
        text = f"the task waits for {len(family.open)} of {counted(family.total, 'child', 'children')}"
        error = AttemptError(CHILDREN_PENDING, text, ErrorClass.WAITING)
        # Most tasks end in the order in which they were received.
        last = max(family.open, key=lambda child: (child.received_timestamp, child.task_id))
        with suppress(LeaseLost):
            return self._tasks.leases.await_child(
                task.task_id, task.attempt_count, error, last.task_id, wait=self._wait_for(family.open)
            )
        return self._tasks.reads.get(task.task_id)

    def _after_children(self, task: Task) -> Task:
        """End a parent after its children: as FAILURE if one of them failed."""
        family = self._family(task)
        if family.open:
            return self._await(task, family)
        if task.cancel_requested:
            cancelled = AttemptError(t.CANCELLED, "cancelled on request", ErrorClass.PERMANENT, after_children=True)
            return self._end(task, cancelled)
        own = parked_error(task.pending_result)
        if own is not None:
            return self._end(task, own)
        for ancestor in family.own_ancestors:
            circle = waits_for_itself(task.task_id, ancestor.task_id)
            return self._end(task, AttemptError(circle.code, str(circle), ErrorClass.PERMANENT, after_children=True))
        if family.failed:
            text = f"{family.failed} of {family.total} children failed"
            return self._end(task, AttemptError(CHILD_FAILED, text, ErrorClass.PERMANENT, after_children=True))
        return self._succeed(task)

    def _family(self, task: Task) -> Family:
        tasks = self._tasks
        return awaited(
            tasks.reads,
            task,
            create=tasks.submission.create_child,
            cancel=lambda child: tasks.operators.cancel(child.task_id, by=task.cancelled_by),
        )

    def _wait_for(self, children: Sequence[Task]) -> timedelta:
        """Return the wait until the next check if no child wakes the parent; each check is an attempt."""
        age = self._tasks.clock() - min(child.received_timestamp for child in children)
        return max(min(age, _LONGEST_WAIT), self._children_wait)

    def _end(self, task: Task, error: AttemptError, wait: timedelta | None = None) -> Task:
        return end_attempt(self._tasks, task, AttemptEnding(error, wait))
