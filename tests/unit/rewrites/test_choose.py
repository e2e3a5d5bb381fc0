"""Which partitions a compaction rewrites, as Iceberg's planner decides, and none for ever."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.rewrites.choose import (
    DataFile,
    Left,
    Partition,
    PartitionFiles,
    PartitionsChoice,
    Thresholds,
    choose,
    work_of,
)
from delegation.rewrites.terms import CompactionTerms

TARGET = 1_000
COLD = 1_000
THRESHOLDS = Thresholds.of(CompactionTerms(target_file_size_bytes=TARGET), {})


def partition(files: Sequence[DataFile], number: int = 0, **others: Any) -> PartitionFiles:
    """Return a partition with these files, of which the candidates are kept."""
    candidates = [file for file in files if THRESHOLDS.is_candidate(file)]
    size = sum(file.size for file in files)
    return PartitionFiles(Partition(0, ((1000, number),)), len(files), size, candidates, **others)


def chosen(*partitions: PartitionFiles, **options: Any) -> PartitionsChoice:
    defaults: dict[str, Any] = {"cold_before_ms": COLD, "cost": lambda work: work.bytes / 1e6 + 0.001}
    return choose(partitions, THRESHOLDS, **{**defaults, **options})


def small(count: int, size: int = 10) -> list[DataFile]:
    return [DataFile(size, 10)] * count


# What Iceberg 1.12 does, statement by statement


def planned_groups(files: Sequence[DataFile], thresholds: Thresholds) -> list[list[DataFile]]:
    def too_many_deletes(file: DataFile) -> bool:
        most = 2**31 - 1 if thresholds.delete_files is None else thresholds.delete_files
        return file.deletes >= most

    def too_high_delete_ratio(file: DataFile) -> bool:
        if file.deletes == 0:
            return False
        ratio = min(file.deleted, file.records) / file.records if file.records else math.nan
        return ratio >= 0.3

    filtered = [
        file
        for file in files
        if file.size < thresholds.least
        or file.size > thresholds.most
        or too_many_deletes(file)
        or too_high_delete_ratio(file)
    ]
    bins: list[list[DataFile]] = []
    packed: list[list[DataFile]] = []
    for file in filtered:
        fits = next((one for one in bins if sum(f.size for f in one) + file.size <= thresholds.group_bytes), None)
        if fits is not None:
            fits.append(file)
            continue
        bins.append([file])
        if len(bins) > 1:
            packed.append(bins.pop(0))
    packed += bins

    def wanted(group: list[DataFile]) -> bool:
        size = sum(file.size for file in group)
        return (
            (len(group) > 1 and len(group) >= thresholds.min_input_files)
            or (len(group) > 1 and size > thresholds.target)
            or size > thresholds.most
            or any(map(too_many_deletes, group))
            or any(map(too_high_delete_ratio, group))
        )

    return [group for group in packed if wanted(group)]


def expected_output_files(size: int, thresholds: Thresholds) -> int:
    target, least = thresholds.target, thresholds.least
    write_max = int(target + (thresholds.most - target) * 0.5)
    if size < target:
        return 1
    with_remainder, without_remainder = -(-size // target), size // target
    if size % target > least:
        return with_remainder
    if size // without_remainder < min(1.1 * target, float(write_max)):
        return without_remainder
    return with_remainder


@st.composite
def data_files(draw: st.DrawFn) -> DataFile:
    records = draw(st.integers(0, 100))
    deletes = draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
    return DataFile(draw(st.integers(1, 2_500)), records, deletes, draw(st.integers(0, 100)) if deletes else 0)


@st.composite
def thresholds(draw: st.DrawFn) -> Thresholds:
    target = draw(st.sampled_from([100, 1_000, 1_001, 777]))
    return Thresholds(
        target,
        int(target * 0.75),
        int(target * 1.8),
        draw(st.integers(1, 8)),
        draw(st.sampled_from([None, 1, 2, 3])),
        group_bytes=draw(st.sampled_from([3_000, 10**12])),
    )


@given(st.lists(data_files(), max_size=30), thresholds())
def test_the_groups_are_those_of_icebergs_planner(files: list[DataFile], limits: Thresholds) -> None:
    candidates = [file for file in files if limits.is_candidate(file)]
    assert list(limits.groups(candidates)) == planned_groups(files, limits)


@given(st.integers(1, 10**7), thresholds())
def test_a_group_is_written_into_as_many_files_as_iceberg_expects(size: int, limits: Thresholds) -> None:
    assert limits.files_after(size) == expected_output_files(size, limits)


def rewritten(files: Sequence[DataFile], limits: Thresholds, lasting: int) -> list[DataFile]:
    """Return the files after Iceberg rewrote them, each of a group of equal size."""
    after = [file for file in files if not limits.is_candidate(file)]
    left = [file for file in files if limits.is_candidate(file)]
    for group in planned_groups(files, limits):
        for file in group:
            left.remove(file)
        size, rows = sum(file.size for file in group), sum(file.records for file in group)
        count = limits.files_after(size)
        after += [DataFile(max(size // count, 1), rows // count, lasting)] * count
    return [*after, *left]


@given(st.lists(data_files(), max_size=20), thresholds(), st.integers(0, 2))
def test_each_rewrite_lowers_the_sum_of_files_and_deletes_so_every_sequence_ends(
    files: list[DataFile], limits: Thresholds, lasting: int
) -> None:
    runs, weight = 0, len(files) + sum(file.deletes for file in files)
    first = weight
    while True:
        candidates = [file for file in files if limits.is_candidate(file)]
        state = PartitionFiles(Partition(0, ()), len(files), 0, candidates, lasting=lasting)
        choice = choose([state], limits, cold_before_ms=COLD, cost=lambda _work: 1.0)
        if not choice.chosen:
            break
        files = rewritten(files, limits, lasting)
        now = len(files) + sum(file.deletes for file in files)
        assert now == weight - choice.work.gain
        assert now < weight
        weight, lasting, runs = now, 0, runs + 1
    assert runs <= first


@given(st.lists(data_files(), max_size=20), st.integers(2, 8))
def test_what_was_rewritten_once_is_not_chosen_again(files: list[DataFile], least: int) -> None:
    limits = Thresholds(TARGET, 750, 1_800, least, 1)
    after = rewritten(files, limits, 0)
    state = PartitionFiles(Partition(0, ()), len(after), 0, [one for one in after if limits.is_candidate(one)])
    assert not choose([state], limits, cold_before_ms=COLD, cost=lambda _work: 1.0).chosen


def test_two_files_that_would_become_two_such_files_are_left() -> None:
    pair = partition([DataFile(700, 10), DataFile(700, 10)])
    assert planned_groups(pair.candidates, THRESHOLDS) != []
    assert chosen(pair) == PartitionsChoice(left={Left.NO_GAIN: 1}, is_whole=False)


def test_one_large_file_that_would_become_two_is_left() -> None:
    assert chosen(partition([DataFile(2_000, 10)])).left == {Left.NO_GAIN: 1}


def test_small_files_are_chosen_from_five_on() -> None:
    assert not chosen(partition(small(4))).chosen
    work = chosen(partition(small(5))).work
    assert (work.files, work.files_after, work.gain) == (5, 1, 4)


def test_a_file_with_three_tenths_of_deleted_rows_is_rewritten_alone() -> None:
    assert not chosen(partition([DataFile(900, 100, 1, 29)])).chosen
    work = chosen(partition([DataFile(900, 100, 1, 30)])).work
    assert (work.files, work.files_after, work.deletes, work.gain) == (1, 1, 1, 1)


def test_a_file_of_no_rows_has_no_share_of_deleted_ones() -> None:
    assert not chosen(partition([DataFile(900, 0, 1, 5)])).chosen


def test_deletes_that_would_apply_to_the_new_files_too_are_no_gain() -> None:
    state = partition([DataFile(900, 100, 1, 50)], lasting=1)
    assert chosen(state).left == {Left.NO_GAIN: 1}


def test_a_hot_partition_is_left_and_the_others_are_selected_by_a_filter() -> None:
    hot, cold = partition(small(9), 1, newest_ms=COLD), partition(small(9), 2, newest_ms=COLD - 1)
    choice = chosen(hot, cold)
    assert [one.partition for one in choice.chosen] == [cold.partition]
    assert choice.left == {Left.HOT: 1}
    assert not choice.is_whole


def test_a_partition_that_needs_nothing_needs_no_filter() -> None:
    assert chosen(partition([DataFile(900, 1)], 1, newest_ms=COLD), partition(small(9), 2)).is_whole


def test_files_of_former_specs_are_left_while_another_partition_is() -> None:
    former, hot = partition(small(9), 1, former=3), partition(small(9), 2, newest_ms=COLD)
    assert chosen(former).is_whole
    assert chosen(former).chosen[0].has_former
    assert chosen(former, hot).left == {Left.HOT: 1, Left.NO_FILTER: 1}


def test_files_of_a_former_spec_are_written_into_every_partition() -> None:
    states = [partition(small(3), number) for number in range(20)]
    states.append(partition(small(12), 99, former=12))
    assert work_of(states[-1], THRESHOLDS, partitions=len(states)).files_after == len(states)
    assert chosen(*states).left == {Left.NO_GAIN: 1}


def test_what_no_filter_selects_is_left_if_anything_is() -> None:
    states = [partition(small(9), 1), partition(small(9), 2, newest_ms=COLD)]
    assert chosen(*states, has_filter=lambda _one: False).left == {Left.HOT: 1, Left.NO_FILTER: 1}
    assert chosen(states[0], has_filter=lambda _one: False).is_whole


def test_below_the_least_benefit_a_partition_is_left() -> None:
    state = partition(small(9))
    cost = 2.0
    assert chosen(state, cost=lambda _work: cost, min_benefit=4.0).work.gain == 8
    assert chosen(state, cost=lambda _work: cost, min_benefit=4.1).left == {Left.BENEFIT: 1}


def test_the_most_gain_for_its_cost_is_first_and_the_rest_waits_for_the_next_run() -> None:
    states = [partition(small(5 + number), number) for number in range(4)]
    choice = chosen(*states, cost=lambda _work: 1.0, most=2)
    assert [one.partition.values[0][1] for one in choice.chosen] == [3, 2]
    assert choice.left == {Left.NEXT_RUN: 2}


states = st.lists(
    st.builds(
        lambda files, age, number: partition(files, number, newest_ms=age),
        st.lists(data_files(), max_size=12),
        st.one_of(st.none(), st.integers(0, 2_000)),
        st.integers(0, 10**6),
    ),
    max_size=8,
    unique_by=lambda one: one.partition,
)


@given(states, st.integers(0, 2_000), st.integers(0, 2_000), st.floats(0, 50), st.floats(0, 50))
def test_more_is_chosen_the_colder_and_the_cheaper_and_never_what_is_hot(
    found: list[PartitionFiles], first: int, second: int, least: float, more: float
) -> None:
    def of(cold_before: int, min_benefit: float) -> set[Partition]:
        choice = chosen(*found, cold_before_ms=cold_before, min_benefit=min_benefit, cost=lambda work: work.files / 9)
        return {one.partition for one in choice.chosen}

    early, late = sorted((first, second))
    low, high = sorted((least, more))
    assert of(early, low) <= of(late, low)
    assert of(late, high) <= of(late, low)
    for one in found:
        if one.partition in of(late, low):
            assert one.newest_ms is None or one.newest_ms < late
            assert work_of(one, THRESHOLDS, partitions=len(found)).gain > 0


@given(st.lists(st.integers(1, 749), min_size=5, max_size=40), st.integers(1, 749))
def test_another_small_file_never_makes_a_rewrite_worth_less(sizes: list[int], size: int) -> None:
    files = [DataFile(one, 1) for one in sizes]
    before = work_of(partition(files), THRESHOLDS)
    after = work_of(partition([*files, DataFile(size, 1)]), THRESHOLDS)
    assert after.gain >= before.gain


@pytest.mark.parametrize(
    ("properties", "asked", "target"),
    [
        ({}, None, 512 * 1024**2),
        ({"write.target-file-size-bytes": "1000"}, None, 1_000),
        ({"write.target-file-size-bytes": "1000"}, 7_000, 7_000),
        ({"write.target-file-size-bytes": "large"}, None, 512 * 1024**2),
        ({"write.target-file-size-bytes": "0"}, None, 512 * 1024**2),
    ],
)
def test_the_target_is_the_requests_then_the_tables(properties: dict[str, str], asked: int | None, target: int) -> None:
    found = Thresholds.of(CompactionTerms(target_file_size_bytes=asked), properties)
    assert (found.target, found.least, found.most) == (target, int(target * 0.75), int(target * 1.8))
