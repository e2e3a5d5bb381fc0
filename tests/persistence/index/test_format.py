"""Index bytes decode to what was encoded, or are refused; they are small."""

import random
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polaris_persistence.errors import CorruptIndexError
from polaris_persistence.index.format import (
    Entries,
    Stripe,
    decode_head,
    decode_segment,
    encode_head,
    encode_segment,
)
from polaris_persistence.index.keys import MAX_KEY_BYTES, IndexKey
from polaris_persistence.index.varints import common_prefix, read_varint, varint
from polaris_persistence.objects.objects import ObjectRef
from tests.effort import examples
from tests.persistence.index.index_fixtures import key_elements, keys, name, refs, table

Items = list[tuple[bytes, ObjectRef | None]]


def ordered(values: dict[IndexKey, ObjectRef | None]) -> Items:
    return sorted(values.items(), key=lambda item: item[0])


def content(entries: Entries) -> Items:
    return [(key, entries.ref(number)) for number, key in enumerate(entries.keys)]


@settings(deadline=None)
@given(st.dictionaries(keys, refs, max_size=30))
def test_a_segment_reads_as_written(values: dict[IndexKey, ObjectRef]) -> None:
    items = ordered(dict(values))
    assert content(decode_segment(encode_segment(items))) == items


@settings(deadline=None)
@given(
    st.dictionaries(keys, st.one_of(st.none(), refs), max_size=30),
    st.dictionaries(
        keys, st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(0, 2**30)), max_size=9
    ),
)
def test_a_head_reads_as_written(
    values: dict[IndexKey, ObjectRef | None], ranges: dict[IndexKey, tuple[int, int, int]]
) -> None:
    stripes = [Stripe(separator, *rest) for separator, rest in sorted(ranges.items())]
    stripes[:1] = [stripe._replace(separator=b"") for stripe in stripes[:1]]
    stripes = stripes[:1] + [stripe for stripe in stripes[1:] if stripe.separator]
    read, entries = decode_head(encode_head(stripes, ordered(values)))
    assert list(read) == stripes
    assert content(entries) == ordered(values)


@settings(deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_the_common_prefix_is_the_longest(left: bytes, right: bytes) -> None:
    length = common_prefix(left, right)
    assert left[:length] == right[:length]
    assert left[length : length + 1] != right[length : length + 1] or not left[length:] or not right[length:]


def test_a_hundred_thousand_tables_take_at_most_thirteen_bytes_each() -> None:
    chance = random.Random(7)
    for layout in (name, lambda number: IndexKey.of(f"ns{number // 1_000:03}", f"table_{number:06}")):
        items = sorted((layout(number), table(chance.getrandbits(63))) for number in range(100_000))
        assert len(encode_segment(items)) <= 13 * len(items)


SAMPLE = encode_segment(sorted((name(number), table(number * 7 + 2**60, "tv"[number % 2])) for number in range(120)))
HEAD = encode_head(
    [Stripe(b"", 5, 900, 40), Stripe(b"ns004", 2**62, 1_000, 41)],
    [(key, ref if number % 5 else None) for number, (key, ref) in enumerate(content(decode_segment(SAMPLE)))],
)
READERS: list[tuple[Callable[[bytes], object], bytes]] = [(decode_segment, SAMPLE), (decode_head, HEAD)]


@pytest.mark.parametrize(("read", "good"), READERS)
def test_every_truncation_and_every_flipped_bit_is_refused(read: Callable[[bytes], object], good: bytes) -> None:
    for length in range(len(good)):
        with pytest.raises(CorruptIndexError):
            read(good[:length])
    for bit in range(8 * len(good)):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptIndexError):
            read(bytes(flipped))


def sealed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4)


def plain(text: bytes, ids: bytes = b"", form: int = 1) -> bytes:
    return sealed(bytes([form]) + varint(len(text)) + b"\x00" + text + ids)


def survives(read: Callable[[bytes], Entries], data: bytes) -> None:
    """Accepted bytes are complete: they can be encoded again and decode to the same."""
    try:
        entries = read(data)
    except CorruptIndexError:
        return
    items = content(entries)
    assert content(head_entries(encode_head([], items))) == items
    assert all(IndexKey.of(*IndexKey(key).elements()) == key for key, _ in items)


def head_entries(data: bytes) -> Entries:
    return decode_head(data)[1]


@settings(max_examples=examples(400), deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=40), st.sampled_from([1, 2]))
def test_arbitrary_text_under_a_right_checksum_is_read_or_refused(text: bytes, ids: bytes, form: int) -> None:
    survives(decode_segment if form == 1 else head_entries, plain(text, ids, form))


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_damaged_text_under_a_right_checksum_is_read_or_refused(data: st.DataObject) -> None:
    items = [(name(number), table(number + 3)) for number in (1, 2, 101, 102, 201)]
    good = encode_segment(sorted(items))
    length, position = read_varint(good, 1, len(good))
    deflated, position = read_varint(good, position, len(good))
    text = bytearray(
        zlib.decompress(good[position : position + deflated], -15) if deflated else good[position:][:length]
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    survives(decode_segment, plain(bytes(text), bytes(data.draw(st.integers(3, 6)))))


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_damaged_deflated_bytes_under_a_right_checksum_are_read_or_refused(data: st.DataObject) -> None:
    good = bytearray(SAMPLE[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(1, len(good) - 1))
        good[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    survives(decode_segment, sealed(bytes(good)))


NO_KINDS = b"\x00" + bytes(8) + b"\x00"
ONE_KIND = b"\x01\x01t\x01" + bytes(8) + b"\x01"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (plain(NO_KINDS + b"\x00", form=2), "form 2"),
        (SAMPLE[:-1] + b"!", "checksum"),
        (plain(b"\xff" * 12), "does not end"),
        (plain(NO_KINDS + b"\xff\xff\xff\x7f"), "items stated"),
        (plain(b"\xff\xff\xff\x7f"), "items stated"),
        (plain(b"\x01\x7ft\x01"), "type name exceeds"),
        (plain(b"\x01\x01\xff\x01"), "not UTF-8"),
        (plain(b"\x01\x01t\x00"), "0 parts"),
        (plain(ONE_KIND + b"\x02\x08b\x09a", b"\x00\x00"), "do not ascend"),
        (plain(ONE_KIND + b"\x01\x09a", b"\x00"), "key exceeds"),
        (plain(ONE_KIND + b"\x01\x78" + varint(MAX_KEY_BYTES + 1) + b"a" * (MAX_KEY_BYTES + 1), b""), "key exceeds"),
        (plain(ONE_KIND + b"\x01\x10a", b"\x00"), "key exceeds"),
        (plain(ONE_KIND + b"\x02\x08a", b"\x00\x00"), "entries are missing"),
        (plain(ONE_KIND + b"\x01\x88a\x02", b"\x00"), "not in the list"),
        (plain(ONE_KIND + b"\x01\x88a\x00"), "holds a removal"),
        (plain(ONE_KIND + b"\x01\x08a"), "length of the ids"),
        (plain(ONE_KIND + b"\x01\x08a!", b"\x00"), "left over"),
        (plain(ONE_KIND + b"\x01\x08\x01", b"\x00"), "escape"),
        (plain(b"\x01\x01t\x01" + b"\xff" * 8 + b"\x01\x01\x08a", b"\x00"), "63 bits"),
        (sealed(b"\x01\x05\x05hello"), "inflated"),
        (sealed(b"\x01\x05\x40x"), "text exceeds"),
        (sealed(b"\x01\xff\xff\xff\xff\x0f\x01x"), "text exceeds"),
    ],
)
def test_malformed_bytes_are_refused_with_their_reason(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptIndexError, match=reason) as refused:
        decode_segment(data)
    assert refused.value.offset <= len(data)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\x7f", "items stated"),
        (b"\x01\x01\x00" + bytes(8) + b"\x00\x00", "separator exceeds"),
        (b"\x01\x00\x01a" + bytes(8) + b"\x00\x00", "separators do not ascend"),
        (b"\x02\x00\x00" + bytes(8) + b"\x00\x00" + b"\x00\x00" + bytes(8) + b"\x00\x00", "separators do not ascend"),
        (b"\x01\x00\x00" + b"\xff" * 8 + b"\x00\x00", "63 bits"),
    ],
)
def test_malformed_stripes_are_refused_with_their_reason(text: bytes, reason: str) -> None:
    with pytest.raises(CorruptIndexError, match=reason):
        decode_head(plain(text + NO_KINDS + b"\x00", form=2))


@settings(deadline=None)
@given(key_elements)
def test_text_longer_than_stated_is_refused(elements: tuple[str, ...]) -> None:
    text = NO_KINDS + b"\x00" + "".join(elements).encode() + b"!" * 100
    deflated = zlib.compress(text, wbits=-15)
    with pytest.raises(CorruptIndexError, match="differs from the stated length"):
        decode_segment(sealed(b"\x01" + varint(len(text) - 1) + varint(len(deflated)) + deflated))
