"""The task of a tombstone: the purge of its files, submitted at most once, and then the drop of its entry."""

import uuid
from contextlib import suppress
from datetime import datetime
from typing import Final

from delegation.gateway.drop.errors import purge_not_possible
from delegation.gateway.drop.tombstones import Tombstone
from delegation.removal.details import DROPPED_TABLE
from delegation.removal.purge.requests import TablePurge
from delegation.removal.purge.task_type import DROP_TASK_TYPE
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.work.service import TaskService
from delegation.wire.requests import TableState

TOMBSTONE: Final = "tombstone"
"""The property of a task's payload that names the tombstone's record."""
RESTORED: Final = "RESTORED"
"""The error code of a purge that was taken from the queue because its table is restored."""
RESTORE_TO: Final = "restore_to"
"""The detail of such a task that has the namespace's levels and the name to restore to."""


PROPERTIES: Final = {"overlap-scan": "catalog"}
"""Options of every purge of a tombstone: a table that has the location again is in another namespace than this one.

So all namespaces are searched for it, unless the reference index has every table anyway. The others are the operator's
settings for a request that chooses nothing.
"""


def task_id_of(tombstone_id: str) -> str:
    """Return the id of a tombstone's task, the same for a repeated submission."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:{DROP_TASK_TYPE}:{tombstone_id}"))


def purge_of(record: Tombstone) -> TablePurge:
    """Return the purge of a table found at its destination; raises DropError before that."""
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
    task is not changed, whatever its status. An error before the first delete ends one whose caller waits. Raises
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
    # No process runs it for its caller, as the service's API does with a synchronous purge.
    return dispatched(tasks, task) if waits else task


def dispatched(tasks: TaskService, task: Task) -> Task:
    """Dispatch a waiting task; the sweeper or a worker takes one whose dispatch was not sent."""
    with suppress(StoreUnavailable):
        return tasks.dispatching.dispatch(task.task_id, task=task)
    return task
