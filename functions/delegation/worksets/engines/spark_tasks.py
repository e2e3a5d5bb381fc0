"""Functions that executors run: delete chunks, and send results and errors to the driver.

They are pickled with the job, so they contain no client and no credential; `resources` creates these on the executor.
Errors are sent as results because Spark would convert them to text.
"""

import base64
import functools
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from delegation.errors import RunStopped
from delegation.identifiers import TableIdentifier
from delegation.storage.deleter import DeletePolicy, Deleter
from delegation.worksets.chunks import Chunk
from delegation.worksets.engines.inline import Tally, Work, delete_chunks
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.shuffle import unpack
from delegation.worksets.engines.worker import prepare_worker
from delegation.worksets.errors import EngineFailed
from delegation.worksets.index import PlanIndex
from polaris_common.errors import DelegationError

Result = dict[str, Any]
"""What a task sends to the driver: plain values, or an encoded `error`."""
ENDED: Final = "ended"
"""The last result of each task has its number by this name."""


def ended_with_number(number: int, results: Iterable[Result]) -> Iterator[Result]:
    """Yield the results of a task and one that states that they are all."""
    yield from results
    yield {ENDED: number}


@dataclass(frozen=True, slots=True)
class DeleteChunks:
    """Maps numbers of `shares` (packed plan ids and chunks) to one result per chunk."""

    resources: ExecutorResources
    identifier: TableIdentifier
    policy: DeletePolicy
    plans: dict[str, str]
    shares: tuple[bytes, ...]
    task_id: str
    attempt: int
    voided: dict[str, int] = field(default_factory=dict)
    not_after: float = inf

    def __call__(self, numbers: Iterable[int]) -> Iterator[Result]:
        prepare_worker()
        plans = plans_of(self.resources)
        try:
            checkpoint = checkpoint_of(self.resources, self.task_id, self.attempt)
            for work, tally in self.deleted(plans, self._works(numbers), checkpoint):
                fields = {name: getattr(tally, name) for name in Tally.__dataclass_fields__}
                yield {"plan_id": work.index.plan_id, "chunk": work.chunk.name, "tally": fields}
        except (DelegationError, RunStopped) as error:
            yield {"error": encode_error(error)}

    def deleted(
        self, plans: Any, works: Iterable[Work], checkpoint: Callable[[], None]
    ) -> Iterator[tuple[Work, Tally]]:
        """Delete chunks; yield the result of each after it is marked, if all was deleted."""
        return delete_chunks(plans, works, _deleter(self.resources, self.identifier, self.policy), checkpoint)

    def _works(self, numbers: Iterable[int]) -> Iterator[Work]:
        for number in numbers:
            for plan_id, stored in unpack(self.shares[number]):
                index = PlanIndex.model_validate_json(self.plans[plan_id])
                yield Work(index, Chunk.model_validate_json(stored), self.voided.get(plan_id, 0), self.not_after)


# One of each per process: clients are expensive, and the deleter must keep its rate.
@functools.cache
def store_of(resources: ExecutorResources, identifier: TableIdentifier) -> Any:
    return resources.store(identifier)


@functools.cache
def plans_of(resources: ExecutorResources) -> Any:
    return resources.plans()


@functools.cache
def checkpoint_of(resources: ExecutorResources, task_id: str, attempt: int) -> Callable[[], None]:
    return resources.checkpoint(task_id, attempt)


@functools.cache
def _deleter(resources: ExecutorResources, identifier: TableIdentifier, policy: DeletePolicy) -> Deleter:
    return Deleter(store_of(resources, identifier), policy)


def try_of_task() -> str:
    """Return what distinguishes the tries of one task of a job, for work that a repeat does not do in the same way."""
    from pyspark import TaskContext  # noqa: PLC0415 - only executors have one

    here = TaskContext.get()
    return "0" if here is None else str(here.attemptNumber())


def encode_error(error: DelegationError | RunStopped) -> str:
    """Return an error as text, for `decode_error`."""
    return base64.b64encode(pickle.dumps(error)).decode()


def decode_error(text: str) -> DelegationError | RunStopped:
    """Return the error that an executor raised."""
    # Only this job's executors write it; Spark pickles functions and results between the same processes.
    error = pickle.loads(base64.b64decode(text))  # noqa: S301
    return (
        error
        if isinstance(error, DelegationError | RunStopped)
        else EngineFailed("an executor sent an unreadable error")
    )
