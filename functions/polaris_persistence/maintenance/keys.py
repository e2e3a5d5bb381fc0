"""The memory of a run of maintenance: exact sets of object keys at 8 bytes a key, stored in chunks."""

import bisect
import heapq
import itertools
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import Field

from polaris_persistence.backends.base import Locator, ObjectKey
from polaris_persistence.errors import CorruptObject
from polaris_persistence.objects.objects import PersistedModel
from polaris_persistence.objects.types import ObjectType

Group = tuple[str, str, str]
"""The realm, catalog and type that many keys share."""


class KeyGroup(PersistedModel):
    """Keys of one group: `ids` are sorted, 8 bytes each, big-endian; `parts` has those with more than one part."""

    realm: str
    catalog: str
    type: str
    ids: bytes
    parts: dict[int, int] = Field(default_factory=dict)


class MaintenanceKeys(PersistedModel):
    """One chunk of a stored set of keys."""

    groups: tuple[KeyGroup, ...]


class MaintenanceMarks(PersistedModel):
    """The progress of a marking: one bit per scanned key, and the objects whose links are still to be followed.

    `beyond` are keys that are marked but were written after the scan; `pending` are refs of the reference being marked.
    """

    bits: bytes
    beyond: tuple[tuple[str, str, str, int], ...] = ()
    pending: tuple[tuple[str, int, int], ...] = ()


KEYS_TYPE: Final = ObjectType("maintenance-keys", MaintenanceKeys)
MARKS_TYPE: Final = ObjectType("maintenance-marks", MaintenanceMarks)


class KeyChunk:
    """Keys that are collected for one chunk."""

    def __init__(self) -> None:
        self._ids: dict[Group, set[int]] = {}
        self._parts: dict[Group, dict[int, int]] = {}
        self.count = 0

    def add(self, key: ObjectKey, parts: int = 1) -> None:
        """Add a key; a repeated one counts once."""
        group = (key.realm, key.catalog, key.type)
        ids = self._ids.setdefault(group, set())
        self.count += key.id not in ids
        ids.add(key.id)
        if parts > 1:
            self._parts.setdefault(group, {})[key.id] = parts

    def value(self) -> MaintenanceKeys:
        return MaintenanceKeys(
            groups=tuple(
                KeyGroup(
                    realm=group[0], catalog=group[1], type=group[2],
                    ids=_packed(sorted(ids)), parts=self._parts.get(group, {}),
                )
                for group, ids in sorted(self._ids.items())
            )
        )  # fmt: skip


class KeySet:
    """An exact set of keys made of chunks. Each key may be marked; the unmarked ones have a fixed order."""

    def __init__(self, chunks: Iterable[MaintenanceKeys] = ()) -> None:
        runs: dict[Group, list[array[int]]] = {}
        self._parts: dict[Group, dict[int, int]] = {}
        for key_group in itertools.chain.from_iterable(chunk.groups for chunk in chunks):
            group = (key_group.realm, key_group.catalog, key_group.type)
            runs.setdefault(group, []).append(_unpacked(key_group))
            self._parts.setdefault(group, {}).update(key_group.parts)
        # Merged without another copy of all ids as Python numbers; a key in two chunks is kept once.
        self._ids = {group: array("Q", _distinct(heapq.merge(*several))) for group, several in sorted(runs.items())}
        self._bits = {group: bytearray(-(-len(ids) // 8)) for group, ids in self._ids.items()}

    def __len__(self) -> int:
        return sum(map(len, self._ids.values()))

    def __contains__(self, key: ObjectKey) -> bool:
        return self._position(key) is not None

    def mark(self, key: ObjectKey) -> bool | None:
        """Mark a key; return whether it was unmarked, None if it is not in the set."""
        position = self._position(key)
        if position is None:
            return None
        bits, bit = self._bits[(key.realm, key.catalog, key.type)], 1 << (position & 7)
        new = not bits[position >> 3] & bit
        bits[position >> 3] |= bit
        return new

    def marked(self) -> int:
        return sum(int.from_bytes(bits).bit_count() for bits in self._bits.values())

    def bits(self) -> bytes:
        return b"".join(self._bits.values())

    def restore(self, bits: bytes) -> None:
        """Set the marks to stored ones. Raises CorruptObject if they belong to another set."""
        if len(bits) != sum(map(len, self._bits.values())):
            raise CorruptObject(f"the stored marks have {len(bits)} bytes, which do not fit the set of keys")
        start = 0
        for group, held in self._bits.items():
            self._bits[group] = bytearray(bits[start : start + len(held)])
            start += len(held)

    def unmarked(self) -> Iterator[Locator]:
        """Return the unmarked keys, always in the same order."""
        for group, ids in self._ids.items():
            bits, parts = self._bits[group], self._parts.get(group, {})
            for position, id_ in enumerate(ids):
                if not bits[position >> 3] & 1 << (position & 7):
                    yield Locator(ObjectKey(*group, id_), parts.get(id_, 1))

    def _position(self, key: ObjectKey) -> int | None:
        ids = self._ids.get((key.realm, key.catalog, key.type))
        if ids is None:
            return None
        position = bisect.bisect_left(ids, key.id)
        return position if position < len(ids) and ids[position] == key.id else None


def _distinct(ids: Iterable[int]) -> Iterator[int]:
    return (id_ for id_, _ in itertools.groupby(ids))


def _packed(ids: Iterable[int]) -> bytes:
    packed = array("Q", ids)
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


def _unpacked(group: KeyGroup) -> "array[int]":
    if len(group.ids) % 8:
        raise CorruptObject(f"the stored keys of {group.realm}/{group.catalog}/{group.type} are truncated")
    ids = array("Q", group.ids)
    if sys.byteorder == "little":
        ids.byteswap()
    return ids
