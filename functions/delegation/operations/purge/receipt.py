"""The receipt of a purge, stored beside its plan: the request, the findings and the deleted files."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from delegation.operations.purge.context import PurgeContext, PurgeResult
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.digest import paths_digest
from delegation.worksets.errors import FilesNotDeleted
from delegation.worksets.forecast import by_type
from delegation.worksets.index import PlanIndex
from delegation.worksets.receipts import failures, heading, put_receipt


def store_receipt(
    ctx: PurgeContext,
    result: PurgeResult,
    indexes: Sequence[PlanIndex],
    segments: Sequence[PlanSegment],
    *,
    failed: FilesNotDeleted | None = None,
) -> None:
    """Write the receipt; a repeat after a crash overwrites it with a later time.

    Of keys that `failed` it has the exact count, a sample, and the keys of the full lists.
    """
    receipt = {
        **_request(ctx, result, indexes[-1]),
        "plan": [asdict(segment) for segment in segments],
        **_outcome(ctx, result, indexes),
        **failures(ctx.plans, indexes, failed),
        "paths_sha256": paths_digest(ctx.plans, indexes),
    }
    put_receipt(ctx.plans, indexes[-1].plan_id, receipt)


def _request(ctx: PurgeContext, result: PurgeResult, last: PlanIndex) -> dict[str, Any]:
    return {
        **heading(ctx, result.status, result.engine),
        "table_uuid": result.table_uuid,
        "metadata_location": result.metadata_location,
        "format_version": last.format_version,
        "snapshots": last.snapshots,
        "options": ctx.options.recorded(),
    }


def _outcome(ctx: PurgeContext, result: PurgeResult, indexes: Sequence[PlanIndex]) -> dict[str, Any]:
    now = ctx.clock()
    return {
        "planned_at": indexes[0].created_at,
        "finished_at": now.isoformat(),
        "seconds": round(result.seconds, 3),
        "seconds_since_planned": round((now - datetime.fromisoformat(indexes[0].created_at)).total_seconds(), 3),
        "files_planned": result.files_planned,
        "files_deleted": result.files_deleted,
        **({"files_absent": result.files_absent} if result.files_absent else {}),
        "bytes_deleted": result.bytes_deleted,
        "bytes_freed": result.bytes_freed,
        "files_kept": result.files_kept,
        "by_type": {name: total.model_dump() for name, total in by_type(indexes).items()},
        "neighbours": [asked.model_dump() for index in indexes for asked in index.neighbours],
        **({} if ctx.references is None else {"references": ctx.references.summary()}),
        "findings": [finding.model_dump() for finding in result.findings],
        **({} if result.left_over is None else {"not_covered": result.left_over}),
        **({} if result.stayed is None else {"stayed": result.stayed.recorded()}),
    }
