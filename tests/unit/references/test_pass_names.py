"""The names of a pass are kept in a file, in the order of positions, whatever they are called."""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.identifiers import TableIdentifier
from delegation.references import names as module
from delegation.references.errors import ReferencesUnavailable
from delegation.references.model import TableEntry
from delegation.references.names import PassNames, Turn, position_of
from tests.bench.bench_references import traced

PART = st.text(st.sampled_from("ab\x00\x01\x02\uffff\U00010000é"), min_size=1, max_size=4)
NAME = st.builds(
    lambda namespace, name: TableIdentifier("cat", tuple(namespace), name), st.lists(PART, min_size=1, max_size=3), PART
)


def take_listing(names: PassNames, identifiers: Iterable[TableIdentifier]) -> None:
    names.begin_listing()
    names.list_names(identifiers)


def known(name: str, **fields: object) -> TableEntry:
    return TableEntry(TableIdentifier("cat", ("ns",), name), "uuid", "s3://b/x.json", ("s3://b/x/",), **fields)


@given(st.lists(NAME, unique=True, max_size=12), st.data())
def test_names_come_in_the_order_of_positions_and_after_any_of_them(listed, data):
    with PassNames("cat") as names:
        names.know(TableEntry(one, "uuid", "") for one in listed)
        take_listing(names, listed)
        ordered = sorted(listed, key=position_of)
        assert list(names.in_turn(None)) == [(one, Turn.IN_ORDER) for one in ordered]
        if listed:
            number = data.draw(st.integers(0, len(listed) - 1))
            at = position_of(ordered[number])
            assert [one for one, _ in names.in_turn(at)] == ordered[number + 1 :]
            assert [one for one, _ in names.in_turn(None, at)] == ordered[: number + 1]
            inside = ordered[number].namespace
            found = set(names.known_below(inside))
            assert found == {one for one in listed if one.namespace[: len(inside)] == inside}


def test_an_entry_comes_back_as_the_index_has_it():
    one = known(
        "t",
        etag='"e"',
        revision=7,
        problem="X: \ud800",
        problem_location="s3://b/y.json",
        problem_since=datetime(2026, 11, 22, 12, 0, 0, 5, tzinfo=UTC),
        displaced=frozenset({"u1", "u2"}),
        absent=True,
    )
    with PassNames("cat") as names:
        names.know([one])
        assert names.entry(one.identifier) == one
        assert names.entry(known("other").identifier) is None


def test_few_names_without_an_entry_come_first_and_a_marked_entry_is_none():
    with PassNames("cat") as names:
        names.know([*(known(f"k{number:02}") for number in range(30)), known("z", absent=True)])
        take_listing(names, [known(name).identifier for name in ("z", "a", *(f"k{number:02}" for number in range(30)))])
        turns = list(names.in_turn(("ns", "", "k28")))
    assert [(one.name, turn) for one, turn in turns] == [
        ("a", Turn.EARLY),
        ("z", Turn.EARLY),
        ("k29", Turn.IN_ORDER),
    ]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Limit the file to so many pages of 4 KB."""
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def limit(most: int) -> None:
        def small(*arguments: object, **more: object) -> sqlite3.Connection:
            made = connect(*arguments, **more)
            made.execute(f"PRAGMA max_page_count = {most}")
            return made

        monkeypatch.setattr(module.sqlite3, "connect", small)

    return limit


def test_a_file_without_room_is_an_error_that_says_where_to_make_some(pages: Callable[[int], None]) -> None:
    pages(20)
    with PassNames("cat") as names, pytest.raises(ReferencesUnavailable, match="TMPDIR") as full:
        take_listing(names, (known(f"t{number:05}").identifier for number in range(5_000)))
    assert full.value.retryable


def test_areas_with_one_beginning_take_little_of_the_file(pages: Callable[[int], None]) -> None:
    """As many and as long as an entry may have: uncompressed they would fill a function's 512 MB at 8,000 tables."""
    pages(100)
    below = "s3://b/" + "warehouse/" * 98
    areas = tuple(f"{below}{number:012}/" for number in range(64))
    with PassNames("cat") as names:
        names.know(replace(known(f"t{number}"), areas=areas) for number in range(200))
        assert names.entry(known("t7").identifier) == replace(known("t7"), areas=areas)


def test_the_memory_of_a_pass_does_not_grow_with_the_catalog():
    small, large = traced(100), traced(700)
    assert large - small < 128 * 1024, (small, large)
