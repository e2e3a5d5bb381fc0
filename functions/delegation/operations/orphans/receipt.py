"""The receipt of a removal of orphan files, stored beside its plan: the request, what was found, what became of it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from delegation.operations.orphans.context import OrphanContext, OrphanResult
from delegation.operations.orphans.deleting import changed_files, untagged_files
from delegation.operations.orphans.index import ForeignPart, OrphanIndex
from delegation.removal.errors import FilesNotDeleted
from delegation.removal.marks import failures, heading, put_receipt
from delegation.storage.listing.model import TAG
from delegation.timestamps import isoformat


def store_receipt(
    ctx: OrphanContext,
    result: OrphanResult,
    indexes: Sequence[OrphanIndex],
    *,
    failed: FilesNotDeleted | None = None,
) -> None:
    """Write the receipt; a repeat after a crash overwrites it with a later time."""
    last = indexes[-1]
    receipt = {
        **heading(ctx, result.status, result.engine),
        "table_uuid": result.table_uuid,
        "location": result.location,
        "metadata_location": last.metadata_location,
        "plan": [one.plan_id for one in indexes],
        "approved": result.approval is not None,
        "approval": None if result.approval is None else result.approval.model_dump(mode="json"),
        "older_than_seconds": last.age,
        "listed_at": isoformat(datetime.fromtimestamp(last.listed_at, UTC)),
        "planned_at": indexes[0].created_at,
        "finished_at": ctx.clock().isoformat(),
        "seconds": round(result.seconds, 3),
        "files_listed": result.files_listed,
        "bytes_listed": result.bytes_listed,
        "files_planned": result.files_planned,
        "files_deleted": result.files_deleted,
        "files_deleted_before": result.deleted_before.files,
        "files_absent": result.files_absent,
        "files_changed": result.files_changed,
        "changed": [key for one in indexes for key in changed_files(ctx, one)],
        "quarantine": "=".join(TAG) if ctx.options.quarantine or last.quarantine else None,
        "files_quarantined": result.files_quarantined,
        "bytes_quarantined": result.bytes_quarantined,
        "files_untagged": result.files_untagged,
        "untagged": [key for one in indexes for key in untagged_files(ctx, one)],
        "files_deleted_without_condition": result.files_looked_only,
        "bytes_deleted": result.bytes_deleted,
        "bytes_freed": result.bytes_freed,
        "neighbours": [one.model_dump() for one in last.neighbours],
        "references": ctx.references.summary(),
        "foreign_tables": [_foreign(one) for one in last.foreign_tables],
        "included": [_foreign(one) for index in indexes for one in index.included],
        "findings": [finding.model_dump() for finding in result.findings],
        **failures(ctx.plans, [last], failed),
    }
    approved = ctx.options.execute_plan if result.approval is None else result.approval.plan
    put_receipt(ctx.plans, last.plan_id, receipt, approved=approved)


def _foreign(part: ForeignPart) -> dict[str, Any]:
    return part.model_dump(exclude={"parts"})
