"""The receipt of a finished purge, beside its plan: what was asked, what was found, what was done."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from delegation.operations.purge.context import PurgeContext, PurgeResult
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import Total, add_totals
from delegation.worksets.digest import paths_digest
from delegation.worksets.errors import FilesNotDeleted
from delegation.worksets.index import SAMPLE, Finding, PlanIndex
from delegation.worksets.marks import Marks

FORMAT = 1


def receipt_key(indexes: Sequence[PlanIndex]) -> str:
    """Where the receipt lies in the plan bucket: beside the last segment of the plan."""
    return f"{indexes[-1].plan_id}/receipt.json"


def merge_findings(indexes: Sequence[PlanIndex]) -> tuple[Finding, ...]:
    """The findings of all segments, one per code."""
    merged: dict[str, Finding] = {}
    for finding in (one for index in indexes for one in index.findings):
        old = merged.get(finding.code)
        merged[finding.code] = (
            finding
            if old is None
            else Finding(
                code=finding.code, count=old.count + finding.count, sample=(*old.sample, *finding.sample)[:SAMPLE]
            )
        )
    return tuple(merged.values())


def store_receipt(
    ctx: PurgeContext,
    result: PurgeResult,
    indexes: Sequence[PlanIndex],
    segments: Sequence[PlanSegment],
    *,
    failed: FilesNotDeleted | None = None,
) -> None:
    """Write the receipt; a repeat after a crash writes it again, with its own time.

    Of keys that `failed` it has the exact count, a sample, and where the full lists are.
    """
    now = ctx.clock()
    totals: dict[str, Total] = {}
    for index in indexes:
        add_totals(totals, index.counts)
    receipt = {
        "format": FORMAT,
        "task_id": ctx.attempt.task_id,
        "attempts": ctx.attempt.attempt,
        "request": dict(ctx.request),
        "status": result.status,
        "engine": result.engine,
        "identifier": {
            "catalog": ctx.identifier.catalog,
            "namespace": list(ctx.identifier.namespace),
            "name": ctx.identifier.name,
        },
        "table_uuid": result.table_uuid,
        "metadata_location": result.metadata_location,
        "format_version": indexes[-1].format_version,
        "snapshots": indexes[-1].snapshots,
        "options": ctx.options.recorded(),
        "plan": [{"id": segment.id, "sha256": segment.sha256} for segment in segments],
        "planned_at": indexes[0].created_at,
        "finished_at": now.isoformat(),
        "seconds": round(result.seconds, 3),
        "seconds_since_planned": round((now - datetime.fromisoformat(indexes[0].created_at)).total_seconds(), 3),
        "files_planned": result.files_planned,
        "files_deleted": result.files_deleted,
        "bytes_deleted": result.bytes_deleted,
        "bytes_freed": result.bytes_freed,
        "files_kept": result.files_kept,
        "by_type": {name: total.model_dump() for name, total in sorted(totals.items())},
        "neighbours": [asked.model_dump() for index in indexes for asked in index.neighbours],
        "findings": [finding.model_dump() for finding in result.findings],
        "files_failed": 0 if failed is None else failed.count,
        "failures": _failures(ctx, indexes, failed),
        "paths_sha256": paths_digest(ctx.plans, indexes),
    }
    ctx.plans.put(receipt_key(indexes), (json.dumps(receipt, indent=1, ensure_ascii=False) + "\n").encode())


def _failures(ctx: PurgeContext, indexes: Sequence[PlanIndex], failed: FilesNotDeleted | None) -> dict[str, Any] | None:
    if failed is None:
        return None
    return {
        "code": failed.code,
        "sample": [{"path": path, "code": code} for path, code in failed.sample],
        "lists": [key for index in indexes for key in _lists_of_failures(ctx, index)],
    }


def _lists_of_failures(ctx: PurgeContext, index: PlanIndex) -> Iterator[str]:
    """Where what failed is listed in full; a chunk that a later attempt did finish is no failure any more."""
    done = Marks(ctx.plans, index.plan_id).done()
    prefix = f"{index.plan_id}/failed/"
    return (key for key in ctx.plans.keys(prefix) if key.removeprefix(prefix) not in done)
