"""When embedded entries are spilled into stripes, and into which (NoSQL persistence proposal, Object Indexes).

Every commit writes the embedded entries again, up to E bytes of e bytes each; the n stripes hold T bytes. Above the
threshold the stripes with most embedded entries are written, about 2·E/(n+1) bytes of these each, until the rest is
below it ("all but the most recent changes"). A commit writes E·n/(n+1) + e·T·(n+1)/(2·n·E) bytes on average, least for
E = √(2·e·T)·(n+1)/(2·n): so the threshold follows the size of the index. A head that is copied into the row of its
reference is written twice, which makes the best E smaller by √2. Spilling everything at once costs the same on average,
but all of T in one commit.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from polaris_persistence.backends.base import COPIED_BYTES
from polaris_persistence.index.format import (
    EMPTY,
    EmbeddedIndex,
    Entries,
    Stripe,
    encode_head,
    entry_sizes,
)
from polaris_persistence.index.stripes import IndexStripe
from polaris_persistence.index.varints import common_prefix
from polaris_persistence.objects.objects import ObjectRef

SpillEntry = tuple[bytes, ObjectRef | None]
WriteStripe = Callable[[IndexStripe], ObjectRef]
"""Add an object to those that the commit writes before its head, and return its ref."""


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """Sizes in bytes. The threshold for spilling is between `min_embedded` and `max_embedded`; an entry above a quarter
    of `max_embedded` is spilled at once; a stripe of several entries above `stripe` is split. Heads up to `copied` are
    written twice."""

    min_embedded: int = 700
    max_embedded: int = 65_536
    stripe: int = 65_536
    copied: int = COPIED_BYTES

    def __post_init__(self) -> None:
        if not 0 <= self.min_embedded <= self.max_embedded or self.stripe < 1:
            raise ValueError(f"{self} is invalid: min_embedded must be in 0..max_embedded and stripe at least 1")

    def threshold(self, entry: float, total: int, stripes: int) -> int:
        """Return how many bytes may stay embedded, for entries of `entry` bytes and `total` bytes in `stripes`."""
        best = math.sqrt(2 * entry * total) * (stripes + 1) / (2 * stripes) if stripes else 0
        if best / math.sqrt(2) <= self.copied:
            best /= math.sqrt(2)
        return max(self.min_embedded, min(self.max_embedded, int(best)))

    def forced(self, size: int) -> bool:
        """Return whether an entry of that size is spilled at once."""
        return 4 * size > self.max_embedded


class Finished(NamedTuple):
    """The stored form of an index: `embedded` belongs into the head object, `stripes` were passed to `write`."""

    embedded: bytes
    stripes: tuple[ObjectRef, ...]


@dataclass(slots=True)
class _Piece:
    """A stripe during a spill: an unchanged one, or new content."""

    stripe: Stripe | None
    items: list[SpillEntry]
    size: int
    separator: bytes


@dataclass(slots=True)
class _Waiting:
    """Embedded entries that belong to one stripe."""

    items: list[SpillEntry] = field(default_factory=list)
    size: int = 0
    forced: bool = False


def settle(
    stripes: Sequence[Stripe],
    overlay: Sequence[SpillEntry],
    policy: IndexPolicy,
    write: WriteStripe,
    entries_of: Callable[[Sequence[int]], Sequence[Entries]],
) -> Finished:
    """Return the stored form of `overlay` over `stripes`; `entries_of` reads stripes by position, in one batch."""
    embedded = EmbeddedIndex(encode_head(stripes, overlay))
    waiting = _waiting(stripes, overlay, policy)
    spilled = _chosen(waiting, stripes, len(embedded) - len(encode_head(stripes, [])), policy)
    if not spilled:
        return Finished(embedded, ())
    left = [item for number, group in sorted(waiting.items()) if number not in spilled for item in group.items]
    written: list[ObjectRef] = []
    kept: list[Stripe] = []
    rebuilt = _rebuilt(stripes, {number: waiting[number].items for number in sorted(spilled)}, entries_of)
    for piece in _split(_join(rebuilt, policy, entries_of, stripes), policy):
        # The first remaining stripe also covers the keys before it.
        separator = piece.separator if kept else b""
        if piece.stripe is not None:
            kept.append(piece.stripe._replace(separator=separator))
            continue
        stripe = IndexStripe.of(piece.items)
        written.append(write(stripe))
        kept.append(Stripe(separator, written[-1].id, len(stripe.data), len(piece.items)))
    return Finished(EmbeddedIndex(encode_head(kept, left)), tuple(written))


def overlaid(entries: Entries, overlay: Sequence[SpillEntry]) -> list[SpillEntry]:
    """Return the entries with `overlay` applied, without those that it removes."""
    merged: dict[bytes, ObjectRef | None] = {key: entries.ref(number) for number, key in enumerate(entries.keys)}
    merged.update(overlay)
    return sorted((item for item in merged.items() if item[1] is not None), key=lambda item: item[0])


def _waiting(stripes: Sequence[Stripe], overlay: Sequence[SpillEntry], policy: IndexPolicy) -> dict[int, _Waiting]:
    """Return embedded entries by the position of their stripe, 0 if there are no stripes."""
    separators = [stripe.separator for stripe in stripes]
    groups: dict[int, _Waiting] = {}
    for item, size in zip(overlay, entry_sizes(overlay), strict=True):
        group = groups.setdefault(max(0, bisect_right(separators, item[0]) - 1), _Waiting())
        group.items.append(item)
        group.size += size
        group.forced |= policy.forced(size)
    return groups


def _chosen(waiting: dict[int, _Waiting], stripes: Sequence[Stripe], embedded: int, policy: IndexPolicy) -> set[int]:
    """Return the stripes to write: the forced ones, then the fullest until the remaining entries may stay embedded."""
    chosen = {number for number, group in waiting.items() if group.forced}
    sizes = sum(group.size for group in waiting.values())
    count = sum(len(group.items) for group in waiting.values())
    total = sum(stripe.size for stripe in stripes)
    # In bytes before deflating, like the groups' sizes.
    threshold = policy.threshold(embedded / max(1, count), total, len(stripes)) * sizes / max(1, embedded)
    left = sizes - sum(waiting[number].size for number in chosen)
    for number, group in sorted(waiting.items(), key=lambda numbered: numbered[1].size, reverse=True):
        if left <= threshold:
            break
        if number not in chosen:
            chosen.add(number)
            left -= group.size
    return chosen


def _rebuilt(
    stripes: Sequence[Stripe],
    spilled: dict[int, list[SpillEntry]],
    entries_of: Callable[[Sequence[int]], Sequence[Entries]],
) -> list[_Piece]:
    """Return the stripes that are not empty, with the spilled entries in them."""
    if not stripes:
        return [_fresh(overlaid(EMPTY, items), b"") for items in spilled.values()]
    touched = dict(zip(spilled, entries_of(list(spilled)), strict=True))
    pieces = []
    for number, stripe in enumerate(stripes):
        if number in touched:
            pieces.append(_fresh(overlaid(touched[number], spilled[number]), stripe.separator))
        else:
            pieces.append(_Piece(stripe, [], stripe.size, stripe.separator))
    return [piece for piece in pieces if piece.size]


def _fresh(items: list[SpillEntry], separator: bytes) -> _Piece:
    return _Piece(None, items, sum(entry_sizes(items)), separator)


def _join(
    pieces: list[_Piece],
    policy: IndexPolicy,
    entries_of: Callable[[Sequence[int]], Sequence[Entries]],
    stripes: Sequence[Stripe],
) -> list[_Piece]:
    """Join neighbors of which a rewritten one has become small, so that the number of stripes can shrink."""
    joined: list[_Piece] = []
    numbers = {stripe.id: number for number, stripe in enumerate(stripes)}

    def items(piece: _Piece) -> list[SpillEntry]:
        if piece.stripe is None:
            return piece.items
        return overlaid(entries_of([numbers[piece.stripe.id]])[0], [])

    for piece in pieces:
        last = joined[-1] if joined else None
        small = last is not None and any(
            half.stripe is None and 4 * half.size < policy.stripe for half in (last, piece)
        )
        if last is None or not small or 2 * (last.size + piece.size) > policy.stripe:
            joined.append(piece)
        else:
            joined[-1] = _fresh(items(last) + items(piece), last.separator)
    return joined


def _split(pieces: list[_Piece], policy: IndexPolicy) -> list[_Piece]:
    """Split rewritten stripes above the limit into parts of about equal size."""
    result: list[_Piece] = []
    for piece in pieces:
        if piece.stripe is not None or piece.size <= policy.stripe or len(piece.items) < 2:
            result.append(piece)
            continue
        aim = piece.size / -(-piece.size // policy.stripe)
        start = filled = 0
        separator = piece.separator
        for number, size in enumerate(entry_sizes(piece.items)):
            if number > start and filled + size > aim:
                result.append(_Piece(None, piece.items[start:number], filled, separator))
                last, first = piece.items[number - 1][0], piece.items[number][0]
                # The shortest separator above `last` and not above `first`.
                separator = first[: common_prefix(last, first) + 1]
                start, filled = number, 0
            filled += size
        result.append(_Piece(None, piece.items[start:], filled, separator))
    return result
