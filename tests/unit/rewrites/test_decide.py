"""The decision of a rewrite for a loaded table: what Iceberg's action is called with."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from delegation.errors import GuardRefused
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable, read_large
from delegation.rewrites.choose import Left
from delegation.rewrites.context import DataFilesRewrite, ManifestsRewrite, RewriteContext
from delegation.rewrites.decide import Compaction, decide_compaction, decide_manifests, held_for
from delegation.rewrites.errors import RewriteError
from delegation.rewrites.terms import CompactionTerms, ManifestTerms, Strategy
from delegation.storage.memory import MemoryPlanStore
from tests.unit.rewrites.tables import PLACE, UUID, SyntheticTable, data

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NAME = TableIdentifier("lake", ("db",), "t")
TERMS = CompactionTerms(target_file_size_bytes=1_000)


class Looks:
    task_id, attempt = "t", 1

    def __init__(self) -> None:
        self.looks = 0

    def checkpoint(self, *, moved: bool = True) -> None:
        assert moved
        self.looks += 1

    def report(self, **_given: Any) -> None: ...


def ago(age: timedelta) -> int:
    return int((NOW - age).timestamp() * 1000)


def context(table: SyntheticTable) -> tuple[RewriteContext, LoadedTable]:
    loaded = LoadedTable(NAME, f"{PLACE}/metadata/v.json", table.document, {})
    ctx = RewriteContext(
        attempt=Looks(),
        identifier=NAME,
        table_uuid=UUID,
        tables=cast("Any", None),
        requests=cast("Any", None),
        store=table.store,
        plans=MemoryPlanStore(),
        clock=lambda: NOW,
    )
    return ctx, loaded


def decided(table: SyntheticTable, terms: CompactionTerms = TERMS) -> Compaction:
    return decide_compaction(*context(table), terms)


def busy_table() -> SyntheticTable:
    """Return a table with nine small files in each of two partitions; one has a commit of half an hour ago."""
    table = SyntheticTable()
    for day, age in (("a", 2 * HOUR), ("b", HOUR / 2)):
        table.commit(*(data(f"{day}{number}", day=day) for number in range(9)), at=ago(age))
    return table


def test_an_attempt_may_be_stopped_while_it_reads_one_long_manifest() -> None:
    looks = []
    for files in (10, 2_500):
        table = SyntheticTable()
        table.commit(*(data(str(number)) for number in range(files)))
        ctx, loaded = context(table)
        decide_compaction(ctx, loaded, TERMS)
        looks.append(cast("Looks", ctx.attempt).looks)
    assert looks[1] > looks[0]


def test_large_metadata_of_which_parts_are_not_kept_decides_the_same() -> None:
    table = busy_table()
    table.commit(data("a", day="a"), at=ago(HOUR / 4), operation="replace")
    table.commit(data("c", day="c"), at=ago(3 * HOUR))
    ctx, loaded = context(table)
    document = json.dumps({"metadata": table.document}, sort_keys=True).encode()
    large = replace(loaded, metadata=read_large([document])["metadata"])
    assert decide_compaction(ctx, large, TERMS) == decide_compaction(ctx, loaded, TERMS)
    terms = replace(TERMS, filter="day = 'a'")
    assert decide_compaction(ctx, large, terms) == decide_compaction(ctx, loaded, terms)


def test_the_cold_partition_is_selected_by_a_filter() -> None:
    found = decided(busy_table())
    assert found.choice.left == {Left.HOT: 1}
    assert found.rewrite == DataFilesRewrite(
        options={"target-file-size-bytes": "1000", "min-input-files": "5", "max-concurrent-file-group-rewrites": "5"},
        partitions={"type": "eq", "term": "day", "value": "a"},
    )
    assert (found.estimate.files, found.estimate.files_after) == (9, 1)


def test_a_whole_table_is_rewritten_without_a_filter_of_partitions() -> None:
    terms = replace(
        TERMS, cold_after=timedelta(0), filter="id < 5", strategy=Strategy.Z_ORDER, z_order_columns=("a", "b")
    )
    rewrite = decided(busy_table(), terms).rewrite
    assert rewrite is not None
    assert (rewrite.partitions, rewrite.where) == (None, "id < 5")
    assert (rewrite.strategy, rewrite.z_order_columns) == ("z-order", ("a", "b"))


def test_nothing_is_rewritten_where_nothing_needs_it_or_all_is_hot() -> None:
    table = busy_table()
    assert decided(table, replace(TERMS, min_input_files=10)).rewrite is None
    hot = decided(table, replace(TERMS, cold_after=3 * HOUR))
    assert (hot.rewrite, hot.choice.left) == (None, {Left.HOT: 2})


def test_the_benefit_of_the_table_counts_too() -> None:
    table = busy_table()
    gain = decided(table).estimate.gain_per_cost
    partition = decided(table).choice.work.gain
    assert decided(table, replace(TERMS, min_benefit=gain * 0.99)).rewrite is not None
    # The partition alone would be worth it: reading the table's manifests costs as well.
    above = decided(table, replace(TERMS, min_benefit=gain * 1.01))
    assert (above.choice.work.gain, above.rewrite) == (partition, None)


def test_a_branch_that_the_table_has_not_is_refused() -> None:
    table = busy_table()
    with pytest.raises(RewriteError) as refused:
        decided(table, replace(TERMS, branch="audit"))
    assert refused.value.code == "BRANCH_NOT_FOUND"
    table.refs["audit"] = {"snapshot-id": 1, "type": "branch"}
    rewrite = decided(table, replace(TERMS, branch="audit")).rewrite
    assert rewrite is not None
    assert (rewrite.branch, rewrite.partitions) == ("audit", None)


def test_sorting_needs_an_order() -> None:
    table = busy_table()
    terms = replace(TERMS, strategy=Strategy.SORT)
    with pytest.raises(GuardRefused) as refused:
        decided(table, terms)
    assert refused.value.code == "NO_SORT_ORDER"
    rewrite = decided(table, replace(terms, sort_order="id DESC")).rewrite
    assert rewrite is not None
    assert (rewrite.strategy, rewrite.sort_order) == ("sort", "id DESC")
    ctx, loaded = context(table)
    ordered = {"default-sort-order-id": 1, "sort-orders": [{"order-id": 1, "fields": [{"source-id": 2}]}]}
    own = decide_compaction(ctx, replace(loaded, metadata={**loaded.metadata, **ordered}), terms)
    assert own.rewrite is not None


def test_a_table_without_a_snapshot_has_nothing_to_rewrite() -> None:
    assert decided(SyntheticTable()).rewrite is None
    assert decide_manifests(*context(SyntheticTable()), ManifestTerms()).rewrites == ()


def test_each_manifest_is_read_under_the_lease() -> None:
    table = busy_table()
    ctx, loaded = context(table)
    decide_compaction(ctx, loaded, TERMS)
    assert cast("Looks", ctx.attempt).looks == 5  # also once for each part of a manifest


def test_small_manifests_of_a_spec_become_one() -> None:
    table = SyntheticTable()
    for number in range(6):
        table.commit(data(str(number), 900), at=number)
    for one in table.manifests:
        counts = [name for name in one if name.endswith("count")]
        assert counts
    found = decide_manifests(*context(table), ManifestTerms())
    assert found.rewrites == (ManifestsRewrite(spec_id=0),)
    assert (found.estimate.manifests, found.estimate.manifests_after) == (6, 1)
    costly = decide_manifests(*context(table), ManifestTerms(min_benefit=1e9))
    assert (costly.rewrites, costly.estimate.total_cost) == ((), 0)


def test_a_partition_spec_that_the_table_does_not_have_is_refused() -> None:
    table = busy_table()
    with pytest.raises(RewriteError, match=r"^spec-id: the table has no partition spec 4; it has 0$") as refused:
        decide_manifests(*context(table), ManifestTerms(spec_id=4))
    assert refused.value.code == "SPEC_NOT_FOUND"
    table.version = 1
    assert decide_manifests(*context(table), ManifestTerms(spec_id=0)).rewrites != ()
    with pytest.raises(RewriteError, match=r"it has 0$"):
        decide_manifests(*context(table), ManifestTerms(spec_id=1))


class Loads:
    def __init__(self, table: LoadedTable) -> None:
        self.table, self.loads = table, 0

    def load(self) -> LoadedTable:
        self.loads += 1
        return self.table


def test_a_policy_is_read_before_each_commit_and_its_end_refuses_the_next_one() -> None:
    ctx, loaded = context(busy_table())
    tables = Loads(loaded)
    reasons: list[str | None] = [None, "the policy lake.gov.compact no longer requires this"]
    by_policy = replace(ctx, tables=tables, permitted=lambda _table: reasons.pop(0))
    by_policy.check_before_commit()
    with pytest.raises(RewriteError, match="nothing more is committed: the policy"):
        by_policy.check_before_commit()
    assert tables.loads == 2


def test_the_lease_is_checked_after_the_policy_was_read() -> None:
    ctx, loaded = context(busy_table())
    looks = cast("Looks", ctx.attempt)
    seen: list[int] = []

    def permitted(_table: LoadedTable) -> str | None:
        seen.append(looks.looks)
        return None

    replace(ctx, tables=Loads(loaded), permitted=permitted).check_before_commit()
    assert looks.looks == seen[0] + 1


def test_a_callers_rewrite_checks_its_lease_alone_before_a_commit() -> None:
    ctx, _ = context(busy_table())
    ctx.check_before_commit()
    assert cast("Looks", ctx.attempt).looks == 1


def test_former_files_are_held_as_long_as_the_table_keeps_snapshots() -> None:
    name = "history.expire.max-snapshot-age-ms"
    assert held_for({name: "86400000"}) == timedelta(days=1)
    assert held_for({name: "soon"}) == held_for({}) == timedelta(days=5)
    assert held_for({name: "9" * 18}) == timedelta(days=3_650)
