"""Checks a task's history: what holds of every task, whatever was killed."""

import itertools
from collections.abc import Iterator, Sequence

from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.transitions import ARROWS
from delegation.tasks.work.service import TaskService


def rows_of(tasks: TaskService, task_id: str) -> list[Task]:
    """Return every version of a task, oldest first."""
    rows: list[Task] = []
    while more := tasks.reads.store.history(task_id, after=rows[-1].version if rows else 0):
        rows += more
    return rows


def broken_rules(head: Task, rows: Sequence[Task]) -> Iterator[str]:
    """Check that a history has no gap and only legal transitions, counts its attempts, and ends with the head."""
    if [row.version for row in rows] != list(range(1, head.version + 1)):
        yield f"versions {[row.version for row in rows]} but the head has version {head.version}"
    if not rows or (rows[-1].status, rows[-1].attempt_count) != (head.status, head.attempt_count):
        yield "the head is not its last version"
    for before, after in itertools.pairwise(rows):
        if after.status not in ARROWS[before.status]:
            yield f"{before.status} became {after.status}"
        acquired = before.status in {Status.SUBMITTED, Status.RETRY_SCHEDULED} and after.status is not Status.FAILURE
        if after.attempt_count != before.attempt_count + acquired:
            yield f"attempt {after.attempt_count} after {before.attempt_count} from {before.status} to {after.status}"
    successes = [row.version for row in rows if row.status is Status.SUCCESS]
    expected = head.status is Status.SUCCESS
    if len(successes) != expected:
        yield f"{len(successes)} SUCCESS versions"
