"""What a removal of orphan files that ends with SUCCESS writes to its task."""

from typing import Any, Final

from delegation.operations.orphans.approval import ListedAmount, share_of
from delegation.operations.orphans.behavior.details import OrphanDetails
from delegation.operations.orphans.context import OrphanResult
from delegation.operations.orphans.errors import POLICY_WITHDRAWN
from delegation.operations.orphans.quarantine.released import released_text
from delegation.removal.attempt import PlanSegment
from delegation.removal.details import changed, counts_of
from delegation.storage.listing.model import TAG
from delegation.tasks.life.model import Task
from polaris_common.errors import counted, printable

_WHY = {
    "first-run": "it is the first plan of this table here",
    "max-share": "that is an unlikely share",
    "max-files": "they are many",
    "finding": "something was found that the approval does not know",
}
_SHOWN: Final = 3


def success(
    result: OrphanResult, segment: PlanSegment | None, location: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the summary and the details of a task that ends with SUCCESS; `segment` is its plan.

    `location` is where it looked if that is not the table's location.
    """
    details: dict[str, Any] = {
        "files_planned": result.files_planned,
        "files_listed": result.files_listed,
        "findings": counts_of(result.findings),
        "waits": "",
        "waiting_plan": None,
        "waiting_location": "",
    }
    listed = f"{counted(result.files_listed, 'object')} at {result.location}"
    released = f"{released_text(result.findings)}{_foreign_text(result)}"
    nothing = f"no orphan files among {listed}{released}"
    found = f"{counted(result.files_planned, 'orphan file')}, {result.bytes_planned} bytes, of {listed}"
    match result.status:
        case "NOTHING":
            return nothing, changed(OrphanDetails, **details)
        case "PLANNED" if not result.files_planned:
            return nothing, changed(OrphanDetails, **details)
        case "PLANNED":
            spark = " with Spark" if result.deletes_with == "spark" else ""
            summary = (
                f"found {found}; nothing was deleted. `delegation orphans approve {result.plan_ids[-1]}` "
                f"{'tags' if result.quarantine else 'deletes'} them{spark}{released}"
            )
            return summary, changed(OrphanDetails, **details)
        case "WAITING":
            waiting = None if segment is None else {"id": segment.id, "sha256": segment.sha256}
            details |= {"waits": result.waits, "waiting_plan": waiting, "waiting_location": location or ""}
            gone = result.files_deleted + result.deleted_before.files
            done = f"{counted(gone, 'file')} had been deleted, the others stay" if gone else "nothing was deleted"
            summary = (
                f"found {found}; {done}, because {_WHY[result.waits]} ({result.waits}, "
                f"{_percent(result)} of what is there). Look at them, then `delegation orphans approve "
                f"{result.plan_ids[-1]}`{released}"
            )
            return summary, changed(OrphanDetails, **details)
    absent = f" ({result.files_absent} of them were absent already)" if result.files_absent else ""
    stayed = f"; {counted(result.files_changed, 'file')} changed since and stayed" if result.files_changed else ""
    freed = "; nothing was freed, because the bucket is versioned" if result.bytes_freed is None else ""
    if result.quarantine:
        kept = f"; {counted(result.files_untagged, 'file')} with ten other tags stayed" if result.files_untagged else ""
        deleted = f"; {counted(result.files_deleted, 'file')} had been gone before" if result.files_deleted else ""
        summary = (
            f"tagged {counted(result.files_quarantined, 'orphan file')} ({'='.join(TAG)}), {result.bytes_quarantined} "
            f"bytes, of {listed} in {result.seconds:.1f} s{stayed}{kept}{deleted}{released}"
        )
    else:
        summary = (
            f"deleted {counted(result.files_deleted, 'orphan file')}{absent}, {result.bytes_deleted} bytes, of "
            f"{listed} in {result.seconds:.1f} s{stayed}{freed}{released}"
        )
    details |= {
        "files_deleted": result.files_deleted + result.deleted_before.files,
        "files_absent": result.files_absent,
        "files_failed": 0,
        "files_changed": result.files_changed,
        "files_quarantined": result.files_quarantined,
        "bytes_deleted": result.bytes_deleted + result.deleted_before.bytes,
    }
    return summary, changed(OrphanDetails, **details)


def withdrawn(reason: str, task: Task) -> tuple[str, dict[str, Any]]:
    """Return the summary and the details of a removal that stopped because its policy was withdrawn: a SUCCESS."""
    deleted = OrphanDetails.of(task).files_deleted
    done = f"{counted(deleted, 'orphan file')} had been deleted before" if deleted else "nothing was deleted"
    findings = [{"code": POLICY_WITHDRAWN, "count": 1}]
    return f"stopped, because {reason}; {done}", changed(OrphanDetails, findings=findings)


def _foreign_text(result: OrphanResult) -> str:
    """Return what a summary states about tables that no catalog lists: how much stays for which, and how it goes."""
    found = result.foreign
    if not found:
        return ""
    shown = [f"{one.uuid} at {printable(one.place)} ({counted(one.files, 'file')}, {one.bytes} bytes)" for one in found]
    more = f" and {counted(len(found) - _SHOWN, 'other')}" if len(found) > _SHOWN else ""
    approve = f"; `delegation orphans approve {result.plan_ids[-1]} --including UUID` adds a table's to the plan"
    how = approve if result.status in ("PLANNED", "WAITING") else ""
    return f"; files stay of what no catalog lists: {', '.join(shown[:_SHOWN])}{more}{how}"


def _percent(result: OrphanResult) -> str:
    planned = ListedAmount(result.files_planned, result.bytes_planned)
    return f"{share_of(planned, ListedAmount(result.files_listed, result.bytes_listed)):.0%}"
