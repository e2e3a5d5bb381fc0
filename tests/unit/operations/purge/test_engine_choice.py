"""The engine is chosen by how many files there are, and by whether one process can read the manifests in its time."""

import dataclasses
import itertools

import pytest

from delegation.operations.purge.choose import estimate
from delegation.operations.purge.context import PurgeContext, PurgeSettings
from delegation.operations.purge.options import PurgeOptions
from delegation.storage.memory import Faults
from tests.unit.operations.purge.lake import Bench, busy_table
from tests.unit.operations.purge.sizes import state

MANIFESTS = 7  # of a busy table, in 5 lists


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    busy_table(bench.lake, "t")
    return bench


def by_default(bench: Bench, faults: Faults | None = None) -> PurgeContext:
    return bench.context("t", settings=PurgeSettings(read_threads=1), faults=faults)


@pytest.mark.parametrize("files", [2_000, 300_000])
def test_a_table_that_a_lambda_purges_in_its_time_is_purged_inline(bench: Bench, files: int) -> None:
    state(bench.lake, "t", added_files_count=files // MANIFESTS)
    assert estimate(by_default(bench)).engine == "inline"


def test_a_table_of_ten_million_files_is_purged_with_spark(bench: Bench) -> None:
    state(bench.lake, "t", added_files_count=10_000_000 // MANIFESTS)
    assert estimate(by_default(bench)).engine == "spark"


def test_manifests_that_one_process_cannot_read_in_its_time_are_read_with_spark(bench: Bench) -> None:
    """Rows with many columns have many bounds: a table with few files may have manifests of gigabytes."""
    state(bench.lake, "t", manifest_length=50 * 2**20)
    assert estimate(by_default(bench)).engine == "inline"
    state(bench.lake, "t", manifest_length=5_000 * 2**20)
    assert estimate(by_default(bench)).engine == "spark"


def test_manifests_that_do_not_fit_the_memory_of_a_lambda_are_read_with_spark(bench: Bench) -> None:
    state(bench.lake, "t", manifest_length=250 * 2**20)
    assert estimate(by_default(bench)).engine == "inline"
    assert estimate(bench.context("t", settings=PurgeSettings(read_threads=8))).engine == "spark"


def test_many_small_manifests_are_read_with_spark(bench: Bench) -> None:
    few = PurgeSettings(read_threads=8, longest_planning_seconds=60.0)
    ctx = bench.context("t", settings=few)
    assert estimate(ctx).engine == "inline"
    slow = dataclasses.replace(few, read_seconds=60.0)
    assert estimate(dataclasses.replace(ctx, settings=slow)).engine == "spark"


def test_a_table_whose_lists_take_long_to_count_is_purged_with_spark(bench: Bench) -> None:
    seconds = itertools.count(step=15.0)
    faults = Faults()
    ctx = dataclasses.replace(by_default(bench, faults), now=lambda: next(seconds))
    found = estimate(ctx)
    assert found.engine == "spark"
    assert faults.names.count("read") < 5


def test_a_requested_engine_is_used_whatever_was_counted_in_time(bench: Bench) -> None:
    seconds = itertools.count(step=15.0)
    faults = Faults()
    ctx = dataclasses.replace(by_default(bench, faults), now=lambda: next(seconds))
    inline = dataclasses.replace(ctx, options=PurgeOptions(engine="inline"))
    assert estimate(inline).engine == "inline"
    assert faults.names.count("read") < 5
