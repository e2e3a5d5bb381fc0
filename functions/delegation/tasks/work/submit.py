"""`Tasks`: submit a behavior's parameters, get a task id and a handle. Workers run what was submitted."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, Unpack, overload

from pydantic import BaseModel

from delegation.tasks.calls import illegal_parameters, stored_json
from delegation.tasks.life.declared import bad_schedule
from delegation.tasks.life.model import Task
from delegation.tasks.submission.handles import Call, Handle, Options, Parent, Schedule
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService

__all__ = ["Parent", "Submitted", "Tasks"]

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Submitted(Generic[V]):
    """The result of `submit`; `is_new` is False if it attached to an existing task. The `handle` has the outcome of
    this submission, to be awaited, polled or ignored."""

    task_id: str
    is_new: bool
    handle: Handle[V]


class Tasks:
    """Submits tasks. Raises StoreUnavailable when nothing was stored, OutcomeUnknown when that is not known."""

    def __init__(self, service: TaskService) -> None:
        self._service = service

    @overload
    def submit(self, behavior: Call[V], **options: Unpack[Options]) -> Submitted[V]: ...
    @overload
    def submit(self, behavior: Behavior[P, R], parameters: P, **options: Unpack[Options]) -> Submitted[R]: ...

    def submit(
        self, behavior: Behavior[Any, Any] | Call[Any], parameters: Any = None, **options: Unpack[Options]
    ) -> Submitted[Any]:
        """Store a task with these parameters, or attach to the existing one with the same key or computed id.

        Another schedule or other parameters change a recurring task, for the next run if one has begun; without a key
        or computed id it is identified by its parameters. A task that ended in FAILURE is submitted again; one that
        succeeded is complete. A child without a key or computed id gets one of its parent and its place among such
        children, so that the parent's next attempt finds it. Raises DelegationError (BAD_SCHEDULE) for an impossible
        schedule, and for a child that recurs, because it never ends; (WAITS_FOR_ITSELF) for a child that awaits its
        parent, and (ILLEGAL_PARAMETERS) for parameters that are no JSON value, such as NaN.
        """
        behavior, parameters = _unpacked(behavior, parameters)
        first, when = self._first(behavior, parameters, options)
        task, is_new = self._service.submission.create(first, rerun=options.get("rerun", False), moved=when.is_explicit)
        return Submitted(task.task_id, is_new, Handle(self._service, behavior, task.task_id, task.version))

    def submit_all(self, calls: Sequence[Call[V]], **options: Unpack[Options]) -> list[Submitted[V]]:
        """Submit many tasks as `submit` does, with a write for every 40; all have the same `options`, without key. What
        was stored before an error stays; the same call finds tasks with a computed id again."""
        rerun = options.get("rerun", False)
        prepared, moved = self._prepared(calls, options)
        stored = self._service.submission.create_all(prepared, rerun=rerun, moved=moved)
        found: list[Submitted[V]] = []
        for call, (task, is_new) in zip(calls, stored, strict=True):
            handle: Handle[V] = Handle(self._service, call.behavior, task.task_id, task.version)
            found.append(Submitted(task.task_id, is_new, handle))
        return found

    def submit_children(
        self, calls: Sequence[Call[Any]], options: Options, known: Mapping[str, Task]
    ) -> list[tuple[Task, Task]]:
        """Store children of the parent in `options`, or attach to existing ones; return them as wanted and as stored.
        Those in `known`, adopted by a former attempt, are left unchanged, even after a FAILURE."""
        firsts, moved = self._prepared(calls, options)
        missing = [first for first in firsts if first.task_id not in known]
        created = (
            self._service.submission.create_all(missing, rerun=options.get("rerun", False), moved=moved)
            if missing
            else []
        )
        stored = dict(known) | {task.task_id: task for task, _ in created}
        return [(first, stored[first.task_id]) for first in firsts]

    def _prepared(self, calls: Sequence[Call[Any]], options: Options) -> tuple[list[Task], bool]:
        """Return first versions, which their parent, if they have one, has adopted; and whether they name a time."""
        made = [self._unadopted(call.behavior, call.parameters, options) for call in calls]
        firsts, moved = [first for first, _ in made], any(when.is_explicit for _, when in made)
        parent = options.get("parent")
        if parent is None or not firsts:
            return firsts, moved
        nameless = [call.behavior.identify is None and options.get("key") is None for call in calls]
        return self._service.leases.adopt_all(
            parent.task_id, parent.attempt, list(zip(firsts, nameless, strict=True))
        ), moved

    def handle(self, behavior: Behavior[Any, Any], task_id: str) -> Handle[Any]:
        """Return a handle of a task by its id; nothing is read."""
        return Handle(self._service, behavior, task_id)

    def _first(self, behavior: Behavior[Any, Any], parameters: BaseModel, options: Options) -> tuple[Task, Schedule]:
        """Return the first version of a task, which its parent, if it has one, has adopted; and its schedule."""
        first, when = self._unadopted(behavior, parameters, options)
        parent = options.get("parent")
        if parent is not None:
            nameless = behavior.identify is None and options.get("key") is None
            first = self._service.leases.adopt(parent.task_id, parent.attempt, first, nameless=nameless)
        return first, when

    def _unadopted(
        self, behavior: Behavior[Any, Any], parameters: BaseModel, options: Options
    ) -> tuple[Task, Schedule]:
        when = Schedule.of(behavior, options, self._service.clock())
        parent, key = options.get("parent"), options.get("key")
        if parent is not None and when.recurrence:
            raise bad_schedule(f"{behavior.task_type} recurs and never ends: no parent can wait for it")
        payload = stored_json(parameters, partial(illegal_parameters, behavior.task_type))
        if when.recurrence and key is None and behavior.identify is None:
            # Each start of a process would add one that never ends.
            key = f"recurring:{hashlib.sha256(payload.encode()).hexdigest()}"
        first = self._service.submission.first(
            task_id=behavior.task_id(parameters, key),
            task_type=behavior.task_type,
            payload=payload,
            at=when.at,
            deadline=behavior.deadline,
            payload_version=behavior.version,
            **when.recurrence.fields(),
        )
        return first, when


def _unpacked(behavior: Behavior[Any, Any] | Call[Any], parameters: Any) -> tuple[Behavior[Any, Any], BaseModel]:
    return (behavior.behavior, behavior.parameters) if isinstance(behavior, Call) else (behavior, parameters)
