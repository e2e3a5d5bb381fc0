"""Keys sort as their elements do and decode to them, whatever the elements are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polaris_persistence.errors import CorruptIndexError
from polaris_persistence.index.keys import MAX_KEY_BYTES, IndexKey
from tests.kit.outcomes import outcome
from tests.persistence.index.index_fixtures import key_elements


def in_utf8(elements: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(element.encode() for element in elements)


@settings(deadline=None)
@given(key_elements)
def test_elements_round_trip(elements: tuple[str, ...]) -> None:
    assert IndexKey.of(*elements).elements() == elements


@settings(deadline=None)
@given(key_elements, key_elements)
def test_keys_sort_as_their_elements_do(left: tuple[str, ...], right: tuple[str, ...]) -> None:
    assert (IndexKey.of(*left) < IndexKey.of(*right)) == (in_utf8(left) < in_utf8(right))
    assert (IndexKey.of(*left) == IndexKey.of(*right)) == (left == right)


@settings(deadline=None)
@given(key_elements, key_elements)
def test_only_keys_that_begin_with_a_key_are_between_its_bounds(
    prefix: tuple[str, ...], other: tuple[str, ...]
) -> None:
    lowest, beyond = IndexKey.of(*prefix).below()
    for elements in (other, prefix + other, prefix):
        assert (lowest <= IndexKey.of(*elements) < beyond) == (elements[: len(prefix)] == prefix)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_key_or_refused(data: bytes) -> None:
    elements = outcome(IndexKey(data).elements, CorruptIndexError)
    if isinstance(elements, CorruptIndexError):
        assert str(elements)
    else:
        assert IndexKey.of(*elements) == data


@pytest.mark.parametrize(
    "data", [b"\x01", b"a\x01\x00b", b"\x01\x03", b"\x01\x01\x01", b"\xff", b"\xe2\x82", b"a\x00\xed\xa0\x80"]
)
def test_bytes_that_no_elements_make_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        IndexKey(data).elements()


def test_the_order_is_that_of_code_points_across_surrogates() -> None:
    """UTF-16 would put U+1F600 (surrogates D83D DE00) before U+FFFF."""
    assert IndexKey.of("\uffff") < IndexKey.of("\U0001f600")


def test_a_key_is_limited_and_not_empty() -> None:
    assert len(IndexKey.of("x" * MAX_KEY_BYTES)) == MAX_KEY_BYTES
    for refused in ((), ("x" * (MAX_KEY_BYTES + 1),), ("\x00" * (MAX_KEY_BYTES // 2 + 1),), ("\ud800",)):
        with pytest.raises(ValueError):
            IndexKey.of(*refused)


def test_a_key_shows_its_elements_and_a_broken_one_its_bytes() -> None:
    assert repr(IndexKey.of("a", "\x00")) == "IndexKey.of('a', '\\x00')"
    assert repr(IndexKey(b"\x01")) == "IndexKey(b'\\x01')"
