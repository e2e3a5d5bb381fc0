"""The object type of stripes: immutable spilled index entries, decoded at most once while they are cached."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Self

from pydantic import PrivateAttr

from polaris_persistence.errors import CorruptIndexError
from polaris_persistence.index.format import (
    STRIPE_TYPE,
    Entries,
    decode_head,
    decode_segment,
    encode_segment,
    entries_of,
)
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.types import Fetch, ObjectType


class IndexStripe(PersistedModel):
    """The entries of a range of keys; `data` is a segment (`index.format`)."""

    data: bytes

    _entries: Entries | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, items: Sequence[tuple[bytes, ObjectRef | None]]) -> Self:
        """Return the stripe of sorted items, which is not decoded again."""
        made = cls(data=encode_segment(items))
        made._entries = entries_of(items)
        return made

    def held_bytes(self) -> int:
        """Return how many bytes the stripe takes in memory once it is decoded."""
        with suppress(CorruptIndexError):  # its reader gets the error
            self.entries()
        return super().held_bytes()

    def entries(self) -> Entries:
        """Return the entries, decoded on the first call. Raises CorruptIndexError."""
        if self._entries is None:
            self._entries = decode_segment(self.data)
        return self._entries


def head_links(embedded: bytes) -> Iterator[ObjectRef]:
    """Return what an embedded index keeps alive: its stripes and embedded values. Raises CorruptIndexError."""
    if embedded:
        stripes, entries = decode_head(embedded)
        yield from (stripe.ref for stripe in stripes)
        yield from _values(entries)


def _stripe_links(stripe: IndexStripe, _fetch: Fetch) -> Iterable[ObjectRef]:
    return _values(stripe.entries())


def _values(entries: Entries) -> Iterator[ObjectRef]:
    for position in range(len(entries.keys)):
        ref = entries.ref(position)
        if ref is not None:
            yield ref


STRIPES: Final = ObjectType(STRIPE_TYPE, IndexStripe, links=_stripe_links)
"""To be declared wherever an index is stored."""
