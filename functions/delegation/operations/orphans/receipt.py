"""The receipt of a removal of orphan files, stored beside its plan: the request, what was found, what became of it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from delegation.operations.orphans.context import OrphanContext, OrphanResult
from delegation.operations.orphans.deleting import changed_files
from delegation.operations.orphans.index import OrphanIndex
from delegation.timestamps import isoformat
from delegation.worksets.errors import FilesNotDeleted
from delegation.worksets.marks import failure_lists


def receipt_key(index: OrphanIndex) -> str:
    """Return the receipt's key in the plan bucket, beside the plan that was executed last."""
    return f"{index.plan_id}/receipt.json"


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
        "format": 1,
        "task_id": ctx.attempt.task_id,
        "attempts": ctx.attempt.attempt,
        "request": dict(ctx.request),
        **ctx.asked_by(),
        "status": result.status,
        "engine": result.engine,
        "identifier": {
            "catalog": ctx.identifier.catalog,
            "namespace": list(ctx.identifier.namespace),
            "name": ctx.identifier.name,
        },
        "table_uuid": result.table_uuid,
        "location": result.location,
        "metadata_location": last.metadata_location,
        "plan": [one.plan_id for one in indexes],
        "approved": ctx.options.execute_plan is not None,
        "older_than_seconds": last.age,
        "listed_at": isoformat(datetime.fromtimestamp(last.listed_at, UTC)),
        "planned_at": indexes[0].created_at,
        "finished_at": ctx.clock().isoformat(),
        "seconds": round(result.seconds, 3),
        "files_listed": result.files_listed,
        "bytes_listed": result.bytes_listed,
        "files_planned": result.files_planned,
        "files_deleted": result.files_deleted,
        "files_absent": result.files_absent,
        "files_changed": result.files_changed,
        "changed": [key for one in indexes for key in changed_files(ctx, one)],
        "files_deleted_without_condition": result.files_looked_only,
        "bytes_deleted": result.bytes_deleted,
        "bytes_freed": result.bytes_freed,
        "neighbours": [one.model_dump() for one in last.neighbours],
        "references": ctx.references.summary(),
        "findings": [finding.model_dump() for finding in result.findings],
        "files_failed": 0 if failed is None else failed.count,
        "failures": None if failed is None else _failures(ctx, last, failed),
    }
    ctx.plans.put(receipt_key(last), (json.dumps(receipt, indent=1, ensure_ascii=False) + "\n").encode())


def _failures(ctx: OrphanContext, index: OrphanIndex, failed: FilesNotDeleted) -> dict[str, Any]:
    return {
        "code": failed.code,
        "sample": [{"path": path, "code": code} for path, code in failed.sample],
        "lists": list(failure_lists(ctx.plans, index.plan_id)),
    }
