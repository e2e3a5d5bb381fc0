"""The index of one commit: sorted keys, each with an object id (NoSQL persistence proposal, Object Indexes)."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self

from polaris_persistence.backends.base import MAX_ID, MAX_PARTS
from polaris_persistence.errors import CorruptIndexError
from polaris_persistence.index.format import EMPTY, EmbeddedIndex, Entries, Stripe
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import Finished, IndexPolicy, SpillEntry, WriteStripe, settle
from polaris_persistence.index.stripes import IndexStripe
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.types import Fetch

MOST_AHEAD: Final = 16
"""The most stripes that an iteration reads in one batch; it starts with one and doubles."""

_Overlay = tuple[list[bytes], list[ObjectRef | None]]
_Span = tuple[list[bytes], Callable[[int], ObjectRef | None], int, int]
"""Keys, a function from position to value, the first position and the one after the last."""


class Index:
    """A working copy for one thread, whose changes are private until the result of `finish` is committed.

    Embedded entries win over stripes. Stripes are read when a key in their range is needed, several in one call of
    `fetch`; a missing or malformed one raises CorruptIndexError.
    """

    def __init__(self, embedded: bytes, fetch: Fetch) -> None:
        self._source = embedded if isinstance(embedded, EmbeddedIndex) else EmbeddedIndex(embedded)
        self._fetch = fetch
        if embedded:
            self._stripes, self._separators, self._embedded = self._source.decoded()
        else:
            self._stripes, self._separators, self._embedded = (), [], EMPTY
        self._read: list[Entries | None] = [None] * len(self._stripes)
        self._changes: dict[bytes, ObjectRef | None] = {}
        self._merged: _Overlay | None = None

    @classmethod
    def load(cls, embedded: bytes, fetch: Fetch) -> Self:
        """Return the index embedded in a head; no bytes are an empty one. Raises CorruptIndexError."""
        return cls(embedded, fetch)

    @classmethod
    def empty(cls) -> Self:
        return cls(b"", lambda refs: [])  # noqa: ARG005 - as Fetch names it

    @property
    def changed(self) -> bool:
        """Whether `finish` has changes to write; a put of what an unread stripe already holds counts as one."""
        return bool(self._changes)

    @property
    def stripes(self) -> tuple[Stripe, ...]:
        return self._stripes

    def get(self, key: IndexKey) -> ObjectRef | None:
        """Return the value of the key, None if there is none."""
        if key in self._changes:
            return self._changes[key]
        return self._committed(key)

    def get_many(self, keys: Iterable[IndexKey]) -> dict[IndexKey, ObjectRef | None]:
        """Return the values of several keys, after reading their stripes in one batch."""
        wanted = list(keys)
        self.prefetch(wanted)
        return {key: self.get(key) for key in wanted}

    def prefetch(self, keys: Iterable[IndexKey]) -> None:
        self._entries({bisect_right(self._separators, key) - 1 for key in keys} - {-1})

    def prefetch_all(self) -> None:
        self._entries(range(len(self._stripes)))

    def put(self, key: IndexKey, ref: ObjectRef) -> None:
        """Add or replace the value of a key. Raises ValueError for an invalid ref."""
        if not 0 <= ref.id <= MAX_ID or not 1 <= ref.parts <= MAX_PARTS or not ref.type:
            raise ValueError(f"{ref} cannot be the ref of an object")
        self._merged = None
        if self._committed(key, may_read=False) == ref:
            self._changes.pop(key, None)
        else:
            self._changes[key] = ref

    def remove(self, key: IndexKey) -> bool:
        """Remove a key; return False if it is absent."""
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
        """Return the present entries from `start` to below `end` whose elements start with those of `prefix`."""
        return (
            (IndexKey(keys[position]), ref)
            for keys, ref_of, low, high in self._between(start, end, prefix)
            for position in range(low, high)
            if (ref := ref_of(position)) is not None
        )

    def keys(
        self, start: IndexKey | None = None, end: IndexKey | None = None, prefix: IndexKey | None = None
    ) -> list[bytes]:
        """Return the encoded keys of `items` as a list, much faster."""
        found: list[bytes] = []
        for keys, _, low, high in self._between(start, end, prefix):
            found += keys[low:high]
        return found

    def finish(self, policy: IndexPolicy, write: WriteStripe) -> Finished:
        """Return the index as bytes to embed in the head, after passing the stripes of a spill to `write`.

        An unchanged index returns the bytes it was loaded from. The index itself is not altered: load the result to
        continue from it.
        """
        if not self._changes:
            return Finished(self._source, ())
        keys, refs = self._overlay()
        overlay: list[SpillEntry] = list(zip(keys, refs, strict=True))
        if self._stripes:
            # A removal is only kept if a stripe has the key.
            self.prefetch(IndexKey(key) for key, ref in overlay if ref is None)
        overlay = [(key, ref) for key, ref in overlay if ref is not None or self._stored(key) is not None]
        return settle(self._stripes, overlay, policy, write, self._entries)

    def _committed(self, key: bytes, *, may_read: bool = True) -> ObjectRef | None:
        """Return the committed value of a key; without `may_read` None if a stripe has to be read for it."""
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
        """Return the entries of stripes by their positions, after reading unread ones in one batch."""
        wanted = list(numbers)
        missing = [number for number in wanted if self._read[number] is None]
        if missing:
            loaded = self._fetch([self._stripes[number].ref for number in missing])
            for number, found in zip(missing, loaded, strict=True):
                if found is None or not isinstance(found.value, IndexStripe):
                    raise CorruptIndexError(-1, f"stripe {self._stripes[number].id} is missing")
                self._read[number] = found.value.entries()
        return [entries for number in wanted if (entries := self._read[number]) is not None]

    def _overlay(self) -> _Overlay:
        """Return embedded entries and changes in order, including removals, as lists that are never altered."""
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
        """Return the entries of stripes and overlay in order, reading stripes when they are reached."""
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
