"""`TaskService`: what handlers, engines and commands do with a store's tasks, over one write loop. Every change reads
the head, lets a function of `life` decide, and writes conditionally; after a lost race it repeats that, so it returns
what is stored."""

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Self

from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.life.task_type import TaskTypes
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.work.parts.dispatching import Dispatching, OperatorChanges
from delegation.tasks.work.parts.hooks import NO_HOOKS, DispatchMessages, DispatchQueue, TaskHooks
from delegation.tasks.work.parts.reads import TaskReads
from delegation.tasks.work.parts.submission import TaskSubmission
from delegation.tasks.work.parts.writes import Leases, WriteLoop


class TaskService:
    """The parts that read and change the tasks of one store. `reads` reads them, `writes` is the loop of every change,
    `submission` makes and stores them, `messages` sends their dispatches, `dispatching` serves the sweeper and
    admission, `leases` the holder of a task, and `operators` callers and operators."""

    def __init__(
        self,
        store: TaskStore,
        policies: Policies,
        queue: DispatchQueue,
        *,
        clock: Callable[[], datetime],
        hooks: TaskHooks = NO_HOOKS,
    ) -> None:
        """`clock` returns aware UTC datetimes."""
        self._draining = threading.Event()
        self._compose(
            WriteLoop(TaskReads(store, hooks.results), policies, clock, hooks, DispatchMessages(queue, clock, hooks))
        )

    def _compose(self, writes: WriteLoop) -> None:
        self.writes = writes
        self.reads = writes.reads
        self.messages = writes.messages
        self.clock = writes.clock
        self.policies = writes.policies
        self.types = writes.hooks.types
        self.pauses = writes.hooks.pauses
        self.submission = TaskSubmission(writes)
        self.dispatching = Dispatching(writes)
        self.leases = Leases(writes)
        self.operators = OperatorChanges(writes)

    def having(self, *, policies: Policies | None = None, types: TaskTypes | None = None) -> Self:
        """Return the same service with other policies or task types; `drain` stops the work of both."""
        hooks = self.writes.hooks if types is None else replace(self.writes.hooks, types=types)
        messages = replace(self.messages, hooks=hooks)
        return self._over(replace(self.writes, policies=policies or self.policies, hooks=hooks, messages=messages))

    def holding(self, held: Task) -> Self:
        """Return the same service for the holder of a task as `held` was read: LeaseLost under another lease. So an
        attempt writes nothing to a task that was removed and submitted again with equal attempt numbers."""
        return self._over(replace(self.writes, held=held))

    def holding_as(self, owner: str) -> Self:
        """Return the same service for the lease holder of this name: LeaseLost for tasks that another one holds."""
        return self._over(replace(self.writes, owner=owner))

    def _over(self, writes: WriteLoop) -> Self:
        bound = copy.copy(self)
        bound._compose(writes)  # noqa: SLF001 - a copy of this object
        return bound

    def drain(self) -> None:
        """Let runs in this process, which is about to end, be handed over at their next checkpoint."""
        self._draining.set()

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()
