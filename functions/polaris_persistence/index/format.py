"""The binary form of index entries: sorted, prefix-compressed, checked (NoSQL persistence proposal, Object Indexes).

    segment  = 01, text, ids, crc32 of all before it (4 bytes)          a stripe's value
    head     = 02, text, ids, crc32                                     the index bytes of a head object
    text     = length, deflated length, deflated bytes                  not deflated if that length is 0
    ... of a head begins with      stripes count, { strip, length, separator's tail, id (8 bytes), size, entries } …
    ... of both continues with     kinds count, { length, type name, parts } …, lowest id (8 bytes), width,
                                   entries count, { control, [strip], [length], key's tail, [kind] } …
    control  = bit 7: a kind follows, else it is that of the previous entry (1 before the first)
               bits 3-6: length of the tail, 15 for "varint follows"
               bits 0-2: bytes to strip from the end of the previous key, 7 for "varint follows"
    ids      = each entry's id less the lowest, in width bytes; none for a removal

Kind 0 is a removal, kind n the n-th (type, parts) of the list. Other numbers are varints (LEB128), ids are big-endian.
Keys ascend strictly; the separator of the first stripe is empty, and a stripe holds the keys from its separator up to
the next one. Bytes either decode to what was encoded or raise CorruptIndexError.
"""

import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator

from polaris_persistence.backends.base import MAX_ID, MAX_PARTS, PART_BYTES
from polaris_persistence.errors import CorruptIndexError
from polaris_persistence.index.keys import MAX_KEY_BYTES, check_keys
from polaris_persistence.index.varints import check_count, common_prefix, read_varint, varint
from polaris_persistence.objects.objects import ObjectRef

SEGMENT: Final = 1
HEAD: Final = 2
STRIPE_TYPE: Final = "index-stripe"

_ID_BYTES: Final = 8
_CRC_BYTES: Final = 4
_KIND_FOLLOWS: Final = 0x80
_MANY_ADDED: Final = 15
_MANY_STRIPPED: Final = 7
_RAW: Final = -15
_OWN_BYTES: Final = 350
"""The bytes of the tuples and lists around a decoded head, approximately."""
_STRIPE_BYTES: Final = 300
"""The bytes of a stripe's record without its separator, approximately."""
_MOST_INFLATED: Final = 1_032
"""Deflate expands a byte to no more; a larger stated length is refused before anything is allocated."""

Kind = tuple[str, int] | None


class Stripe(NamedTuple):
    """A head's record of a stripe: its lowest possible key, object id, size in bytes and number of entries."""

    separator: bytes
    id: int
    size: int
    entries: int

    @property
    def ref(self) -> ObjectRef:
        # 32 bytes for the CBOR around the value; a hint that is still wrong costs a round trip.
        return ObjectRef(STRIPE_TYPE, self.id, max(1, -(-(self.size + 32) // PART_BYTES)))


@dataclass(frozen=True, slots=True)
class Entries:
    """Decoded entries: `kinds[i]` is the index in `table` of entry i, `ids[i]` is 0 for a removal.

    Ids and kinds are arrays, because a list of integers takes five times as much memory.
    """

    keys: list[bytes]
    ids: "array[int]"
    kinds: "array[int]"
    table: list[Kind]

    def held_bytes(self) -> int:
        own = sum(map(sys.getsizeof, (self, self.keys, self.ids, self.kinds, self.table)))
        return own + sum(map(sys.getsizeof, self.keys)) + sum(map(sys.getsizeof, self.table))

    def position(self, key: bytes) -> int | None:
        position = bisect_left(self.keys, key)
        return position if position < len(self.keys) and self.keys[position] == key else None

    def ref(self, position: int) -> ObjectRef | None:
        """Return the value of an entry, None for a removal."""
        kind = self.table[self.kinds[position]]
        return None if kind is None else ObjectRef(kind[0], self.ids[position], kind[1])


EMPTY: Final = Entries([], array("Q"), array("I"), [None])


class EmbeddedIndex(bytes):
    """The index bytes of a head, decoded at most once while the head is held."""

    _decoded: "tuple[tuple[Stripe, ...], list[bytes], Entries] | None" = None

    def decoded(self) -> tuple[tuple[Stripe, ...], list[bytes], Entries]:
        """Return the stripes, their separators and the embedded entries. Raises CorruptIndexError."""
        if self._decoded is None:
            stripes, entries = decode_head(self)
            self._decoded = stripes, [stripe.separator for stripe in stripes], entries
        return self._decoded

    def held_bytes(self) -> int:
        """Return how many bytes the index takes in memory once it is decoded."""
        own = sys.getsizeof(self) + _OWN_BYTES
        if not self:
            return own
        try:
            stripes, _, entries = self.decoded()
        except CorruptIndexError:
            return own  # its reader gets the error
        return own + entries.held_bytes() + sum(_STRIPE_BYTES + len(stripe.separator) for stripe in stripes)


IndexBytes = Annotated[bytes, AfterValidator(EmbeddedIndex)]
"""The type of a model's field that holds the index bytes of a head."""


def encode_segment(entries: Sequence[tuple[bytes, ObjectRef | None]]) -> bytes:
    """Return the value of a stripe with the entries, sorted by key."""
    return _sealed(SEGMENT, [], entries)


def encode_head(stripes: Sequence[Stripe], entries: Sequence[tuple[bytes, ObjectRef | None]]) -> bytes:
    """Return the index bytes of a head with stripes and embedded entries, both sorted."""
    parts = [varint(len(stripes))]
    last = b""
    for stripe in stripes:
        shared = common_prefix(last, stripe.separator)
        tail = stripe.separator[shared:]
        parts += [varint(len(last) - shared), varint(len(tail)), tail, stripe.id.to_bytes(_ID_BYTES)]
        parts += [varint(stripe.size), varint(stripe.entries)]
        last = stripe.separator
    return _sealed(HEAD, parts, entries)


def entries_of(items: Sequence[tuple[bytes, ObjectRef | None]]) -> Entries:
    """Return sorted items as decoding their segment would."""
    table = _table(items)
    kinds = [0 if ref is None else table[ref.type, ref.parts] for _, ref in items]
    ids = array("Q", (0 if ref is None else ref.id for _, ref in items))
    return Entries([bytes(key) for key, _ in items], ids, array("I", kinds), list(table))


def entry_sizes(entries: Sequence[tuple[bytes, ObjectRef | None]]) -> list[int]:
    """Return how many bytes each entry takes before deflating."""
    _, width = _id_range(entries)
    return [len(chunk) + width for chunk in _chunks(entries, _table(entries))]


def decode_segment(data: bytes) -> Entries:
    """Return the entries of a stripe's value. Raises CorruptIndexError."""
    text, ids = _opened(data, SEGMENT)
    entries = _read_body(text, 0, ids)
    if 0 in entries.kinds:
        raise CorruptIndexError(-1, "a stripe holds a removal")
    return entries


def decode_head(data: bytes) -> tuple[tuple[Stripe, ...], Entries]:
    """Return the stripes and embedded entries of a head. Raises CorruptIndexError."""
    data, ids = _opened(data, HEAD)
    end = len(data)
    count, position = read_varint(data, 0, end)
    check_count(count, position, end, 4 + _ID_BYTES)
    stripes: list[Stripe] = []
    last = b""
    for number in range(count):
        at = position
        strip, position = read_varint(data, position, end)
        added, position = read_varint(data, position, end)
        if strip > len(last) or added > end - position - _ID_BYTES:
            raise CorruptIndexError(at, "a separator exceeds the data")
        separator = last[: len(last) - strip] + data[position : position + added]
        position += added
        if len(separator) > MAX_KEY_BYTES or (separator <= last if number else separator):
            raise CorruptIndexError(at, "separators do not ascend")
        identifier = int.from_bytes(data[position : position + _ID_BYTES])
        if identifier > MAX_ID:
            raise CorruptIndexError(position, "an id exceeds 63 bits")
        size, position = read_varint(data, position + _ID_BYTES, end)
        held, position = read_varint(data, position, end)
        stripes.append(Stripe(separator, identifier, size, held))
        last = separator
    return tuple(stripes), _read_body(data, position, ids)


def _sealed(form: int, parts: list[bytes], entries: Sequence[tuple[bytes, ObjectRef | None]]) -> bytes:
    table = _table(entries)
    lowest, width = _id_range(entries)
    parts.append(varint(len(table) - 1))
    for kind in table:
        if kind is not None:
            name = kind[0].encode()
            parts += [varint(len(name)), name, varint(kind[1])]
    parts += [lowest.to_bytes(_ID_BYTES), varint(width), varint(len(entries)), *_chunks(entries, table)]
    text = b"".join(parts)
    deflated = zlib.compress(text, wbits=_RAW)
    packed = varint(len(deflated)) + deflated if len(deflated) < len(text) else b"\x00" + text
    ids = [(ref.id - lowest).to_bytes(width) for _, ref in entries if ref is not None]
    written = b"".join((bytes((form,)), varint(len(text)), packed, *ids))
    return written + zlib.crc32(written).to_bytes(_CRC_BYTES)


def _opened(data: bytes, form: int) -> tuple[bytes, bytes]:
    """Return the text and the ids."""
    end = len(data) - _CRC_BYTES
    if end < 1:
        raise CorruptIndexError(len(data), "the data is truncated")
    if data[0] != form:
        raise CorruptIndexError(0, f"form {data[0]} instead of {form}")
    if zlib.crc32(data[:end]) != int.from_bytes(data[end:]):
        raise CorruptIndexError(end, "the checksum does not match")
    length, position = read_varint(data, 1, end)
    deflated, position = read_varint(data, position, end)
    text_end = position + (deflated or length)
    if text_end > end or length > _MOST_INFLATED * (text_end - position):
        raise CorruptIndexError(position, "the text exceeds the data")
    text = data[position:text_end]
    return _inflated(text, length, position) if deflated else text, data[text_end:end]


def _inflated(deflated: bytes, length: int, position: int) -> bytes:
    inflater = zlib.decompressobj(_RAW)
    try:
        # One byte more than stated, to detect a longer text.
        text = inflater.decompress(deflated, length + 1)
    except zlib.error as error:
        raise CorruptIndexError(position, f"the text cannot be inflated ({error})") from error
    if len(text) != length or not inflater.eof or inflater.unused_data:
        raise CorruptIndexError(position, "the length of the text differs from the stated length")
    return text


def _table(entries: Iterable[tuple[bytes, ObjectRef | None]]) -> dict[Kind, int]:
    table: dict[Kind, int] = {None: 0}
    for _, ref in entries:
        if ref is not None:
            table.setdefault((ref.type, ref.parts), len(table))
    return table


def _id_range(entries: Iterable[tuple[bytes, ObjectRef | None]]) -> tuple[int, int]:
    """Return the lowest id and the bytes of the largest distance to it: ids of one time are close together."""
    ids = [ref.id for _, ref in entries if ref is not None]
    lowest = min(ids, default=0)
    return lowest, ((max(ids, default=0) - lowest).bit_length() + 7) // 8


def _chunks(entries: Iterable[tuple[bytes, ObjectRef | None]], table: dict[Kind, int]) -> list[bytes]:
    chunks: list[bytes] = []
    last = b""
    kind = 1
    for key, ref in entries:
        shared = common_prefix(last, key)
        strip, added = len(last) - shared, len(key) - shared
        this = 0 if ref is None else table[ref.type, ref.parts]
        tail = key[shared:] if this == kind else key[shared:] + varint(this)
        if strip < _MANY_STRIPPED and added < _MANY_ADDED:
            start = bytes((strip | added << 3 | (0 if this == kind else _KIND_FOLLOWS),))
        else:
            few, short = min(strip, _MANY_STRIPPED), min(added, _MANY_ADDED)
            start = bytes((few | short << 3 | (0 if this == kind else _KIND_FOLLOWS),))
            start += varint(strip) if few == _MANY_STRIPPED else b""
            start += varint(added) if short == _MANY_ADDED else b""
        chunks.append(start + tail)
        last, kind = key, this
    return chunks


def _read_table(data: bytes, position: int, end: int) -> tuple[list[Kind], int]:
    count, position = read_varint(data, position, end)
    check_count(count, position, end, 2)
    table: list[Kind] = [None]
    for _ in range(count):
        length, position = read_varint(data, position, end)
        if length > end - position:
            raise CorruptIndexError(position, "a type name exceeds the data")
        try:
            name = data[position : position + length].decode()
        except UnicodeDecodeError as error:
            raise CorruptIndexError(position, "a type name is not UTF-8") from error
        parts, position = read_varint(data, position + length, end)
        if not 1 <= parts <= MAX_PARTS:
            raise CorruptIndexError(position, f"an object has {parts} parts")
        table.append((name, parts))
    return table, position


def _read_body(data: bytes, position: int, packed_ids: bytes) -> Entries:
    end = len(data)
    table, position = _read_table(data, position, end)
    lowest = int.from_bytes(data[position : position + _ID_BYTES])
    width, position = read_varint(data, position + _ID_BYTES, end)
    count, position = read_varint(data, position, end)
    check_count(count, position, end, 1)
    keys, kinds, position = _read_keys(data, position, count, len(table))
    if position != end:
        raise CorruptIndexError(position, "bytes are left over")
    check_keys(b"\x00".join(keys))
    return Entries(keys, _read_ids(packed_ids, kinds, lowest, width), array("I", kinds), table)


def _read_keys(data: bytes, position: int, count: int, known_kinds: int) -> tuple[list[bytes], list[int], int]:
    """Return the keys, the kind of each, and the position after them."""
    end = len(data)
    keys: list[bytes] = []
    kinds: list[int] = []
    last = b""
    kind = 1
    for number in range(count):
        at = position
        if position >= end:
            raise CorruptIndexError(at, "entries are missing")
        control = data[position]
        position += 1
        strip, added = control & 7, control >> 3 & 15
        if strip == _MANY_STRIPPED:
            strip, position = read_varint(data, position, end)
        if added == _MANY_ADDED:
            added, position = read_varint(data, position, end)
        kept = len(last) - strip
        tail_end = position + added
        if kept < 0 or tail_end > end or kept + added > MAX_KEY_BYTES:
            raise CorruptIndexError(at, "a key exceeds the data")
        key = last[:kept] + data[position:tail_end]
        if key <= last and number:
            raise CorruptIndexError(at, "keys do not ascend")
        position = tail_end
        if control & _KIND_FOLLOWS:
            kind, position = read_varint(data, position, end)
        if kind >= known_kinds:
            raise CorruptIndexError(at, f"kind {kind} is not in the list")
        keys.append(key)
        kinds.append(kind)
        last = key
    return keys, kinds, position


def _read_ids(packed: bytes, kinds: list[int], lowest: int, width: int) -> "array[int]":
    if width > _ID_BYTES or len(packed) != width * (len(kinds) - kinds.count(0)):
        raise CorruptIndexError(-1, "the length of the ids does not match the entries")
    if 0 not in kinds:
        ids = [lowest + int.from_bytes(packed[at * width : (at + 1) * width]) for at in range(len(kinds))]
    else:
        ids = []
        at = 0
        for kind in kinds:
            ids.append(lowest + int.from_bytes(packed[at : at + width]) if kind else 0)
            at += width if kind else 0
    if ids and max(ids) > MAX_ID:
        raise CorruptIndexError(-1, "an id exceeds 63 bits")
    return array("Q", ids)
