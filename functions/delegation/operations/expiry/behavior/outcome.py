"""What the end of an attempt at an expiry writes to its task."""

from datetime import timedelta
from typing import Any, Final

from delegation.attempts.details import changed
from delegation.errors import DelegationError, counted
from delegation.operations.expiry.behavior.details import ExpiryDetails
from delegation.operations.expiry.context import ExpiryResult
from delegation.references.errors import PassLost, ReferencesError, ReferencesNotKnown
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.pauses.lookout import PAUSED_WAIT
from delegation.worksets.attempt import AttemptHandedOver, AttemptPaused
from delegation.worksets.errors import FilesThrottled

_REFERENCES_WAIT: Final = timedelta(seconds=15)
_SHORTEST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(seconds=60)


def attempt_error(error: DelegationError) -> tuple[AttemptError, timedelta | None]:
    """Classify an error, with how long the task waits then; None leaves that to its retry policy.

    An expiry that waits for a pass over the catalog is handed over: its attempts do not count.
    """
    wait: timedelta | None = None
    match error:
        case AttemptPaused():
            error_class, wait = ErrorClass.PAUSED, PAUSED_WAIT
        case ReferencesNotKnown() | PassLost():
            error_class, wait = ErrorClass.HANDED_OVER, _wait_for_references(error)
        case AttemptHandedOver():
            error_class = ErrorClass.HANDED_OVER
        case FilesThrottled():
            error_class = ErrorClass.THROTTLED
        case _:
            error_class = ErrorClass.TRANSIENT if error.retryable else ErrorClass.PERMANENT
    return AttemptError(error.code, str(error), error_class), wait


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
