"""What other unfinished tasks may do to files: their published plans, and the tables that they are about.

They are found in the index of due tasks, which has every unfinished one. A task of the last second may be missing
there; it has published no plan yet.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from delegation.attempts.details import PlanDetails
from delegation.errors import printable
from delegation.operations.behaviors.task_types import table_place
from delegation.operations.orphans.behavior.names import PLAN_TASK_TYPE, TASK_TYPE
from delegation.operations.orphans.context import Claim
from delegation.tasks.life.model import Task
from delegation.tasks.work.service import TaskService

_ANY_TIME: Final = timedelta(days=36_500)
_AT_ONCE: Final = 100
_FIRST_LOOK: Final = 1_000
_OWN: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})


def claims_of(tasks: TaskService, checkpoint: Callable[[], None]) -> Iterator[Claim]:
    """Yield the claims of all unfinished tasks but those of removals of orphan files.

    `checkpoint` is called before each read, and may raise RunStopped. Raises MalformedRecord.
    """
    ids = _unfinished(tasks, checkpoint)
    for first in range(0, len(ids), _AT_ONCE):
        checkpoint()
        for task in tasks.reads.find_many(ids[first : first + _AT_ONCE]).values():
            if not task.is_terminal and task.task_type not in _OWN:
                yield from _claims(task)


def _unfinished(tasks: TaskService, checkpoint: Callable[[], None]) -> list[str]:
    limit = _FIRST_LOOK
    while True:
        checkpoint()
        found = tasks.reads.due(tasks.clock() + _ANY_TIME, limit=limit)
        if len(found) < limit:
            return list(dict.fromkeys(entry.task_id for entry in found))
        limit *= 8


def _claims(task: Task) -> Iterator[Claim]:
    table_uuid, location = table_place(task.task_payload) or ("", "")
    what = f"{printable(task.task_type)} (task {task.task_id})"
    segments = PlanDetails.of(task).plan_segments
    for segment in segments:
        yield Claim(what, table_uuid, location, segment)
    if location and not segments:
        yield Claim(what, table_uuid, location, None)
