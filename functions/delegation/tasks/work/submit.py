"""`Tasks`: submit a behavior's parameters, get a task id and a completion. Workers run what was submitted."""

import asyncio
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from delegation.backoff import pauses
from delegation.tasks.errors import AwaitedTaskFailed
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0


class Completion(Generic[P, R]):
    """The outcome of one submission, to be awaited, polled or ignored.

    Returns the typed result of SUCCESS (None for behaviors without one) and raises AwaitedTaskFailed for FAILURE.
    """

    def __init__(self, tasks: TaskService, behavior: Behavior[P, R], task_id: str, since_version: int) -> None:
        self._tasks = tasks
        self._behavior = behavior
        self.task_id = task_id
        self.since_version = since_version

    def poll(self) -> Task | None:
        """Return the terminal version that is this outcome, None while there is none; TaskNotFound if deleted."""
        return self._tasks.outcome(self.task_id, self.since_version, head=self._tasks.get(self.task_id))

    def wait(self, timeout: timedelta | None = None, *, sleep: Callable[[float], None] = time.sleep) -> R | None:
        """Block until the outcome; TimeoutError after `timeout`."""
        end = None if timeout is None else self._tasks.clock() + timeout
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            outcome = self.poll()
            if outcome is not None:
                return self._result(outcome)
            if end is not None and self._tasks.clock() >= end:
                raise TimeoutError(f"task {self.task_id} has no outcome yet")
            sleep(pause)
        return None

    def __await__(self) -> Generator[Any, None, R | None]:
        return self._awaited().__await__()

    async def _awaited(self) -> R | None:
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            outcome = await asyncio.to_thread(self.poll)
            if outcome is not None:
                return self._result(outcome)
            await asyncio.sleep(pause)
        return None

    def _result(self, outcome: Task) -> R | None:
        if outcome.status is Status.FAILURE:
            raise AwaitedTaskFailed(self.task_id, outcome.error_code or "", outcome.result_summary or "")
        return self._behavior.read_result(outcome)


@dataclass(frozen=True, slots=True)
class Submitted(Generic[P, R]):
    """The result of `submit`; `is_new` is False when it attached to an existing task."""

    task_id: str
    completion: Completion[P, R]
    is_new: bool


@dataclass(frozen=True, slots=True)
class Parent:
    """The attempt that a child is submitted for."""

    task_id: str
    attempt: int


class Tasks:
    """Submits tasks. Raises StoreUnavailable when nothing was stored, OutcomeUnknown when that is not known."""

    def __init__(self, service: TaskService) -> None:
        self._service = service

    def submit(self, behavior: Behavior[P, R], parameters: P, *, parent: Parent | None = None) -> Submitted[P, R]:
        """Store a task with these parameters, or attach to the existing one.

        A task with a deterministic id that ended in FAILURE is submitted again; one that succeeded is complete. With
        `parent` the task is its child: the parent ends after it. ValueError for a child that recurs, because it never
        ends.
        """
        if parent is not None and behavior.every is not None:
            raise ValueError(f"{behavior.kind} recurs and never ends: no parent can wait for it")
        first = self._first(behavior, parameters, parent)
        if parent is not None:
            self._service.adopt(parent.task_id, parent.attempt, first.task_id)
        task, is_new = self._service.create(first)
        completion = Completion(self._service, behavior, task.task_id, task.version)
        return Submitted(task.task_id, completion, is_new)

    def start_here(self, behavior: Behavior[P, R], parameters: P, owner: str, lease: Lease) -> Task | None:
        """Store a task that this process runs at once: its first status is RUNNING, so no other process acquires it.

        None when a task of this id exists (Asynchronous & reliable tasks proposal, Optimization for locally created
        tasks).
        """
        return self._service.start_held(self._first(behavior, parameters, None), owner, lease)

    def _first(self, behavior: Behavior[P, R], parameters: P, parent: Parent | None) -> Task:
        return self._service.first(
            task_id=behavior.task_id(parameters),
            task_type=behavior.kind,
            payload=parameters.model_dump_json(),
            deadline=behavior.deadline,
            payload_version=behavior.version,
            parent_id=parent.task_id if parent else None,
            recurrence_seconds=None if behavior.every is None else int(behavior.every.total_seconds()),
        )
