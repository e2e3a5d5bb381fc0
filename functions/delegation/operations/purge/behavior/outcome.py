"""What the end of an attempt at a purge writes to its task."""

from typing import Any

from delegation.attempts.details import changed
from delegation.operations.purge.behavior.details import PurgeDetails, states_of
from delegation.operations.purge.behavior.parameters import identifier_text
from delegation.operations.purge.context import PurgeResult


def success(result: PurgeResult) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the summary, the details and the other fields of a task that ends with SUCCESS."""
    if result.status == "PLANNED":
        summary = f"planned {result.files_planned} files, {result.bytes_planned} bytes; nothing was deleted"
        fields: dict[str, Any] = {"engine": result.engine}
        if result.forecast is not None:
            summary += f"; executing the plan takes {result.forecast.text()}"
            fields["result_extended"] = result.forecast.without_samples()
        return summary, changed(PurgeDetails, files_planned=result.files_planned, **_kept(result)), fields
    kept = f", kept {result.files_kept}" if result.files_kept else ""
    absent = f" ({result.files_absent} of them were absent already)" if result.files_absent else ""
    freed = "; nothing was freed, because the bucket is versioned" if result.bytes_freed is None else ""
    deleted = f"deleted {result.files_deleted} files{absent}, {result.bytes_deleted} bytes"
    left = f"; files stay that the credentials do not cover: {result.left_over}" if result.left_over else ""
    summary = f"{deleted}{kept} in {result.seconds:.1f} s{freed}{left}"
    details = changed(
        PurgeDetails,
        files_planned=result.files_planned,
        files_deleted=result.files_deleted,
        files_absent=result.files_absent,
        files_failed=0,
        bytes_deleted=result.bytes_deleted,
        **_kept(result),
        purged_identifier=identifier_text(result.identifier),
        # Another purge of a table that kept its metadata file may find more to delete, so it is no replay.
        purged_metadata_location=None if result.root_kept else result.metadata_location,
        purged_states=states_of(result.metadata_files),
    )
    return summary, details, {"engine": result.engine}


def _kept(result: PurgeResult) -> dict[str, Any]:
    """Return the details of what was kept; samples are in the plan, to bound a task's record."""
    findings = [{"code": finding.code, "count": finding.count} for finding in result.findings]
    return {"files_kept": result.files_kept, "findings": findings or ()}
