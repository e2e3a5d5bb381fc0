"""The sweep over the due index."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from delegation.tasks.errors import MalformedRecord, TaskError
from delegation.tasks.life import outcomes
from delegation.tasks.life.kinds import runs
from delegation.tasks.life.model import Task
from delegation.tasks.work.claim import LeftAlone
from delegation.tasks.work.service import TaskService


@dataclass(frozen=True, slots=True)
class Swept:
    """What the sweeper did with one due entry; `error` is set when the store or the queue failed for it.

    `unsettled`: the attempt is lost, but its external job could not be ended.
    """

    before: Task | None
    after: Task | None
    error: TaskError | None = None
    unsettled: bool = False


def sweep(
    tasks: TaskService,
    kinds: Collection[str],
    *,
    deadline: datetime,
    clock: Callable[[], datetime],
    limit: int = 1_000,
    left_alone: LeftAlone | None = None,
) -> Iterator[Swept]:
    """Reconcile every due task, the oldest first, until `deadline`; an error of one task does not stop the others.

    A task of an unknown kind is skipped: a newer deployment runs it. It is remembered in `left_alone`, and so is a task
    that cannot be read, which is an error once. Each read of the index asks for `limit` entries more than those that
    stay due (skipped or failed), so that these never hide the others.
    """
    left_alone = LeftAlone() if left_alone is None else left_alone
    seen: set[str] = set()
    staying = 0
    while True:
        entries = tasks.due(clock(), limit=staying + limit)
        fresh = [entry for entry in entries if entry.task_id not in seen]
        for entry in fresh:
            if clock() >= deadline:
                return
            seen.add(entry.task_id)
            if entry in left_alone:
                staying += 1
                continue
            before = None
            try:
                before = tasks.find(entry.task_id)
                if before is None or not runs(kinds, before):
                    left_alone.add(entry)
                    staying += 1
                    continue
                after = tasks.reconcile(entry.task_id)
                staying += after.due_at is not None and after.due_at <= clock()
                yield Swept(before, after, unsettled=outcomes.is_lost(after, clock()))
            except TaskError as error:
                if isinstance(error, MalformedRecord):
                    left_alone.add(entry)
                staying += 1
                yield Swept(before, None, error)
        if not fresh or len(entries) < limit:
            return
