"""How an attempt at upkeep of a table ends that an error ended."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from delegation.attempts.task_attempt import error_class
from delegation.errors import RunStopped
from delegation.references.errors import ReferencesError, ReferencesNotKnown
from delegation.tasks.work.work_errors import AttemptEnding, ending_of

_REFERENCES_WAIT: Final = timedelta(seconds=15)
_SHORTEST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(seconds=60)


def ending(error: Exception | RunStopped) -> AttemptEnding:
    """Return how an attempt ends that `error` ended.

    Work that waits for a pass over the catalog is handed over: its attempts do not count.
    """
    found = ending_of(error, error_class, traced=False)
    return replace(found, wait=_wait_for_references(error)) if isinstance(error, ReferencesError) else found


def _wait_for_references(error: ReferencesError) -> timedelta:
    if not isinstance(error, ReferencesNotKnown) or error.wait is None:
        return _REFERENCES_WAIT
    return min(max(error.wait, _SHORTEST_WAIT), _LONGEST_WAIT)
