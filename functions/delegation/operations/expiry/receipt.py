"""The receipt of an expiry, stored beside its plan: the request, what the table lost, and the deleted files."""

from collections.abc import Sequence
from datetime import datetime

from delegation.operations.expiry.context import ExpiryContext, ExpiryResult
from delegation.operations.expiry.index import ExpiryIndex
from delegation.worksets.chunks import Total
from delegation.worksets.errors import FilesNotDeleted
from delegation.worksets.receipts import failures, heading, put_receipt


def store_receipt(
    ctx: ExpiryContext,
    result: ExpiryResult,
    indexes: Sequence[ExpiryIndex],
    *,
    failed: FilesNotDeleted | None = None,
) -> None:
    """Write the receipt; a repeat after a crash overwrites it with a later time."""
    last = indexes[-1]
    now = ctx.clock()
    receipt = {
        **heading(ctx, result.status, result.engine),
        "table_uuid": result.table_uuid,
        "metadata_location": result.metadata_location,
        "format_version": last.format_version,
        "snapshots_removed": [str(one) for one in result.snapshot_ids],
        "refs_removed": {name: str(last.removal.refs[name]) for name in result.refs},
        "schemas_removed": list(result.schema_ids),
        "partition_specs_removed": list(result.spec_ids),
        "plan": [one.plan_id for one in indexes],
        "planned_at": indexes[0].created_at,
        "finished_at": now.isoformat(),
        "seconds": round(result.seconds, 3),
        "seconds_since_planned": round((now - datetime.fromisoformat(indexes[0].created_at)).total_seconds(), 3),
        "files_planned": result.files_planned,
        "files_deleted": result.files_deleted,
        "files_absent": result.files_absent,
        "files_kept": result.files_kept,
        "bytes_deleted": result.bytes_deleted,
        "bytes_freed": result.bytes_freed,
        "by_type": {name: total.model_dump() for name, total in _by_type(last).items()},
        "neighbours": [one.model_dump() for one in last.neighbours],
        **({} if ctx.references is None else {"references": ctx.references.summary()}),
        "findings": [finding.model_dump() for finding in result.findings],
        **failures(ctx.plans, [last], failed),
    }
    put_receipt(ctx.plans, last.plan_id, receipt, approved=ctx.options.execute_plan)


def _by_type(last: ExpiryIndex) -> dict[str, Total]:
    """Return the totals by file type of the plan that was executed last."""
    return dict(sorted(last.counts.items()))
