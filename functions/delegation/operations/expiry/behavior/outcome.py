"""What the end of an attempt at an expiry writes to its task."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from delegation.attempts.details import changed
from delegation.errors import DelegationError, RunStopped, counted
from delegation.keeping.errors import NeighbourChanged, NeighbourUnreadable
from delegation.operations.expiry.behavior.details import ExpiryDetails
from delegation.operations.expiry.context import ExpiryResult
from delegation.references.errors import PassLost, ReferencesError, ReferencesNotKnown
from delegation.tasks.life.outcomes import ErrorClass
from delegation.tasks.work.work_errors import AttemptEnding, ending_of
from delegation.worksets.errors import FilesThrottled

HELD_FOR: Final = timedelta(hours=1)
"""Until an expiry is tried again that waits for a table which cannot be read."""
_CHANGED_WAIT: Final = timedelta(minutes=1)
_REFERENCES_WAIT: Final = timedelta(seconds=15)
_SHORTEST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(seconds=60)


def ending(error: Exception | RunStopped, *, is_dry_run: bool) -> AttemptEnding:
    """Return how an attempt ends that an error ended, with how long the task waits if its retry policy does not say.

    An expiry that waits for another table, or for a pass over the catalog, is handed over: its attempts do not count.
    """
    found = ending_of(error, partial(_error_class, is_dry_run=is_dry_run), traced=False)
    match error:
        case NeighbourChanged():
            return replace(found, wait=_CHANGED_WAIT)
        case NeighbourUnreadable() if not is_dry_run:
            return replace(found, wait=HELD_FOR)
        case ReferencesNotKnown() | PassLost():
            return replace(found, wait=_wait_for_references(error))
        case _:
            return found


def _error_class(error: Exception, *, is_dry_run: bool) -> ErrorClass:
    match error:
        case NeighbourUnreadable() if not is_dry_run:
            return ErrorClass.HANDED_OVER
        case NeighbourChanged() | ReferencesNotKnown() | PassLost():
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


def success(result: ExpiryResult) -> tuple[str, dict[str, Any]]:
    """Return the summary and the details of a task that ends with SUCCESS."""
    findings = [{"code": finding.code, "count": finding.count} for finding in result.findings] or ()
    snapshots, refs = counted(len(result.snapshot_ids), "snapshot"), counted(len(result.refs), "ref")
    match result.status:
        case "NOTHING":
            return "no snapshot is expired; nothing was changed", {}
        case "PLANNED":
            summary = (
                f"{snapshots} and {refs} are expired; planned {counted(result.files_planned, 'file')}, "
                f"{result.bytes_planned} bytes; nothing was changed"
            )
            details = changed(
                ExpiryDetails,
                files_planned=result.files_planned,
                files_kept=result.files_kept,
                findings=findings,
                snapshots_expired=len(result.snapshot_ids),
                refs_expired=len(result.refs),
            )
            return summary, details
    absent = f" ({result.files_absent} of them were absent already)" if result.files_absent else ""
    kept = f", kept {result.files_kept}" if result.files_kept else ""
    freed = "; nothing was freed, because the bucket is versioned" if result.bytes_freed is None else ""
    summary = (
        f"removed {snapshots} and {refs}, deleted {counted(result.files_deleted, 'file')}{absent}, "
        f"{result.bytes_deleted} bytes{kept} in {result.seconds:.1f} s{freed}"
    )
    details = changed(
        ExpiryDetails,
        files_planned=result.files_planned,
        files_deleted=result.files_deleted,
        files_absent=result.files_absent,
        files_failed=0,
        files_kept=result.files_kept,
        bytes_deleted=result.bytes_deleted,
        findings=findings,
        snapshots_expired=len(result.snapshot_ids),
        refs_expired=len(result.refs),
    )
    return summary, details
