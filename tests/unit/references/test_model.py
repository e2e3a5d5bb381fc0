"""The areas of a table cover every file of it, and there are few of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.identifiers import TableIdentifier
from delegation.references.blocking import Blocking, Exemption, Subject
from delegation.references.errors import ReferencesNotKnown
from delegation.references.model import (
    EVERYWHERE,
    LONGEST_AREA_BYTES,
    MOST_AREAS,
    TableEntry,
    areas_of,
    around,
    directory_of,
    fold,
    overlap,
    parent_of,
)

PARTS = st.text("abé", max_size=2)
PATHS = st.builds(
    lambda bucket, parts: f"s3://{bucket}/{'/'.join(parts)}",
    st.sampled_from(["one", "two"]),
    st.lists(PARTS, min_size=1, max_size=6),
)


@given(st.lists(PATHS, max_size=60), st.integers(2, 12))
def test_folded_areas_cover_every_file_and_are_few(paths, most):
    areas = fold(map(directory_of, paths), most=most)
    assert len(areas) <= most
    assert all(path.startswith(areas) for path in paths)
    assert list(areas) == sorted(set(areas))


@given(st.lists(PATHS, min_size=1, max_size=8))
def test_few_directories_stay_as_they_are(paths):
    areas = fold(map(directory_of, paths))
    assert set(areas) <= set(map(directory_of, paths))


def test_directories_are_replaced_by_the_nearest_ones_around_them():
    files = [f"s3://b/lake/t/data/day={day}/f.parquet" for day in range(MOST_AREAS + 1)]
    assert fold(map(directory_of, files)) == ("s3://b/lake/t/data/",)


def test_more_buckets_than_areas_are_everywhere():
    files = [f"s3://b{number}/f" for number in range(30_000)]
    assert fold(map(directory_of, files)) == (EVERYWHERE,)
    assert fold([EVERYWHERE, *map(directory_of, files[:3])]) == (EVERYWHERE,)
    assert overlap(EVERYWHERE, "s3://b/t/")
    assert around(EVERYWHERE) == (EVERYWHERE,)


def test_places_that_no_bucket_has_are_left_out():
    """A name of 701 bytes once made the folding loop for ever."""
    long = f"s3://{'b' * 701}/t"
    assert areas_of([long, "s3://b/t"], [f"{long}/f", f"s3://b/{'k' * 1100}/f", "s3://c/f"]) == ("s3://b/t/", "s3://c/")


def test_deep_directories_are_folded_in_little_time():
    """Level by level this took minutes, without a look at whether the attempt still has its task."""
    files = [f"s3://b{number % 50}/{'a/' * 300}{number}/f" for number in range(4_000)]
    areas = fold(map(directory_of, files))
    assert len(areas) == 50
    assert all(file.startswith(areas) for file in files)


def test_an_area_fits_into_a_sort_key():
    deep = f"s3://b/{'é' * 200}/{'x' * 255}/{'y' * 255}/file"
    (area,) = fold([directory_of(deep)])
    assert deep.startswith(area)
    assert len(area.encode()) <= LONGEST_AREA_BYTES


@given(PATHS)
def test_the_areas_around_an_area_end_with_its_bucket(path):
    area = directory_of(path)
    found = around(area)
    assert found[0] == area
    assert all(parent_of(one) == other for one, other in pairwise(found))
    assert found[-1] in {"s3://one/", "s3://two/"}


@given(PATHS, PATHS)
def test_areas_overlap_when_one_is_around_the_other(one, other):
    first, second = directory_of(one), directory_of(other)
    assert overlap(first, second) == (first in around(second) or second in around(first))


def test_locations_in_other_storage_are_left_out():
    assert areas_of(["s3a://b/t", "gs://b/t", "s3://b/u?x"], ["s3://c/d/f"]) == ("s3://b/t/", "s3://c/d/")


def test_a_file_of_this_machine_has_an_area():
    assert directory_of("file:///lake/t/f") == "file:///lake/t/"
    assert around("file:///lake/") == ("file:///lake/", "file:///")


@pytest.mark.parametrize(
    ("checked", "tables", "text"),
    [
        (1, None, "1 table is checked"),
        (12, 26, "12 of 26 tables are checked"),
        (26, 26, "26 of 26 tables are checked"),
        (55, 26, "the pass has made 55 checks; the last complete pass had 26 tables"),
    ],
)
def test_a_pass_is_never_said_to_have_checked_more_tables_than_there_are(
    checked: int, tables: int | None, text: str
) -> None:
    error = ReferencesNotKnown("lake", checked, tables)
    assert f"({text})" in str(error)
    assert "purge" not in str(error)  # a removal or an expiry waits in the same way


def test_more_unreadable_files_than_an_entry_has_room_for_are_not_known_one_by_one() -> None:
    table = TableIdentifier("cat", ("ns",), "t")
    few, many = (frozenset(number.to_bytes(8, "big") for number in range(count)) for count in (4_000, 4_001))
    assert TableEntry(table, "u", "", problem="X: no", unread=few).bounded().unread == few
    assert TableEntry(table, "u", "", problem="X: no", unread=many).bounded().unread is None


def test_an_exemption_of_an_earlier_release_is_of_the_metadata_location_that_it_names() -> None:
    now = datetime(2026, 11, 28, tzinfo=UTC)
    seen = Blocking(Subject("cat", ("ns",), "t"), "X: no", now, "u", "s3://b/1.json", unread=frozenset({b"1" * 8}))
    earlier = replace(Exemption.of(seen, why="known", by="me", now=now), unread=None)
    assert earlier.covers(seen, now)
    assert not earlier.covers(replace(seen, metadata_location="s3://b/2.json"), now)


def test_an_exemption_covers_a_table_until_it_ends() -> None:
    now = datetime(2026, 11, 28, tzinfo=UTC)
    blocking = Blocking(Subject("lake", ("ns",), "t"), "CORRUPT_METADATA: x", now, "uuid")
    exemption = Exemption.of(blocking, why="known", by="me", now=now)
    assert exemption.covers(blocking, exemption.until - timedelta(microseconds=1))
    assert not exemption.covers(blocking, exemption.until)
