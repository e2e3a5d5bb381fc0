"""The work of a DelegatedPurge: submit the purge, wait for its outcome without a worker, drop the table. Its cursor
holds the service's task, so that a later attempt continues there: `submission` numbers the requests of one task,
`delegation_task_id` is the answer to the last."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel

from delegation.client.client import DelegationClient
from delegation.client.errors import (
    TASK_EXISTS,
    Conflict,
    DelegatedTaskFailed,
    DelegationClientError,
    DelegationDelayed,
    NotFound,
    NothingPurged,
    PurgedNotDropped,
    TokenUnavailable,
)
from delegation.client.executor import PurgedTable, TableCatalog, drop_if_unchanged
from delegation.errors import RunCancelled
from delegation.polaris.model import LoadedTable
from delegation.tasks.authoring import Context
from delegation.tasks.errors import RunPostponed
from delegation.tasks.life.declared import CURSOR
from delegation.tasks.life.model import Task
from delegation.tasks.work.behaviors import Behavior
from delegation.wire.requests import TableState
from delegation.wire.tables import PurgeRequest
from delegation.wire.tasks import TaskRecord
from polaris_common.errors import DelegationError

TASK_TYPE: Final = "polaris.delegated_purge"
SHORTEST_WAIT: Final = timedelta(seconds=5)
LONGEST_WAIT: Final = timedelta(minutes=5)


class PurgeOrder(PurgeRequest):
    table: TableState


class PurgeOutcome(BaseModel):
    """What the service's task deleted; the table is no longer in the catalog."""

    delegation_task_id: str
    files_deleted: int
    bytes_deleted: int


def order_of(realm: str, table: LoadedTable, properties: Mapping[str, str]) -> PurgeOrder:
    """Return the parameters for a table that was just loaded."""
    return PurgeOrder(realm=realm, identifier=table.identifier, table=TableState.of(table), properties=dict(properties))


def purge_task(
    client: DelegationClient, catalog: TableCatalog, clock: Callable[[], datetime]
) -> Behavior[PurgeOrder, PurgeOutcome]:
    """Return the behavior. The client sends each request once, because the task's own retries follow."""
    work = _Work(client.without_repeats(), catalog, clock)
    return Behavior(TASK_TYPE, PurgeOrder, work, result=PurgeOutcome, identify=_identity, context=Context)


def _identity(order: PurgeOrder) -> str:
    """Return one text per table and state: after another commit a drop is another task; the service's is the same."""
    name = order.identifier
    parts = [order.realm, name.catalog, *name.namespace, name.name, order.table.table_uuid.lower()]
    return json.dumps([*parts, order.table.metadata_location])


@dataclass(frozen=True, slots=True)
class _Work:
    """The TaskFunction. An earlier attempt may have done each step and been lost before recording it."""

    client: DelegationClient
    catalog: TableCatalog
    clock: Callable[[], datetime]

    def __call__(self, order: PurgeOrder, context: Context) -> PurgeOutcome:
        place = context.cursor or {}
        number: int = place.get("submission", 1)
        task_id: str | None = place.get("delegation_task_id")
        try:
            context.checkpoint()
            if task_id is None:
                task_id = self._submitted(order, f"{context.task.task_id}.{number}", context.task.task_id)
                _remember(context, number, task_id)
            return self._finished(order, context, number, task_id)
        except RunCancelled:
            self._cancel(task_id)
            raise
        except DelegationError as error:
            if _may_pass(error):
                raise DelegationDelayed(str(error)) from error
            raise

    def _submitted(self, order: PurgeOrder, key: str, correlation_id: str) -> str:
        purge = order.model_copy(update={"correlation_id": correlation_id})
        return self.client.submit(purge, key=key).delegation_task_id

    def _finished(self, order: PurgeOrder, context: Context, number: int, task_id: str) -> PurgeOutcome:
        """Return the outcome once the service's task has ended. Raises RunPostponed until then."""
        try:
            task = self.client.get(task_id)
        except NotFound:
            # The service keeps ended tasks for a limited time; submitting the purge again is safe.
            _remember(context, number + 1, None)
            raise DelegationDelayed(
                f"the service no longer knows task {task_id}, so the purge will be submitted again"
            ) from None
        context.report(
            done=task.files_deleted, total=task.files_planned, unit="files", details={"delegation_task_id": task_id}
        )
        if not task.is_terminal:
            raise RunPostponed(
                f"waiting for task {task_id} of the Delegation Service, which is {task.status}", self._wait(context)
            )
        if not task.succeeded:
            # A person who retries this task submits the purge again, with another key.
            _remember(context, number + 1, None)
            raise DelegatedTaskFailed(task)
        if task.files_deleted == 0:
            raise NothingPurged(str(order.identifier), task_id)
        context.checkpoint()
        self._drop(order, task)
        return PurgeOutcome(
            delegation_task_id=task_id, files_deleted=task.files_deleted, bytes_deleted=task.bytes_deleted
        )

    def _drop(self, order: PurgeOrder, task: TaskRecord) -> None:
        table = order.table
        purged = PurgedTable(order.identifier, table.table_uuid.lower(), table.metadata_location, task.task_id)
        drop_if_unchanged(self.catalog, purged, lambda: task.purged_metadata_location)

    def _cancel(self, task_id: str | None) -> None:
        """Request the service to stop; if it cannot be reached now, it finishes its task."""
        if task_id is not None:
            with suppress(DelegationClientError):
                self.client.cancel(task_id)

    def _wait(self, context: Context) -> timedelta:
        """Return the wait until the next read of the service's task: a tenth of this task's age."""
        received = context.task.received_timestamp
        return max(min((self.clock() - received) / 10, LONGEST_WAIT), SHORTEST_WAIT)


def service_task_of(task: Task) -> str | None:
    """Return the service's task that one of these tasks waits for; None before it is accepted."""
    text = task.details.get(CURSOR)
    task_id = None if text is None else json.loads(text).get("delegation_task_id")
    return task_id if isinstance(task_id, str) else None


def _remember(context: Context, number: int, task_id: str | None) -> None:
    """Write now where a later attempt continues."""
    cursor: dict[str, Any] = {"submission": number} | ({} if task_id is None else {"delegation_task_id": task_id})
    context.checkpoint(cursor=cursor)
    context.save()
    if context.task.cancel_requested:  # found by the write above
        raise RunCancelled(context.task.task_id)


def _may_pass(error: DelegationError) -> bool:
    """Return whether the same step may succeed later, for errors whose class alone does not state it."""
    match error:
        case TokenUnavailable() | PurgedNotDropped():
            return isinstance(error.__cause__, DelegationError) and error.__cause__.retryable
        case Conflict():
            return error.error_code == TASK_EXISTS  # another purge of the table runs; this one waits for its end
        case _:
            return False
