"""What the end of an attempt at an expiry writes to its task."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from delegation.attempts.details import changed
from delegation.errors import DelegationError, RunStopped, counted
from delegation.operations.expiry.behavior.details import ExpiryDetails
from delegation.operations.expiry.context import ExpiryResult
from delegation.references.errors import PassLost, ReferencesError, ReferencesNotKnown
from delegation.tasks.life.outcomes import ErrorClass
from delegation.tasks.work.work_errors import AttemptEnding, ending_of
from delegation.worksets.errors import FilesThrottled

_REFERENCES_WAIT: Final = timedelta(seconds=15)
_SHORTEST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(seconds=60)


def ending(error: Exception | RunStopped) -> AttemptEnding:
    """Return how an attempt ends that `error` ended.

    An expiry that waits for a pass over the catalog is handed over: its attempts do not count.
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


def success(result: ExpiryResult) -> tuple[str, dict[str, Any]]:
    """Return the summary and the details of a task that ends with SUCCESS."""
    findings = [{"code": finding.code, "count": finding.count} for finding in result.findings] or ()
    snapshots, refs = counted(len(result.snapshot_ids), "snapshot"), counted(len(result.refs), "ref")
    match result.status:
        case "NOTHING":
            lost = "; an earlier plan is lost: files of its snapshots may be left" if result.findings else ""
            return f"no snapshot is expired; nothing was changed{lost}", changed(ExpiryDetails, findings=findings)
        case "STOPPED":
            done = "before its commit; nothing was changed"
            if result.snapshot_ids:
                files = counted(result.files_deleted, "file")
                when = f"after it deleted {files}" if result.files_deleted else "before its first delete"
                done = f"{when}: {snapshots} and {refs} are removed, and other files that only they named are left"
            details = changed(
                ExpiryDetails,
                files_deleted=result.files_deleted,
                bytes_deleted=result.bytes_deleted,
                findings=findings,
                snapshots_expired=len(result.snapshot_ids),
                refs_expired=len(result.refs) if result.snapshot_ids else 0,
            )
            return f"{result.withdrawn}, so it stopped {done}", details
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
