"""What a rewrite costs before it begins, and which manifests are worth one."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.removal.choice import prices
from delegation.rewrites.choose import Thresholds, Work, choose
from delegation.rewrites.estimate import (
    BYTES_PER_VCPU_SECOND,
    RewriteEstimate,
    cost_of,
    estimate,
    estimate_manifests,
    use_of,
)
from delegation.rewrites.files import TableFiles
from delegation.rewrites.manifests import (
    ManifestsChoice,
    ManifestsLeft,
    ManifestState,
    ManifestWork,
    choose_manifests,
    target_size,
    work_of,
)
from delegation.rewrites.terms import CompactionTerms
from tests.unit.rewrites.tables import SPEC, SyntheticTable, data, position

GIB = 1024**3
MIB = 1024**2


def test_an_estimate_states_reads_writes_storage_time_and_money() -> None:
    work = Work(files=1_000, bytes=10 * GIB, files_after=20, deletes=100, groups=1)
    use = use_of(work, delete_bytes=MIB)
    seconds = (10 * GIB + 100 * MIB) / BYTES_PER_VCPU_SECOND + (1_000 + 20 + 100) * 0.05 + 1
    assert use.vcpu_seconds == pytest.approx(seconds)
    assert use.reads == 1_100 * 3 + 1_280
    assert use.writes == 20 + 320
    listed = prices()
    hourly = listed.emr_vcpu_hour + listed.emr_gb_hour * listed.emr_job_gb / listed.emr_job_vcpu
    requests = use.reads * listed.s3_read_request + use.writes * listed.s3_write_request
    assert use.cost == pytest.approx(seconds / 3_600 * hourly + requests)
    held = 10 * listed.s3_gb_month * 5 / 30
    assert cost_of(work) == pytest.approx(use_of(work).cost + held)
    assert cost_of(work, held=timedelta(0)) == pytest.approx(use_of(work).cost)


def test_the_estimate_of_a_table_of_small_files_with_deletes() -> None:
    table = SyntheticTable()
    table.commit(*(data(str(number), 100) for number in range(500)))
    table.commit(position("d", size=10), at=1)
    table.commit(data("b", 900, day="b"), at=2)
    files = table.files()
    thresholds = Thresholds.of(CompactionTerms(target_file_size_bytes=100_000), {})
    choice = choose(files.partitions, thresholds, cold_before_ms=10, cost=lambda work: cost_of(work, files))
    found = estimate(choice, files)
    assert (found.partitions, found.groups, found.files, found.files_after) == (1, 1, 500, 1)
    assert (found.deletes_folded, found.gain) == (500, 999)
    assert (found.bytes_read, found.bytes_written, found.bytes_held_twice) == (55_000, 50_000, 50_000)
    assert 0 < found.cost < 0.01
    assert found.storage_cost > 0
    assert found.vcpu_hours == pytest.approx((55_000 / 1e7 + 1_001 * 0.05 + 1 + 5) / 3_600)
    assert found.gain_per_cost == pytest.approx(999 / found.total_cost)
    assert found.text().startswith("500 files become 1, 500 deletes applied; ")
    assert RewriteEstimate.model_validate_json(found.model_dump_json()) == found


def test_nothing_to_rewrite_costs_nothing_and_says_why() -> None:
    table = SyntheticTable()
    table.commit(*(data(str(number)) for number in range(9)), at=100)
    files = table.files()
    thresholds = Thresholds.of(CompactionTerms(target_file_size_bytes=1_000), {})
    choice = choose(files.partitions, thresholds, cold_before_ms=100, cost=cost_of)
    found = estimate(choice, files)
    assert (found.files, found.total_cost, found.gain_per_cost) == (0, 0.0, 0.0)
    assert found.left == {"newest commit younger than cold-after": 1}


@given(st.integers(0, 10**6), st.integers(0, 10**12), st.integers(0, 10**4), st.integers(0, 10**6))
def test_more_files_bytes_and_deletes_never_cost_less(files: int, size: int, deletes: int, more: int) -> None:
    less = cost_of(Work(files, size, 1, deletes, groups=1))
    assert cost_of(Work(files + more, size, 1, deletes, groups=1)) >= less
    assert cost_of(Work(files, size + more, 1, deletes, groups=1)) >= less
    assert cost_of(Work(files, size, 1, deletes + more, groups=1)) >= less


# manifests


def chosen(*states: ManifestState, **options: float) -> ManifestsChoice:
    return choose_manifests(states, 8 * MIB, cost=lambda _work: 1.0, **options)  # type: ignore[arg-type]


def test_many_small_manifests_become_few() -> None:
    choice = chosen(ManifestState(0, False, 100, 9 * MIB, 1, 100))
    assert choice.chosen[0].manifests_after == 2
    assert choice.work.gain == 98 + 100 - 2
    found = estimate_manifests(choice)
    assert (found.manifests, found.manifests_after, found.bytes_read) == (100, 2, 9 * MIB)
    assert found.total_cost > 0
    assert found.text().startswith("100 manifests become 2; ")


@pytest.mark.parametrize(("manifests", "size"), [(1, 1), (3, 24 * MIB), (5, 24 * MIB), (10, 79 * MIB)])
def test_manifests_near_their_target_size_are_left(manifests: int, size: int) -> None:
    assert chosen(ManifestState(0, False, manifests, size, 1, manifests)).left == {0: ManifestsLeft.NO_GAIN}
    assert estimate_manifests(chosen(ManifestState(0, False, manifests, size, 1, manifests))).total_cost == 0


def test_manifests_over_which_each_partition_is_spread_are_clustered() -> None:
    spread = ManifestState(0, False, 10, 80 * MIB, 50, 500)
    assert chosen(spread).chosen[0].opened == 10
    assert chosen(spread).chosen[0].opened_after == pytest.approx(59 / 50)
    assert chosen(ManifestState(0, False, 10, 80 * MIB, 50, 59)).left == {0: ManifestsLeft.NO_GAIN}


@given(st.integers(1, 200), st.integers(1, 10**9), st.integers(1, 500), st.integers(1, 200))
def test_manifests_that_were_rewritten_are_not_chosen_again(
    manifests: int, size: int, partitions: int, spread: int
) -> None:
    state = ManifestState(0, False, manifests, size, partitions, max(partitions, spread, manifests))
    work = work_of(state, 8 * MIB)
    after = ManifestState(0, False, work.manifests_after, size, partitions, round(work.opened_after * partitions))
    assert not chosen(after).chosen
    if chosen(state).chosen:
        assert work.gain > 0


def test_delete_manifests_count_and_one_spec_alone_may_be_requested() -> None:
    states = [
        ManifestState(0, False, 3, 20 * MIB, 1, 3),
        ManifestState(0, True, 40, MIB, 1, 40),
        ManifestState(1, False, 9, MIB, 1, 9),
    ]
    assert list(chosen(*states).chosen) == [0, 1]
    assert chosen(*states).chosen[0] == work_of(states[0], 8 * MIB) + work_of(states[1], 8 * MIB)
    assert list(chosen(*states, spec_id=1).chosen) == [1]
    assert chosen(*states, spec_id=7) == ManifestsChoice()


def test_manifests_without_counts_and_below_the_least_benefit_are_left() -> None:
    state = ManifestState(0, False, 10, MIB, 1, 10)
    assert chosen(ManifestState(0, False, 10, MIB, 1, 10, uncounted=1)).left == {0: ManifestsLeft.UNCOUNTED}
    assert chosen(state, min_benefit=18.0).chosen == {0: ManifestWork(10, MIB, 1, 10.0, 1.0)}
    assert chosen(state, min_benefit=18.1).left == {0: ManifestsLeft.BENEFIT}


def test_the_target_size_of_manifests_is_the_tables() -> None:
    name = "commit.manifest.target-size-bytes"
    assert [target_size({name: text}) for text in ("1000", "0", "x", "")] == [1_000, *[8 * MIB] * 3]


def test_manifests_are_counted_by_spec_and_content_with_their_partitions() -> None:
    table = SyntheticTable(specs={0: SPEC, 1: ()}, current_spec=1)
    table.commit(data("1"), data("2"), data("3", day="b"))
    table.commit(data("4"), position("d"))
    table.commit(data("5"), spec=1)
    sizes = [one["manifest_length"] for one in table.manifests]
    assert table.files().states == [
        ManifestState(0, False, 2, sizes[0] + sizes[1], 2, 3),
        ManifestState(0, True, 1, sizes[2], 1, 1),
        ManifestState(1, False, 1, sizes[3], 1, 1),
    ]
    assert TableFiles(None).states == []
