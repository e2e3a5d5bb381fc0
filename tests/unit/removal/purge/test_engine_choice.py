"""The engine is chosen by how many files there are, and by whether one process can read the manifests in its time."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.errors import GuardRefused
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.removal.choice import Size
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.storage.memory import Faults
from tests.kit.errors import coded
from tests.kit.lakes.lake import PurgedTables
from tests.unit.removal.purge.sizes import state

MANIFESTS = 7  # of a busy table, in 5 lists
COUNTS = st.none() | st.integers(0, 400_000)
LISTED = st.builds(
    ManifestFile,
    st.just("s3://lake/m.avro"),
    st.none() | st.integers(0, 2**30),
    added_files_count=COUNTS,
    existing_files_count=COUNTS,
    deleted_files_count=COUNTS,
)


def by_default(
    bench: PurgedTables, faults: Faults | None = None, seconds: Iterator[float] | None = None
) -> PurgeContext:
    """Return a purge with the usual settings, and a clock that shows these seconds."""
    ctx = bench.context("t", settings=PurgeSettings(read_threads=1), faults=faults)
    return ctx if seconds is None else dataclasses.replace(ctx, now=lambda: next(seconds))


@pytest.mark.parametrize(
    ("stated", "engine"),
    [
        ({"added_files_count": 2_000 // MANIFESTS}, "inline"),
        ({"added_files_count": 300_000 // MANIFESTS}, "inline"),
        ({"added_files_count": 10_000_000 // MANIFESTS}, "spark"),
        ({"manifest_length": 50 * 2**20}, "inline"),
        ({"manifest_length": 5_000 * 2**20}, "spark"),
    ],
)
def test_what_one_process_can_read_in_its_time_is_purged_inline(
    bench: PurgedTables, stated: dict[str, int], engine: str
) -> None:
    """Rows with many columns have many bounds: a table with few files may have manifests of gigabytes."""
    state(bench.lake, "t", **stated)
    assert estimate(by_default(bench)).engine == engine


def test_former_metadata_files_are_counted_and_few_of_them_read(bench: PurgedTables) -> None:
    former = bench.lake.metadata("t")["metadata-log"]
    assert len(former) == 5
    faults = Faults()
    found = estimate(by_default(bench, faults))
    bench.lake.rewrite_metadata("t", {"metadata-log": []})
    assert found.files == estimate(by_default(bench)).files + len(former)
    assert faults.names.count("read") == 5 + 1


def test_an_estimate_stops_among_former_metadata_files_when_its_time_is_over(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"snapshots": []})
    assert estimate(by_default(bench, seconds=itertools.count(0.0, 15.0))).engine == "spark"


def test_without_spark_inline_takes_what_it_can_and_the_rest_is_refused(bench: PurgedTables) -> None:
    without = PurgeSettings(read_threads=1, has_spark=False)
    assert estimate(bench.context("t", settings=without)).engine == "inline"
    with pytest.raises(GuardRefused, check=coded("SPARK_NOT_AVAILABLE"), match="the request asks for Spark"):
        estimate(bench.context("t", settings=without, options=PurgeOptions(engine="spark")))
    state(bench.lake, "t", added_files_count=10_000_000 // MANIFESTS)
    with pytest.raises(GuardRefused, check=coded("SPARK_NOT_AVAILABLE"), match="delegation:emr-subnet-ids"):
        estimate(bench.context("t", settings=without))


def test_manifests_that_do_not_fit_the_memory_of_a_lambda_are_read_with_spark(bench: PurgedTables) -> None:
    state(bench.lake, "t", manifest_length=250 * 2**20)
    assert estimate(by_default(bench)).engine == "inline"
    assert estimate(bench.context("t", settings=PurgeSettings(read_threads=8))).engine == "spark"


@pytest.mark.parametrize(("seconds_a_read", "engine"), [(PurgeSettings().read_seconds, "inline"), (60.0, "spark")])
def test_many_small_manifests_are_read_with_spark(bench: PurgedTables, seconds_a_read: float, engine: str) -> None:
    settings = PurgeSettings(read_threads=8, longest_planning_seconds=60.0, read_seconds=seconds_a_read)
    assert estimate(bench.context("t", settings=settings)).engine == engine


@pytest.mark.parametrize(("requested", "engine"), [(None, "spark"), ("inline", "inline")])
def test_a_table_whose_lists_take_long_to_count_is_purged_with_spark_unless_inline_is_requested(
    bench: PurgedTables, requested: Any, engine: str
) -> None:
    faults = Faults()
    ctx = by_default(bench, faults, itertools.count(0.0, 15.0))
    assert estimate(dataclasses.replace(ctx, options=PurgeOptions(engine=requested))).engine == engine
    assert faults.names.count("read") < 5


@given(st.lists(LISTED, max_size=3), st.lists(LISTED, max_size=3), st.integers(1, 8))
def test_counting_may_stop_as_soon_as_a_part_is_too_large(
    part: list[ManifestFile], rest: list[ManifestFile], threads: int
) -> None:
    settings = PurgeSettings(read_threads=threads)
    some, whole = (Size.of(found, 1, threads=threads) for found in (part, [*part, *rest]))
    assert some.seconds(settings) <= whole.seconds(settings)
    assert some.fits_a_function(settings) or not whole.fits_a_function(settings)
