"""Task services over stores in memory."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.hooks import DispatchQueue, NoDispatchQueue, TaskHooks
from delegation.tasks.work.service import TaskService
from tests.kit.clocks import Clock


def task_service(
    store: TaskStore | None = None,
    policies: Policies | Mapping[str, str] | None = None,
    queue: DispatchQueue | None = None,
    *,
    clock: Callable[[], datetime] | None = None,
    **hooks: Any,
) -> TaskService:
    """Return a service, by default over an empty store, with the policies of no property and no queue, at noon."""
    return TaskService(
        MemoryTaskStore() if store is None else store,
        policies if isinstance(policies, Policies) else Policies.from_properties(policies or {}),
        NoDispatchQueue() if queue is None else queue,
        clock=clock or Clock(),
        hooks=TaskHooks(**hooks),
    )
