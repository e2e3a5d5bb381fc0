"""Holding a purge back while a table that may share its files cannot be read, and letting it run again.

A held purge is RETRY_SCHEDULED, takes no place in admission, and its attempts do not count. It is tried again every
hour, and as soon as the index finds that the table is readable or gone, or that an operator exempted it.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.items import each_item
from delegation.keeping.errors import NeighbourChanged, NeighbourUnreadable
from delegation.operations.purge.behavior.names import PLAN_TASK_TYPE
from delegation.references.blocking.model import HeldPurge, freed
from delegation.references.errors import ReferencesError
from delegation.references.reading import digest
from delegation.references.store import ReferenceStore
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.work.parts.writes import WriteLoop

logger = logging.getLogger(__name__)
HELD_FOR: Final = timedelta(hours=1)
CHANGED_WAIT: Final = timedelta(minutes=1)
"""Until a purge is tried again whose neighbour lost a manifest to an expiry while it was read."""


def may_be_held(task: Task) -> bool:
    """Return whether a purge waits for a table that cannot be read.

    A dry run states at once what it found. A caller that waits is answered with 409, and after that nothing is deleted.
    """
    answered = task.synchronous and task.effects_began_ts is None
    return task.task_type != PLAN_TASK_TYPE and not answered


def held_by(
    task: Task, error: NeighbourUnreadable | NeighbourChanged, index: ReferenceStore | None, now: datetime
) -> tuple[AttemptError, timedelta] | None:
    """Return how the attempt ends and for how long the purge waits, and record what it waits for; None if it fails."""
    if index is not None and (isinstance(error, NeighbourChanged) or error.is_found):
        with suppress(ReferencesError):  # then the next attempt finds it
            _record_found(error, index, now)
    if isinstance(error, NeighbourChanged):
        return AttemptError(error.code, str(error), ErrorClass.HANDED_OVER), CHANGED_WAIT
    if not may_be_held(task):
        return None
    if index is not None and error.subject is not None:
        with suppress(ReferencesError):  # then it runs within the hour
            index.put_held(HeldPurge(task.task_id, error.subject))
    fields = {"action": "hold", "task_id": task.task_id, "table": error.who, "error_code": error.why}
    logger.warning("a table cannot be read, so a purge that it may concern waits", extra=fields)
    return AttemptError(error.code, str(error), ErrorClass.HANDED_OVER), HELD_FOR


def _record_found(error: NeighbourUnreadable | NeighbourChanged, index: ReferenceStore, now: datetime) -> None:
    """Record that a file of a table cannot be read which a pass had read, or had not: the next one reads all again.

    Until then nobody knows which else cannot be read, and the areas are those of the state that was read last. A table
    without one manifest, which an expiry may have removed, is read by the next attempt, as far as it was not before.
    """
    subject = error.subject
    if subject is None or subject.name is None:
        return
    entry = index.get(TableIdentifier(subject.catalog, subject.namespace, subject.name))
    if entry is None or (entry.problem is not None and entry.unread is None):
        return
    seen = frozenset[bytes]()
    if isinstance(error, NeighbourChanged) and entry.problem is None:
        seen = entry.seen - {digest(error.what)}
    again = replace(entry, etag=None, seen=seen, unread=None)
    if entry.problem is None:
        again = replace(again, problem=error.problem, problem_since=now, problem_location=entry.metadata_location)
    index.put(again)


def release(index: ReferenceStore, writes: WriteLoop, catalogs: Iterable[str], now: datetime) -> int:
    """Let the purges run that wait for something which holds back no purge any more; return how many."""

    def hastened(held: HeldPurge) -> bool:
        try:
            task = writes.hasten(held.task_id, NeighbourUnreadable.code)
        except TaskNotFound:
            task = None
        if task is not None and task.is_held:
            return False
        index.remove_held(held)
        return True

    found = (held for catalog in catalogs for held in freed(index, catalog, now))
    # What fails runs within the hour.
    return sum(
        one.result is True
        for one in each_item(
            found, hastened, name="references.release", clock=lambda: now, shown=lambda held: held.task_id
        )
    )
