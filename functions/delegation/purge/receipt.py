"""The receipt of a finished purge, beside its plan: what was asked, what was found, what was done."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from delegation.purge.attempt import PlanSegment
from delegation.purge.context import PurgeContext, PurgeResult
from delegation.purge.plan import SAMPLE, Finding, PlanIndex, Total, add_totals

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
    ctx: PurgeContext, result: PurgeResult, indexes: Sequence[PlanIndex], segments: Sequence[PlanSegment]
) -> None:
    """Write the receipt; a repeat after a crash writes it again, with its own time."""
    totals: dict[str, Total] = {}
    for index in indexes:
        add_totals(totals, index.counts)
    receipt = {
        "format": FORMAT,
        "task_id": ctx.attempt.task_id,
        "attempt": ctx.attempt.attempt,
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
        "options": asdict(ctx.options),
        "plan": [{"id": segment.id, "sha256": segment.sha256} for segment in segments],
        "planned_at": indexes[0].created_at,
        "finished_at": ctx.clock().isoformat(),
        "seconds": round(result.seconds, 3),
        "files_planned": result.files_planned,
        "files_deleted": result.files_deleted,
        "bytes_deleted": result.bytes_deleted,
        "bytes_freed": result.bytes_freed,
        "files_kept": result.files_kept,
        "by_type": {name: total.model_dump() for name, total in sorted(totals.items())},
        "neighbours": [asked.model_dump() for index in indexes for asked in index.neighbours],
        "findings": [finding.model_dump() for finding in result.findings],
    }
    ctx.plans.put(receipt_key(indexes), (json.dumps(receipt, indent=1, ensure_ascii=False) + "\n").encode())
