"""What kinds of tasks this deployment can run: the seam between a task's life and its work."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Protocol

from delegation.tasks.model import Task


class TaskBehavior(Protocol):
    """One kind of work. Both methods are called by whoever holds the task, and may be repeated."""

    @property
    def kinds(self) -> frozenset[str]:
        """The stored task types that this behavior runs."""

    def prepare(self, task: Task) -> str | None:
        """Choose the engine for a held task (`inline` or `spark`), None when the attempt ended already.

        Errors of the work are recorded on the task, not raised; TaskError is.
        """

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """Do the work in this process and record its outcome; at `hand_over_at` start nothing more, and hand over."""


class Behaviors(Mapping[str, TaskBehavior]):
    """Behaviors by task type. A type that is not here belongs to a newer deployment and is left alone."""

    def __init__(self, behaviors: Iterable[TaskBehavior]) -> None:
        self._by_kind = {kind: behavior for behavior in behaviors for kind in behavior.kinds}

    def __getitem__(self, kind: str) -> TaskBehavior:
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_kind)

    def __len__(self) -> int:
        return len(self._by_kind)
