"""Where the worker processes of an engine get their stores from: built anew in each process, never sent to one.

A value of this travels to executors without secrets; what it opens there (clients, vended credentials) stays there.
"""

from collections.abc import Callable
from typing import Protocol

from delegation.identifiers import TableIdentifier
from delegation.storage.base import ObjectStore, PlanStore


class ExecutorResources(Protocol):
    """Picklable and hashable; each method builds something for the process it is called in, once."""

    def __hash__(self) -> int: ...

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        """Reach a table's files."""
        ...

    def plans(self) -> PlanStore:
        """Reach the service's own bucket."""
        ...

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        """Whether an attempt may go on: what it gives is called before each batch, and is cheap.

        Both raise AttemptLost, AttemptCancelled or AttemptHandedOver when no other batch may begin.
        """
        ...


def no_checkpoint() -> None:
    """The checkpoint of work that nobody else can take over."""
