"""When embedded entries are spilled out into stripes, and which stripes are written then (proposal, Object Indexes).

Every commit writes the embedded entries again, up to E bytes of e bytes each; the n stripes hold T bytes. Above the
threshold the stripe with most waiting for it is written, 2·E/(n+1) bytes of the embedded ones then, and so on until
what is left is below: "all but the most recent changes". Written per commit are E·n/(n+1) + e·T·(n+1)/(2·n·E), least
at E = √(2·e·T)·(n+1)/(2·n), and √(2·e·T) then. To spill everything at once costs the same on average, and in a single
commit all of T. So the threshold follows the size of the index.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from delegation.persistence.index.format import (
    EMPTY,
    Entries,
    Stripe,
    common_prefix,
    encode_head,
    encode_segment,
    entry_sizes,
)
from delegation.persistence.index.stripes import IndexStripe
from delegation.persistence.objects.objects import ObjectRef

SpillEntry = tuple[bytes, ObjectRef | None]
WriteStripe = Callable[[IndexStripe], ObjectRef]
"""Add a new object to those that the commit writes before its head."""


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """Sizes in bytes.

    The threshold for spilling is never below `min_embedded`, because a table store rounds a row's size up anyway, nor
    above `max_embedded`. An entry of more than a quarter of that is spilled at once (forced spill). A stripe that
    grows above `stripe` is split, unless it is a single entry.
    """

    min_embedded: int = 700
    max_embedded: int = 65_536
    stripe: int = 65_536

    def __post_init__(self) -> None:
        if not 0 <= self.min_embedded <= self.max_embedded or self.stripe < 1:
            raise ValueError(f"not a policy: {self}")

    def threshold(self, entry: float, total: int, stripes: int) -> int:
        """Up to how many bytes stay embedded, for entries of `entry` bytes, `total` bytes in so many stripes."""
        best = math.sqrt(2 * entry * total) * (stripes + 1) / (2 * stripes) if stripes else 0
        return max(self.min_embedded, min(self.max_embedded, int(best)))

    def forced(self, size: int) -> bool:
        """Whether an entry of that size is spilled at once."""
        return 4 * size > self.max_embedded


class Finished(NamedTuple):
    """What a commit writes of an index: `embedded` goes into its head object, `stripes` were given to `write`."""

    embedded: bytes
    stripes: tuple[ObjectRef, ...]


@dataclass(slots=True)
class _Piece:
    """A stripe while stripes are written anew: as it is, or with new content."""

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
    """The stored form of `overlay` over `stripes`; `entries_of` reads stripes by their positions, in one batch."""
    embedded = encode_head(stripes, overlay)
    waiting = _waiting(stripes, overlay, policy)
    spilled = _chosen(waiting, stripes, len(embedded) - len(encode_head(stripes, [])), policy)
    if not spilled:
        return Finished(embedded, ())
    left = [item for number, group in sorted(waiting.items()) if number not in spilled for item in group.items]
    written: list[ObjectRef] = []
    kept: list[Stripe] = []
    rebuilt = _rebuilt(stripes, {number: waiting[number].items for number in sorted(spilled)}, entries_of)
    for piece in _split(_join(rebuilt, policy, entries_of, stripes), policy):
        # What stood before the first stripe that is left belongs to it now.
        separator = piece.separator if kept else b""
        if piece.stripe is not None:
            kept.append(piece.stripe._replace(separator=separator))
            continue
        data = encode_segment(piece.items)
        written.append(write(IndexStripe(data=data)))
        kept.append(Stripe(separator, written[-1].id, len(data), len(piece.items)))
    return Finished(encode_head(kept, left), tuple(written))


def overlaid(entries: Entries, overlay: Sequence[SpillEntry]) -> list[SpillEntry]:
    """The entries with `overlay` over them; what it removes is gone."""
    merged: dict[bytes, ObjectRef | None] = {key: entries.ref(number) for number, key in enumerate(entries.keys)}
    merged.update(overlay)
    return sorted((item for item in merged.items() if item[1] is not None), key=lambda item: item[0])


def _waiting(stripes: Sequence[Stripe], overlay: Sequence[SpillEntry], policy: IndexPolicy) -> dict[int, _Waiting]:
    """Embedded entries by the position of their stripe, all at 0 while there are no stripes."""
    separators = [stripe.separator for stripe in stripes]
    groups: dict[int, _Waiting] = {}
    for item, size in zip(overlay, entry_sizes(overlay), strict=True):
        group = groups.setdefault(max(0, bisect_right(separators, item[0]) - 1), _Waiting())
        group.items.append(item)
        group.size += size
        group.forced |= policy.forced(size)
    return groups


def _chosen(waiting: dict[int, _Waiting], stripes: Sequence[Stripe], embedded: int, policy: IndexPolicy) -> set[int]:
    """Which stripes to write: those that must be, and the fullest ones until the others' entries may stay embedded."""
    chosen = {number for number, group in waiting.items() if group.forced}
    sizes = sum(group.size for group in waiting.values())
    count = sum(len(group.items) for group in waiting.values())
    total = sum(stripe.size for stripe in stripes)
    # In bytes before deflating, as the groups' sizes are.
    threshold = policy.threshold(embedded / max(1, count), total, len(stripes)) * sizes / max(1, embedded)
    left = sizes - sum(waiting[number].size for number in chosen)
    for number, group in sorted(waiting.items(), key=lambda one: one[1].size, reverse=True):
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
    """The stripes, some with what is spilled into them; empty ones are left out."""
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
    """Neighbours put together where one that is written has become small, so that stripes do not only multiply."""
    joined: list[_Piece] = []
    numbers = {stripe.id: number for number, stripe in enumerate(stripes)}

    def items(piece: _Piece) -> list[SpillEntry]:
        if piece.stripe is None:
            return piece.items
        return overlaid(entries_of([numbers[piece.stripe.id]])[0], [])

    for piece in pieces:
        last = joined[-1] if joined else None
        small = last is not None and any(one.stripe is None and 4 * one.size < policy.stripe for one in (last, piece))
        if last is None or not small or 2 * (last.size + piece.size) > policy.stripe:
            joined.append(piece)
        else:
            joined[-1] = _fresh(items(last) + items(piece), last.separator)
    return joined


def _split(pieces: list[_Piece], policy: IndexPolicy) -> list[_Piece]:
    """Written stripes above the limit in parts of about equal size."""
    result: list[_Piece] = []
    for piece in pieces:
        if piece.stripe is not None or piece.size <= policy.stripe or len(piece.items) < 2:
            result.append(piece)
            continue
        aim = piece.size / -(-piece.size // policy.stripe)
        start = taken = 0
        separator = piece.separator
        for number, size in enumerate(entry_sizes(piece.items)):
            if number > start and taken + size > aim:
                result.append(_Piece(None, piece.items[start:number], taken, separator))
                last, first = piece.items[number - 1][0], piece.items[number][0]
                # The shortest string that is above the one and not above the other.
                separator = first[: common_prefix(last, first) + 1]
                start, taken = number, 0
            taken += size
        result.append(_Piece(None, piece.items[start:], taken, separator))
    return result
