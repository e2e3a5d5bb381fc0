"""What a rewrite of a loaded table does: its files are read, chosen and estimated. The result is the arguments of
Iceberg's action. Needs no Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import parse_metadata
from delegation.iceberg.reach import Fetcher
from delegation.polaris.model import LoadedTable
from delegation.rewrites.choose import PartitionsChoice, Thresholds, choose
from delegation.rewrites.context import DataFilesRewrite, ManifestsRewrite, RewriteContext
from delegation.rewrites.errors import branch_not_found, spec_not_found
from delegation.rewrites.estimate import HELD, RewriteEstimate, cost_of, cost_of_manifests, estimate, estimate_manifests
from delegation.rewrites.files import TableFiles, head_of, read_files
from delegation.rewrites.filters import PartitionFilter
from delegation.rewrites.manifests import ManifestsChoice, choose_manifests, target_size
from delegation.rewrites.pruning import EVERY_FILE, FileFilter
from delegation.rewrites.terms import MAIN, CompactionTerms, ManifestTerms, Strategy

MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
READ_THREADS: Final = 8
_MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
_LONGEST_HELD: Final = timedelta(days=3_650)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The decision for a compaction. `rewrite` is None if nothing is rewritten."""

    files: TableFiles
    choice: PartitionsChoice
    estimate: RewriteEstimate
    rewrite: DataFilesRewrite | None


@dataclass(frozen=True, slots=True)
class ManifestsDecision:
    """The decision for a rewrite of manifests, with one call of the action for each spec."""

    choice: ManifestsChoice
    estimate: RewriteEstimate
    rewrites: tuple[ManifestsRewrite, ...] = ()


def decide_compaction(ctx: RewriteContext, table: LoadedTable, terms: CompactionTerms) -> Compaction:
    """Decide for the loaded table. Raises the errors of the store, of manifests and of `check_terms`."""
    check_terms(table.metadata, terms)
    thresholds = Thresholds.of(terms, table.properties)
    files = _read(ctx, table, thresholds, terms.branch, FileFilter.of(terms.filter, table.metadata))
    held = held_for(table.properties)
    filters = PartitionFilter.of(table.metadata)
    choice = choose(
        files.partitions,
        thresholds,
        cold_before_ms=_milliseconds(ctx.clock() - terms.cold_after),
        cost=lambda work: cost_of(work, files, held=held),
        min_benefit=terms.min_benefit,
        has_filter=filters.has,
    )
    estimated = estimate(choice, files, held=held)
    if not choice.chosen or estimated.gain_per_cost < terms.min_benefit:
        return Compaction(files, choice, estimated, None)
    partitions = None if choice.is_whole else filters.of_partitions(chosen.partition for chosen in choice.chosen)
    return Compaction(files, choice, estimated, _rewrite(terms, partitions))


def _rewrite(terms: CompactionTerms, partitions: Any | None) -> DataFilesRewrite:
    return DataFilesRewrite(
        branch=terms.branch,
        strategy=terms.strategy.value,
        sort_order=terms.sort_order,
        z_order_columns=terms.z_order_columns,
        options=terms.action_options(),
        partitions=partitions,
        where=terms.filter,
    )


def decide_manifests(ctx: RewriteContext, table: LoadedTable, terms: ManifestTerms) -> ManifestsDecision:
    """Decide for the loaded table. Raises the errors of the store and manifests, RewriteError (SPEC_NOT_FOUND)."""
    check_spec(table.metadata, terms)
    held = held_for(table.properties)
    files = _read(ctx, table, Thresholds.of(CompactionTerms(), table.properties), MAIN)
    choice = choose_manifests(
        files.states,
        target_size(table.properties),
        cost=lambda work: cost_of_manifests(work, held=held),
        min_benefit=terms.min_benefit,
        spec_id=terms.spec_id,
    )
    return ManifestsDecision(
        choice,
        estimate_manifests(choice, held=held),
        tuple(ManifestsRewrite(spec_id=spec_id) for spec_id in choice.chosen),
    )


def check_terms(document: Mapping[str, Any], terms: CompactionTerms) -> None:
    """Raise RewriteError (BRANCH_NOT_FOUND) or GuardRefused (NO_SORT_ORDER) if the table lacks either."""
    if terms.branch != MAIN and head_of(document, terms.branch) is None:
        raise branch_not_found(terms.branch)
    if terms.strategy is Strategy.SORT and terms.sort_order is None and not has_sort_order(document):
        raise GuardRefused(
            "the table has no sort order. Set the option sort-order, or define a sort order for the table",
            code="NO_SORT_ORDER",
        )


def check_spec(document: Mapping[str, Any], terms: ManifestTerms) -> None:
    """Raise RewriteError (SPEC_NOT_FOUND) if the table lacks the partition spec."""
    known = sorted(spec["spec-id"] for spec in document.get("partition-specs") or [{"spec-id": 0}])
    if terms.spec_id is not None and terms.spec_id not in known:
        raise spec_not_found(terms.spec_id, known)


def has_sort_order(document: Mapping[str, Any]) -> bool:
    """Return whether the table's default sort order has any field."""
    current = document.get("default-sort-order-id", 0)
    orders = document.get("sort-orders") or ()
    return any(order.get("order-id") == current and order.get("fields") for order in orders)


def held_for(properties: Mapping[str, str]) -> timedelta:
    """Return how long an expiry keeps the snapshots of this table."""
    text = properties.get(_MAX_AGE, "")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        return HELD
    return min(timedelta(milliseconds=min(int(text), 10**15)), _LONGEST_HELD)


def _read(
    ctx: RewriteContext,
    table: LoadedTable,
    thresholds: Thresholds,
    branch: str,
    filtered: FileFilter = EVERY_FILE,
) -> TableFiles:
    metadata = parse_metadata(table.metadata_location, table.metadata)
    fetcher = Fetcher(ctx.store, threads=READ_THREADS, checkpoint=ctx.attempt.checkpoint)
    return read_files(
        metadata, table.metadata, fetcher, thresholds, branch=branch, filtered=filtered, limit=MAX_MANIFEST_BYTES
    )


def _milliseconds(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1000)
