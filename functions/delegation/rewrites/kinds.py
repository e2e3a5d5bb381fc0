"""The two kinds of rewrites: the decision for a table, and the text of a result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from delegation.rewrites.behavior import RewritePlan
from delegation.rewrites.context import Rewrite, RewriteContext, RewriteResult
from delegation.rewrites.decide import decide_compaction, decide_manifests
from delegation.rewrites.estimate import RewriteEstimate
from delegation.rewrites.requests import TableCompaction, TableManifestsRewrite, TableRewrite
from delegation.rewrites.terms import CompactionLimits, CompactionTerms, ManifestLimits, ManifestTerms
from polaris_common.errors import counted


@dataclass(frozen=True, slots=True)
class Compactions:
    """Compactions by the operator's `limits`."""

    work_type: ClassVar[type[TableRewrite]] = TableCompaction
    limits: CompactionLimits = field(default_factory=CompactionLimits)

    def plan(self, ctx: RewriteContext, work: TableRewrite) -> RewritePlan:
        terms = CompactionTerms.of(work.properties, self.limits, accepted=True)
        decision = decide_compaction(ctx, ctx.load_permitted(), terms)
        return _plan(() if decision.rewrite is None else (decision.rewrite,), decision.estimate)

    def summary(self, result: RewriteResult) -> str:
        if not result.files_rewritten:
            return "no data file was rewritten"
        return (
            f"rewrote {counted(result.files_rewritten, 'file')}, {result.bytes_rewritten} bytes, into "
            f"{result.files_added:,}, {result.bytes_added} bytes; applied {counted(result.deletes_folded, 'delete')}"
        )


@dataclass(frozen=True, slots=True)
class ManifestsRewrites:
    """Rewrites of manifests by the operator's `limits`."""

    work_type: ClassVar[type[TableRewrite]] = TableManifestsRewrite
    limits: ManifestLimits = field(default_factory=ManifestLimits)

    def plan(self, ctx: RewriteContext, work: TableRewrite) -> RewritePlan:
        decision = decide_manifests(ctx, ctx.load_permitted(), ManifestTerms.of(work.properties, self.limits))
        return _plan(decision.rewrites, decision.estimate)

    def summary(self, result: RewriteResult) -> str:
        if not result.snapshot_ids:
            return "no manifest was rewritten"
        return f"rewrote {counted(result.manifests_before, 'manifest')} into {result.manifests_after:,}"


def _plan(rewrites: tuple[Rewrite, ...], estimate: RewriteEstimate) -> RewritePlan:
    details: Mapping[str, Any] = estimate.model_dump(mode="json")
    if rewrites:
        return RewritePlan(rewrites=rewrites, summary=estimate.text(), details=details)
    left = "; ".join(f"{count:,} skipped: {reason}" for reason, count in estimate.left.items())
    return RewritePlan(
        rewrites=(), summary="nothing needs to be rewritten" + (f" ({left})" if left else ""), details=details
    )
