"""What an expiry that ends with SUCCESS writes to its task."""

from typing import Any

from delegation.attempts.details import changed
from delegation.operations.expiry.behavior.details import ExpiryDetails
from delegation.operations.expiry.context import ExpiryResult
from polaris_common.errors import counted


def success(result: ExpiryResult) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the summary, the details and the other fields of a task that ends with SUCCESS."""
    findings = [{"code": finding.code, "count": finding.count} for finding in result.findings] or ()
    snapshots, refs = counted(len(result.snapshot_ids), "snapshot"), counted(len(result.refs), "ref")
    match result.status:
        case "NOTHING":
            summary = "no snapshot is expired; nothing was changed"
            if result.findings:
                summary = "no snapshot is expired any more; an earlier plan is lost: files of its snapshots may be left"
            return summary, changed(ExpiryDetails, findings=findings), {}
        case "STOPPED":
            done = "before its commit; nothing was changed"
            if result.snapshot_ids or result.refs:
                files = counted(result.files_deleted, "file")
                when = f"after it deleted {files}" if result.files_deleted else "before its first delete"
                done = f"{when}: {snapshots} and {refs} are removed, and other files that only they named are left"
            details = changed(
                ExpiryDetails,
                files_deleted=result.files_deleted,
                bytes_deleted=result.bytes_deleted,
                findings=findings,
                snapshots_expired=len(result.snapshot_ids),
                refs_expired=len(result.refs),
            )
            return f"{result.withdrawn}, so it stopped {done}", details, {}
        case "PLANNED":
            spark = ", to be deleted with Spark" if result.deletes_with == "spark" else ""
            summary = (
                f"{snapshots} and {refs} are expired; planned {counted(result.files_planned, 'file')}, "
                f"{result.bytes_planned} bytes{spark}; nothing was changed"
            )
            fields: dict[str, Any] = {}
            if result.forecast is not None:
                summary += f"; deleting the files takes {result.forecast.text()}"
                fields["result_extended"] = result.forecast.without_samples()
            details = changed(
                ExpiryDetails,
                files_planned=result.files_planned,
                files_kept=result.files_kept,
                findings=findings,
                snapshots_expired=len(result.snapshot_ids),
                refs_expired=len(result.refs),
            )
            return summary, details, fields
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
    return summary, details, {}
