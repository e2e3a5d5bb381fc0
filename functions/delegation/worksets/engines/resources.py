"""Resources of Spark executors: sent without secrets, they create clients and credentials in each process."""

from collections.abc import Callable
from typing import Protocol

from delegation.identifiers import TableIdentifier
from delegation.storage.base import ObjectStore, PlanStore


class ExecutorResources(Protocol):
    """Creates the stores of an executor process. Picklable and hashable; methods are called once per process."""

    def __hash__(self) -> int: ...

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        """Return the store of a table's files."""
        ...

    def plans(self) -> PlanStore:
        """Return the store of plans."""
        ...

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        """Return a cheap function to call before each batch, which checks whether the attempt may continue.

        Both raise RunStopped or another error if it may not.
        """
        ...


def no_checkpoint() -> None:
    """Do nothing: the checkpoint of work without a lease."""
