"""The index of one commit: names in order, each with the object that holds it (proposal, Object Indexes)."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, Self

from delegation.persistence.backends.base import MAX_ID, MAX_PARTS
from delegation.persistence.errors import CorruptIndexError
from delegation.persistence.index.format import EMPTY, Entries, Stripe, decode_head
from delegation.persistence.index.keys import IndexKey
from delegation.persistence.index.spill import Finished, IndexPolicy, SpillEntry, WriteStripe, settle
from delegation.persistence.index.stripes import IndexStripe
from delegation.persistence.objects.objects import ObjectRef
from delegation.persistence.objects.types import Fetch

MOST_AHEAD: Final = 16
"""Stripes that a long iteration reads in one batch; it begins with one and doubles."""

_Overlay = tuple[list[bytes], list[ObjectRef | None]]
_Span = tuple[list[bytes], Callable[[int], ObjectRef | None], int, int]
"""Keys, what finds the value by position, and the first position and the one after the last."""


@lru_cache(maxsize=32)
def _decoded(embedded: bytes) -> tuple[tuple[Stripe, ...], list[bytes], Entries]:
    """The head's part is decoded once for all who read the same commit."""
    stripes, entries = decode_head(embedded)
    return stripes, [stripe.separator for stripe in stripes], entries


class Index:
    """A working copy for one thread: reads see its own changes, nobody else does until `finish`'s result is committed.

    Embedded entries win over stripes. Stripes are read when something in their range is asked for, several in one call
    of the loader where several are needed; an absent one, as any malformed byte, raises CorruptIndexError.
    """

    def __init__(self, embedded: bytes, fetch: Fetch) -> None:
        self._source = embedded
        self._fetch = fetch
        if embedded:
            self._stripes, self._separators, self._embedded = _decoded(embedded)
        else:
            self._stripes, self._separators, self._embedded = (), [], EMPTY
        self._read: list[Entries | None] = [None] * len(self._stripes)
        self._changes: dict[bytes, ObjectRef | None] = {}
        self._merged: _Overlay | None = None

    @classmethod
    def load(cls, embedded: bytes, fetch: Fetch) -> Self:
        """The index that a head commit embeds; no bytes are an empty one. Raises CorruptIndexError."""
        return cls(embedded, fetch)

    @classmethod
    def empty(cls) -> Self:
        """An index without entries."""
        return cls(b"", lambda refs: [])

    @property
    def changed(self) -> bool:
        """Whether `finish` has anything new to write. Putting what a stripe not yet read holds counts as a change."""
        return bool(self._changes)

    @property
    def stripes(self) -> tuple[Stripe, ...]:
        """The stripes as of loading."""
        return self._stripes

    def get(self, key: IndexKey) -> ObjectRef | None:
        """What is stored under the key; None for nothing."""
        if key in self._changes:
            return self._changes[key]
        return self._committed(key)

    def get_many(self, keys: Iterable[IndexKey]) -> dict[IndexKey, ObjectRef | None]:
        """The values of several keys, after reading the stripes they need in one batch."""
        wanted = list(keys)
        self.prefetch(wanted)
        return {key: self.get(key) for key in wanted}

    def prefetch(self, keys: Iterable[IndexKey]) -> None:
        """Read the stripes that the keys may be in, in one batch."""
        self._entries({bisect_right(self._separators, key) - 1 for key in keys} - {-1})

    def put(self, key: IndexKey, ref: ObjectRef) -> None:
        """Store under a new key or in place of what is there. Raises ValueError for a ref no object can have."""
        if not 0 <= ref.id <= MAX_ID or not 1 <= ref.parts <= MAX_PARTS or not ref.type:
            raise ValueError(f"no object is named {ref}")
        self._merged = None
        if self._committed(key, may_read=False) == ref:
            self._changes.pop(key, None)
        else:
            self._changes[key] = ref

    def remove(self, key: IndexKey) -> bool:
        """Remove what is stored under the key; False for nothing."""
        if self.get(key) is None:
            return False
        self._merged = None
        if self._committed(key) is None:
            del self._changes[key]
        else:
            self._changes[key] = None
        return True

    def items(
        self, start: IndexKey | None = None, end: IndexKey | None = None, prefix: IndexKey | None = None
    ) -> Iterator[tuple[IndexKey, ObjectRef]]:
        """Entries in order, as they are at the time of the call: from `start`, up to but without `end`, and only those
        whose elements begin with those of `prefix`."""
        return (
            (IndexKey(keys[position]), ref)
            for keys, ref_of, low, high in self._between(start, end, prefix)
            for position in range(low, high)
            if (ref := ref_of(position)) is not None
        )

    def keys(
        self, start: IndexKey | None = None, end: IndexKey | None = None, prefix: IndexKey | None = None
    ) -> list[bytes]:
        """The keys of `items`, encoded, as a list; much faster than that."""
        found: list[bytes] = []
        for keys, _, low, high in self._between(start, end, prefix):
            found += keys[low:high]
        return found

    def finish(self, policy: IndexPolicy, write: WriteStripe) -> Finished:
        """The index as it is now, as bytes to embed in the head; the stripes of a spill are given to `write`.

        Unchanged, it returns the very bytes it was loaded from. The index goes on as it was; load the result to go on
        from there.
        """
        if not self._changes:
            return Finished(self._source, ())
        keys, refs = self._overlay()
        overlay: list[SpillEntry] = list(zip(keys, refs, strict=True))
        if self._stripes:
            # A removal is only kept where it hides something.
            self.prefetch(IndexKey(key) for key, ref in overlay if ref is None)
        overlay = [(key, ref) for key, ref in overlay if ref is not None or self._stored(key) is not None]
        return settle(self._stripes, overlay, policy, write, self._entries)

    def _committed(self, key: bytes, *, may_read: bool = True) -> ObjectRef | None:
        """Return what is committed under the key, without `may_read` only as far as no stripe has to be read for it."""
        position = self._embedded.position(key)
        return self._stored(key, may_read=may_read) if position is None else self._embedded.ref(position)

    def _stored(self, key: bytes, *, may_read: bool = True) -> ObjectRef | None:
        stripe = bisect_right(self._separators, key) - 1
        if stripe < 0 or (self._read[stripe] is None and not may_read):
            return None
        entries = self._read[stripe] or self._entries([stripe])[0]
        position = entries.position(key)
        return None if position is None else entries.ref(position)

    def _entries(self, numbers: Iterable[int]) -> list[Entries]:
        """The entries of stripes by their positions; those not yet read are read in one batch."""
        wanted = list(numbers)
        missing = [number for number in wanted if self._read[number] is None]
        if missing:
            loaded = self._fetch([self._stripes[number].ref for number in missing])
            for number, found in zip(missing, loaded, strict=True):
                if found is None or not isinstance(found.value, IndexStripe):
                    raise CorruptIndexError(-1, f"stripe {self._stripes[number].id} is not there")
                self._read[number] = found.value.entries()
        return [entries for number in wanted if (entries := self._read[number]) is not None]

    def _overlay(self) -> _Overlay:
        """Embedded entries and changes in order, removals included; never altered once made."""
        if self._merged is None:
            entries = self._embedded
            merged = {key: entries.ref(position) for position, key in enumerate(entries.keys)}
            merged.update(self._changes)
            keys = sorted(merged)
            self._merged = keys, [merged[key] for key in keys]
        return self._merged

    def _between(self, start: IndexKey | None, end: IndexKey | None, prefix: IndexKey | None) -> Iterator[_Span]:
        lowest: bytes = start or b""
        highest: bytes | None = end
        if prefix is not None:
            first, beyond = prefix.below()
            lowest = max(lowest, first)
            highest = beyond if highest is None else min(highest, beyond)
        if highest is not None and lowest >= highest:
            return iter(())
        return self._spans(lowest, highest, self._overlay())

    def _spans(self, lowest: bytes, highest: bytes | None, overlay: _Overlay) -> Iterator[_Span]:
        """Entries of stripes and of the overlay in turn, as they lie in order; stripes are read on the way."""
        keys, refs = overlay
        at = bisect_left(keys, lowest)
        stop = len(keys) if highest is None else bisect_left(keys, highest)
        count = len(self._stripes) if highest is None else bisect_left(self._separators, highest)
        ahead = 1
        for number in range(bisect_right(self._separators, lowest) - 1, count) if self._stripes else ():
            if self._read[number] is None:
                self._entries(range(number, min(number + ahead, count)))
                ahead = min(2 * ahead, MOST_AHEAD)
            [entries] = self._entries([number])
            low = bisect_left(entries.keys, lowest)
            high = len(entries.keys) if highest is None else bisect_left(entries.keys, highest)
            upto = stop if number + 1 == count else bisect_left(keys, self._separators[number + 1], at, stop)
            for over in range(at, upto):
                position = bisect_left(entries.keys, keys[over], low, high)
                yield entries.keys, entries.ref, low, position
                low = position
                if position < high and entries.keys[position] == keys[over]:
                    low += 1
                if refs[over] is not None:
                    yield keys, refs.__getitem__, over, over + 1
            yield entries.keys, entries.ref, low, high
            at = upto
        for over in range(at, stop):
            if refs[over] is not None:
                yield keys, refs.__getitem__, over, over + 1
