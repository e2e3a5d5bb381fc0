"""How an attempt at upkeep of a table ends that an error ended."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from delegation.errors import DelegationError, RunStopped
from delegation.references.errors import PassLost, ReferencesError, ReferencesNotKnown
from delegation.tasks.life.outcomes import ErrorClass
from delegation.tasks.work.work_errors import AttemptEnding, ending_of
from delegation.worksets.errors import FilesThrottled

_REFERENCES_WAIT: Final = timedelta(seconds=15)
_SHORTEST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(seconds=60)


def ending(error: Exception | RunStopped) -> AttemptEnding:
    """Return how an attempt ends that `error` ended.

    Work that waits for a pass over the catalog is handed over: its attempts do not count.
    """
    found = ending_of(error, error_class, traced=False)
    return replace(found, wait=_wait_for_references(error)) if isinstance(error, ReferencesError) else found


def error_class(error: Exception) -> ErrorClass:
    """Classify an error: permanent if an operator has to act first, otherwise transient, throttled or handed over.

    Any other error than a DelegationError is raised again: the process that drives the attempt reports and records it.
    """
    match error:
        case ReferencesNotKnown() | PassLost():
            return ErrorClass.HANDED_OVER
        case FilesThrottled():
            return ErrorClass.THROTTLED
        case DelegationError():
            return ErrorClass.TRANSIENT if error.retryable else ErrorClass.PERMANENT
        case _:
            raise error


def _wait_for_references(error: ReferencesError) -> timedelta:
    if not isinstance(error, ReferencesNotKnown) or error.wait is None:
        return _REFERENCES_WAIT
    return min(max(error.wait, _SHORTEST_WAIT), _LONGEST_WAIT)
