"""How often requests had one task run again, to slow down repeats with any key or none."""

from datetime import datetime, timedelta
from typing import Final

from delegation.tasks.life.model import Status, Task

REST: Final = timedelta(hours=1)
"""A task that ended so long ago begins a new series of repeats."""


def repeats_so_far(task: Task, now: datetime) -> int:
    """Return how often requests have run a terminal task again in the series that another repeat would continue."""
    return 0 if now - task.last_status_change_ts >= REST else task.repeats or 0


def is_repeat(task: Task, payload: str) -> bool:
    """Return whether running a terminal task again with this payload repeats it.

    A FAILURE is repeated whatever the payload. A SUCCESS is only by the same one: for another table with its id, such
    as a registered clone, it is new work.
    """
    return task.status is Status.FAILURE or task.task_payload == payload
