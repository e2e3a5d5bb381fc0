"""Poisoned tasks among those of a drain, some of each kind: the others all end (`make drain ARGS="--poison 3"`)."""

import json
from collections import Counter
from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any, Final

from delegation.orchestration.failures import Step
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.base import Create, TaskChange
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.faults.drain.load import Load
from tests.faults.drain.site import DispatchedTasks, Poisoned

KINDS: Final = ("unreadable", "unwritable", "not-started", "raises", "lost")
"""A head of another format; one that the store cannot change; no execution starts; the work raises; it never ends."""
_DELIVERIES: Final = 5


def poisoned_loads(count: int) -> list[Load]:
    """Return as many tasks of each kind, in the lane of the most good ones, as early as the first of these."""
    return [Load("sales", "lake", count, every=0.5, poison=kind) for kind in KINDS]


class PoisonedTasks(DispatchedTasks):
    """A deployment with poisoned tasks, which their payloads name."""

    def __init__(self, store: MemoryTaskStore, policies: Policies, *, lambdas: int) -> None:
        super().__init__(store, policies, lambdas=lambdas)
        self.kinds: dict[str, str] = {}
        self._apply, self._deliveries = store.apply, Counter[str]()
        store.apply = self._applied  # type: ignore[method-assign]
        self._prepare, self._working = self.behavior.prepare, self.behavior.working
        self.behavior.prepare = self._prepared  # type: ignore[method-assign]
        self.behavior.working = self._worked  # type: ignore[method-assign]

    def is_good(self, task: Task) -> bool:
        return task.task_id not in self.kinds

    def _applied(self, change: TaskChange) -> Task:
        task_id = change.after.task_id
        if isinstance(change, Create):
            kind = json.loads(change.after.task_payload).get("poison")
            created = self._apply(change)
            if kind:
                self.kinds[task_id] = kind
            if kind == "unreadable":
                self.store.make_unreadable(task_id)  # type: ignore[attr-defined]
            return created
        self._refuse(task_id, "unwritable")
        return self._apply(change)

    def _refuse(self, task_id: str, kind: str) -> None:
        if self.kinds.get(task_id) == kind:
            raise Poisoned(kind)

    def _prepared(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        self._refuse(task.task_id, "raises")
        return self._prepare(task, hand_over_at=hand_over_at)

    def _worked(self, step: Step) -> Generator[timedelta, None, None]:
        if self.kinds.get(step.task_id) != "lost":
            yield from self._working(step)

    def start_execution(self, *, name: str, input: str, **more: str) -> None:  # noqa: A002
        self._refuse(json.loads(input)["task_id"], "not-started")
        super().start_execution(name=name, input=input, **more)

    def dispatch(self, batch: list[str]) -> list[str]:
        """What the dispatcher's handler does: a failed message is delivered again, five times in all."""
        failed = []
        for body in batch:
            try:
                self.inbox.take(body)
            except Poisoned:
                self._deliveries[body] += 1
                failed += [body] if self._deliveries[body] < _DELIVERIES else []
        self.inbox.admit()
        return failed

    def report(self) -> str:
        """Return what became of the poisoned tasks."""
        found: Any = {kind: Counter[str]() for kind in KINDS}
        for entry in self.store.heads(limit=10**9).entries:
            kind = self.kinds.get(entry.task_id)
            if kind:
                found[kind][str(entry.status) if isinstance(entry, Task) else "UNREADABLE"] += 1
        return "; ".join(f"{kind} {dict(counts)}" for kind, counts in found.items())
