"""Functions that executors run: delete chunks, and send results and errors to the driver as rows.

They are pickled with the job, so they contain no client and no credential; `resources` creates these on the executor.
Errors are sent as rows because Spark would convert them to text.
"""

import base64
import functools
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from delegation.errors import DelegationError
from delegation.identifiers import TableIdentifier
from delegation.storage.deleter import DeletePolicy, Deleter
from delegation.worksets.chunks import Chunk
from delegation.worksets.engines.inline import Tally, Work, delete_chunks
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.shuffle import unpack
from delegation.worksets.errors import EngineFailed
from delegation.worksets.index import PlanIndex

RESULTS = "result string"


@dataclass(frozen=True, slots=True)
class DeleteChunks:
    """Maps numbers of `shares` (packed plan ids and chunks) to one row per chunk with its result."""

    resources: ExecutorResources
    identifier: TableIdentifier
    policy: DeletePolicy
    plans: dict[str, str]
    shares: tuple[bytes, ...]
    task_id: str
    attempt: int
    voided: dict[str, int] = field(default_factory=dict)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plans = plans_of(self.resources)
        try:
            deleter = _deleter(self.resources, self.identifier, self.policy)
            checkpoint = _checkpoint(self.resources, self.task_id, self.attempt)
            for work, tally in delete_chunks(plans, self._works(batches), deleter, checkpoint):
                fields = {name: getattr(tally, name) for name in Tally.__dataclass_fields__}
                yield result({"plan_id": work.index.plan_id, "chunk": work.chunk.name, "tally": fields})
        except DelegationError as error:
            yield result({"error": encode_error(error)})

    def _works(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Work]:
        for number in numbers(batches):
            for plan_id, stored in unpack(self.shares[number]):
                index = PlanIndex.model_validate_json(self.plans[plan_id])
                yield Work(index, Chunk.model_validate_json(stored), self.voided.get(plan_id, 0))


def numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers that a task received, which select its shares."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def result(found: dict[str, Any]) -> pa.RecordBatch:
    """Return a JSON object as a row of RESULTS."""
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(found)], pa.string())], names=["result"])


# One of each per process: clients are expensive, and the deleter must keep its rate.
@functools.cache
def store_of(resources: ExecutorResources, identifier: TableIdentifier) -> Any:
    return resources.store(identifier)


@functools.cache
def plans_of(resources: ExecutorResources) -> Any:
    return resources.plans()


@functools.cache
def _checkpoint(resources: ExecutorResources, task_id: str, attempt: int) -> Callable[[], None]:
    return resources.checkpoint(task_id, attempt)


@functools.cache
def _deleter(resources: ExecutorResources, identifier: TableIdentifier, policy: DeletePolicy) -> Deleter:
    return Deleter(store_of(resources, identifier), policy)


def encode_error(error: DelegationError) -> str:
    """Return an error as text, for `decode_error`."""
    return base64.b64encode(pickle.dumps(error)).decode()


def decode_error(text: str) -> DelegationError:
    """Return the error that an executor raised."""
    # Only this job's executors write it; Spark pickles functions and rows between the same processes.
    error = pickle.loads(base64.b64decode(text))  # noqa: S301
    return error if isinstance(error, DelegationError) else EngineFailed("an executor sent an unreadable error")
