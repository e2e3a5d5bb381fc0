"""How an attempt at work on a table ends that an error ended, and what follows attempts that are killed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from delegation.attempts.details import PlanDetails
from delegation.attempts.task_attempt import error_class
from delegation.errors import GuardRefused, RunStopped
from delegation.keeping.errors import NeighbourChanged, NeighbourUnreadable
from delegation.operations.behaviors.sources import Hold
from delegation.references.errors import ReferencesError, ReferencesNotKnown
from delegation.tasks.life.hand_overs import MEASURED
from delegation.tasks.life.model import Task
from delegation.tasks.work.work_errors import AttemptEnding, ending_of
from polaris_common.errors import DelegationError

_REFERENCES_WAIT: Final = timedelta(seconds=15)
"""Until work is tried again that waits for a pass of another process, if it is not known how long that takes."""
KILLED_TWICE: Final = 2
"""Attempts killed without progress between them after which no other one in a function is tried."""
_SHORTEST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class TableEndings:
    """Translates the error that ended an attempt at work on a table into how it ends.

    `hold` returns how it ends if it waits for another table, and for how long; attempts of the type `unheld` wait for
    none. Work that waits for a pass over the catalog is handed over: its attempts do not count. `advice` is what the
    operation adds to an error of a class.
    """

    hold: Hold
    unheld: str | None = None
    advice: Mapping[type[DelegationError], str] = field(default_factory=dict)

    def __call__(self, task: Task, error: Exception | RunStopped) -> AttemptEnding:
        """Return how the attempt ends; raise errors that are none of the service's own."""
        if isinstance(error, (NeighbourUnreadable, NeighbourChanged)) and task.task_type != self.unheld:
            held = self.hold(task, error)
            if held is not None:
                return AttemptEnding(*held)
        found = ending_of(error, error_class, traced=False)
        for kind, advice in self.advice.items():
            if isinstance(error, kind):
                found = replace(found, error=replace(found.error, summary=f"{found.error.summary}{advice}"))
        return replace(found, wait=_wait_for_references(error)) if isinstance(error, ReferencesError) else found


def _wait_for_references(error: ReferencesError) -> timedelta:
    if not isinstance(error, ReferencesNotKnown) or error.wait is None:
        return _REFERENCES_WAIT
    return min(max(error.wait, _SHORTEST_WAIT), _LONGEST_WAIT)


def check_killed(task: Task, *, has_spark: bool) -> None:
    """Raise GuardRefused (TOO_LARGE_FOR_FUNCTION) if attempts are killed and the next one would run in a function."""
    if task.killed.count < KILLED_TWICE or has_spark:
        return
    raise too_large(task, "set delegation:emr-subnet-ids, so that Spark runs it, or give its process more memory")


def too_large(task: Task, action: str) -> GuardRefused:
    """Return the error with the size that the attempts measured before they were killed."""
    details = PlanDetails.of(task)
    listed = task.details.get("files_listed")
    sizes = [
        str(task.details[MEASURED]) if MEASURED in task.details else "",
        f"{listed} files listed" if listed else "",
        f"{details.files_planned} files planned" if details.files_planned else "",
    ]
    measured = ", ".join(filter(None, sizes)) or "nothing was measured before the metadata of the table was read"
    return GuardRefused(
        f"{task.killed.count} attempts were killed without progress between them, as processes are whose memory or "
        f"time runs out ({measured}); {action}, and retry",
        code="TOO_LARGE_FOR_FUNCTION",
    )
