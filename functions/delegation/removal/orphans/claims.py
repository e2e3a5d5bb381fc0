"""What other unfinished tasks may do to files: their published plans and their tables. They are found in the index of
due tasks, which has every unfinished task. A task of the last second may be missing, but it has published no plan yet.
An unreadable task holds only the removals of its catalog."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from delegation.removal.details import PlanDetails, catalog_of, is_without_table, table_place
from delegation.removal.orphans.context import Claim
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE, TASK_TYPE
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.work.service import TaskService
from polaris_common.errors import printable

_ANY_TIME: Final = timedelta(days=36_500)
_AT_ONCE: Final = 100
_FIRST_LOOK: Final = 1_000
_OWN: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})


def claims_of(tasks: TaskService, catalogs: Collection[str], checkpoint: Callable[[], None]) -> Iterator[Claim]:
    """Yield the claims of all unfinished tasks except removals of orphan files. An unreadable task claims its whole
    catalog if that is one of `catalogs`, and everything if its catalog is unreadable too. `checkpoint` is called before
    each read, and may raise RunStopped."""
    ids = _unfinished(tasks, checkpoint)
    for first in range(0, len(ids), _AT_ONCE):
        checkpoint()
        some = ids[first : first + _AT_ONCE]
        try:
            tasks_by_id = tasks.reads.find_many(some)
        except MalformedRecord:
            yield from _one_by_one(tasks, some, catalogs, checkpoint)
        else:
            for task in tasks_by_id.values():
                yield from _claims(task, catalogs)


def _one_by_one(
    tasks: TaskService, ids: Sequence[str], catalogs: Collection[str], checkpoint: Callable[[], None]
) -> Iterator[Claim]:
    for task_id in ids:
        checkpoint()
        try:
            task = tasks.reads.find(task_id)
        except MalformedRecord as error:
            if error.stored.get("task_type") not in _OWN:
                yield from _unread(task_id, str(error), _payload(tasks, task_id, error.stored), error.stored, catalogs)
        else:
            yield from () if task is None else _claims(task, catalogs)


def _payload(tasks: TaskService, task_id: str, stored: Mapping[str, Any]) -> Any:
    """Return the payload of an unreadable record, or that of the task's first version if it shows no table."""
    payload = stored.get("task_payload")
    if table_place(payload) is None:
        with suppress(MalformedRecord):
            first = tasks.reads.store.get_version(task_id, 1)
            return payload if first is None else first.task_payload
    return payload


def _unread(
    task_id: str, reason: str, payload: Any, stored: Mapping[str, Any], catalogs: Collection[str]
) -> Iterator[Claim]:
    """Yield the claim of an unreadable task. Without a table and a plan it has none."""
    what = f"task {printable(task_id)} cannot be read ({printable(reason)})"
    if is_without_table(payload) and stored.get("plan_segments") == []:
        return
    catalog = catalog_of(payload)
    table_uuid, location = table_place(payload) or ("", "")
    yield Claim(what, table_uuid, "" if not catalog or catalog in catalogs else location, None, unread=True)


def _unfinished(tasks: TaskService, checkpoint: Callable[[], None]) -> list[str]:
    limit = _FIRST_LOOK
    while True:
        checkpoint()
        entries = tasks.reads.due(tasks.clock() + _ANY_TIME, limit=limit)
        if len(entries) < limit:
            return list(dict.fromkeys(entry.task_id for entry in entries))
        limit *= 8


def _claims(task: Task, catalogs: Collection[str]) -> Iterator[Claim]:
    if task.is_terminal or task.task_type in _OWN:
        return
    try:
        segments = PlanDetails.of(task).plan_segments
    except MalformedRecord as error:
        yield from _unread(task.task_id, str(error), task.task_payload, {}, catalogs)
        return
    table_uuid, location = table_place(task.task_payload) or ("", "")
    what = f"{printable(task.task_type)} (task {task.task_id})"
    for segment in segments:
        yield Claim(what, table_uuid, location, segment)
    if location and not segments:
        yield Claim(what, table_uuid, location, None)
