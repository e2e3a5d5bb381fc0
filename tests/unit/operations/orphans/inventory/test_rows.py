"""The rows of a report come out the same however its bytes are cut, and memory does not grow with a file."""

import gzip
import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.operations.orphans.errors import OrphansError
from delegation.operations.orphans.inventory.manifest import InventoryReport, ReportFile
from delegation.operations.orphans.inventory.rows import RowReader, checked, lines_of
from delegation.operations.orphans.inventory.witnesses import _some
from delegation.storage.listing.model import ListedObject
from tests.kit.errors import coded
from tests.unit.operations.orphans.inventory.reports import COLUMNS, packed, row

KEYS = ("t/a b", "t/c+d", "t/%41", "t/é\u2028", 't/"q",x', "t/\n\r", "other/x", "t/" + "l" * 900)
REPORT = InventoryReport("s3://r/manifest.json", "lake", 0, COLUMNS, (), "")


def described(data: bytes) -> ReportFile:
    return ReportFile("f.csv.gz", len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())


def cut(data: bytes, ends: list[int]) -> Iterator[bytes]:
    at = 0
    for end in sorted({*ends, len(data)}):
        if end > at:
            yield data[at:end]
            at = end


def read(data: bytes, ends: list[int], file: ReportFile | None = None) -> list[ListedObject]:
    reader, file = RowReader(REPORT, "t/"), file or described(data)
    return [one for lines in lines_of(checked(cut(data, ends), file), file) for one in reader.read(lines, file).objects]


ROWS = [row(key, key.encode(), 1_600_000_000 + at) for at, key in enumerate(KEYS)]
WHOLE = packed(ROWS, COLUMNS)


@given(st.lists(st.integers(0, len(WHOLE)), max_size=30))
def test_the_rows_of_a_file_are_the_same_however_it_is_cut(ends: list[int]) -> None:
    found = read(WHOLE, ends)
    assert [one.key for one in found] == [key for key in KEYS if key.startswith("t/")]
    assert [one.modified for one in found] == [1_600_000_000 + at for at in (0, 1, 2, 3, 4, 5, 7)]
    assert all(one.etag == f'"{hashlib.md5(one.key.encode(), usedforsecurity=False).hexdigest()}"' for one in found)


@given(st.lists(st.integers(0, 2 * len(WHOLE)), max_size=30))
def test_a_file_of_several_gzip_members_is_read_to_its_end(ends: list[int]) -> None:
    assert read(WHOLE + WHOLE, ends) == read(WHOLE, []) * 2


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_byte_that_was_changed_is_always_noticed(at: int, change: int) -> None:
    file = described(WHOLE)
    broken = WHOLE[:at] + bytes([WHOLE[at] ^ change]) + WHOLE[at + 1 :]
    with pytest.raises(OrphansError, check=coded("INVENTORY_DAMAGED")):
        read(broken, [7, 90], file)


@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_that_is_cut_short_is_noticed_even_without_its_checksum(length: int) -> None:
    short = WHOLE[:length]
    if not short:
        assert read(short, []) == []
        return
    with pytest.raises(OrphansError, check=coded("INVENTORY_DAMAGED")):
        read(short, [])


def test_a_row_without_end_is_damage_and_not_memory() -> None:
    with pytest.raises(OrphansError, check=coded("INVENTORY_DAMAGED"), match="a row of more than"):
        read(gzip.compress(b"x" * 5_000_000), [])


def test_a_file_that_unpacks_to_a_hundred_times_its_size_takes_flat_memory() -> None:
    data = gzip.compress(packed_line() * 300_000)
    file = described(data)
    reader = RowReader(REPORT, "nothing/")
    tracemalloc.start()
    try:
        for lines in lines_of(checked(cut(data, list(range(0, len(data), 1 << 18))), file), file):
            assert reader.read(lines, file).objects == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(packed_line()) * 300_000 > 30_000_000
    assert peak < 6_000_000


def packed_line() -> bytes:
    return gzip.decompress(packed([row("t/" + "k" * 60, b"x", 1_600_000_000)], COLUMNS))


@given(st.integers(0, 300), st.integers(2, 64))
def test_some_are_spread_evenly_with_the_first_and_the_last(count: int, most: int) -> None:
    found = list(_some(range(count), most))
    assert len(found) == min(count, most)
    assert found == sorted(set(found))
    assert not count or (found[0], found[-1]) == (0, count - 1)
