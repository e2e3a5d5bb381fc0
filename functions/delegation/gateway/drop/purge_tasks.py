"""The tasks that purge tombstones: their ids and payloads, their submission, and how a restore ends them."""

import uuid
from contextlib import suppress
from datetime import datetime
from typing import Final

from delegation.gateway.drop.errors import purge_not_possible
from delegation.gateway.drop.tombstones import Tombstone
from delegation.identifiers import TableIdentifier
from delegation.removal.details import DROPPED_TABLE
from delegation.removal.purge.requests import TablePurge
from delegation.removal.purge.task_type import DROP_TASK_TYPE
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.work.service import TaskService
from delegation.wire.requests import TableState

TOMBSTONE: Final = "tombstone"
"""The property of a task's payload that names the tombstone's record."""
RESTORED: Final = "RESTORED"
"""The error code of a purge that a restore ended before it started."""
RESTORE_TO: Final = "restore_to"
"""The detail of such a task: the namespace's levels and the name to restore to."""

PROPERTIES: Final = {"overlap-scan": "catalog"}
"""Options of every purge of a tombstone. A table that was created again at the location is in another namespace than
the tombstone, so all namespaces are searched for it unless the reference index has every table anyway. The other
options are the operator's defaults."""


def task_id_of(tombstone_id: str) -> str:
    """Return the id of a tombstone's task, the same for a repeated submission."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:{DROP_TASK_TYPE}:{tombstone_id}"))


def purge_of(record: Tombstone) -> TablePurge:
    """Return the purge of a table found at its destination. Raises DropError before that."""
    if record.table_uuid is None or record.metadata_location is None or record.location is None:
        raise purge_not_possible(f"the tombstone {record.tombstone_id} is {record.state}: its table is not known")
    return TablePurge(
        realm=record.realm,
        identifier=record.destination,
        table=TableState(
            metadata_location=record.metadata_location,
            location=record.location,
            table_uuid=record.table_uuid,
            format_version=record.format_version or 1,
        ),
        properties={**PROPERTIES, TOMBSTONE: record.tombstone_id, DROPPED_TABLE: str(record.identifier)},
        requested_at=record.created_at,
    )


def payload_of(record: Tombstone) -> str:
    """Return the payload of a tombstone's task: a purge's, with the tombstone's id among its properties."""
    return purge_of(record).to_payload()


def submit(tasks: TaskService, record: Tombstone, *, at: datetime | None = None) -> Task:
    """Store and dispatch the task of a RENAMED tombstone unless it exists; it runs after the grace period. An existing
    task is not changed, whatever its status. If a caller waits, an error before the first delete ends the task. Raises
    DropError (PURGE_NOT_POSSIBLE) and the errors of the task store."""
    task_id = task_id_of(record.tombstone_id)
    stored = tasks.reads.find(task_id)
    if stored is not None:
        return stored
    at = at or record.grace_until or tasks.clock()
    waits = record.waits and at <= tasks.clock()
    first = tasks.submission.first(
        task_id=task_id,
        task_type=DROP_TASK_TYPE,
        payload=payload_of(record),
        at=at,
        synchronous=waits,
        requested_by=Caller(client_id=record.caller.partition(":")[2]),
    )
    task, _ = tasks.submission.create(first)
    # Unlike the API with a synchronous purge, no process runs it for its caller.
    return dispatched(tasks, task) if waits else task


def dispatched(tasks: TaskService, task: Task) -> Task:
    """Dispatch a waiting task; if that fails, the sweeper or a worker takes it."""
    with suppress(StoreUnavailable):
        return tasks.dispatching.dispatch(task.task_id, task=task)
    return task


def ended_by_restore(task: Task, now: datetime, target: TableIdentifier) -> Task:
    """Return the FAILURE of a purge that no attempt has started since its submission; any other task unchanged."""
    if task.status is not Status.SUBMITTED or task.effects_began_ts is not None:
        return task
    noted = task.with_details({RESTORE_TO: [*target.namespace, target.name]})
    return t.fail(noted, now, code=RESTORED, summary=f"no attempt had begun; the table is restored to {target}")


def restore_target(record: Tombstone, task: Task) -> TableIdentifier | None:
    """Return where the table of a purge that a restore ended is to be restored to, None for any other purge."""
    levels = task.details.get(RESTORE_TO)
    if task.error_code != RESTORED or not isinstance(levels, list | tuple) or len(levels) < 2:
        return None
    return TableIdentifier(record.catalog, tuple(map(str, levels[:-1])), str(levels[-1]))


def due_now(task: Task, now: datetime) -> Task:
    """Return a waiting task as due now; any other task unchanged."""
    if task.status is not Status.SUBMITTED or task.next_scheduled_run_ts is None or task.next_scheduled_run_ts <= now:
        return task
    return task.evolve(next_scheduled_run_ts=now, due_at=now)
