"""Changing a task service that other objects of a test hold already."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from delegation.tasks.work.service import TaskService


def change_service(
    tasks: TaskService,
    *,
    store: Any = None,
    queue: Any = None,
    policies: Any = None,
    clock: Callable[[], datetime] | None = None,
    **hooks: Any,
) -> None:
    """Give a service another store, queue, policies, clock or hooks; copies that were made before keep theirs."""
    writes = tasks.writes
    known = replace(writes.hooks, **hooks)
    clock = clock or writes.clock
    tasks._compose(
        replace(
            writes,
            reads=replace(writes.reads, store=store or writes.reads.store, results=known.results),
            policies=policies or writes.policies,
            clock=clock,
            hooks=known,
            messages=replace(writes.messages, queue=queue or writes.messages.queue, clock=clock, hooks=known),
        )
    )
