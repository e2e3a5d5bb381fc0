"""What becomes of a task of an earlier time; pure functions, no I/O."""

from collections.abc import Sequence
from typing import Final

from delegation.tasks.life.model import WAITING, Dispatches, Task

GAP: Final = 10_000
"""Attempts and dispatches that a recovered task skips. Of what happened after the copy nothing is known: an execution
and a job run are named after these numbers and start once for each name, and a former holder may still work."""


def newest(of_copy: Task, rows: Sequence[Task]) -> Task:
    """Return the newest version that is known of a task: of the copy, or a row that the live table still has."""
    return max((of_copy, *rows), key=lambda task: task.version)


def recovered(task: Task, nonce: str) -> Task:
    """Return the head to store: a task without an outcome becomes due, under numbers that were never used.

    A held one keeps its lease, so it is found lost when that is over. No skipped attempt counts against a limit.
    """
    if task.is_terminal:
        return task
    due = task.lease.lost_not_before if task.is_held else task.next_scheduled_run_ts
    return task.evolve(
        attempt_count=task.attempt_count + GAP,
        attempts_excused=task.attempts_excused + GAP,
        dispatches=Dispatches(count=task.dispatches.count + GAP, base=task.dispatches.base + GAP),
        admission=task.admission.evolve(admitted_ts=None) if task.status in WAITING else task.admission,
        due_at=task.due_at or due,
        revision=task.revision + 1,
        nonce=nonce,
    )
