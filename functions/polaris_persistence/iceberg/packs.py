"""Parts of a section packed into common objects, so that a table with many snapshots is read in few rows.

A new part is a separate object. More than PACK_AFTER such parts of a section become a pack, merged with the packs that
are not larger. So there are few packs, and a part is written about log2(n) times. The index names the same pack for
each of its parts. A pack of which less than half is still named is written again without the rest.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

import cbor2
from pydantic import PrivateAttr

from polaris_persistence.errors import CorruptObject
from polaris_persistence.objects.objects import ObjectRef, PersistedModel, from_cbor
from polaris_persistence.objects.types import ObjectType
from polaris_persistence.objects.weight import held_bytes

PACK_AFTER: Final = 64
MOST_PACKED: Final = 512

PartKey = bytes


class IcebergPack(PersistedModel):
    """Parts by the text of their id; `data` is deflated CBOR."""

    data: bytes

    _parts: dict[bytes, Any] | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, parts: Mapping[bytes, Any]) -> Self:
        """Return the pack of some parts, each of which could be stored as an object."""
        made = cls(data=zlib.compress(cbor2.dumps(list(parts.items()))))
        made._parts = dict(parts)
        return made

    def parts(self) -> Mapping[bytes, Any]:
        """Return the parts, decoded on the first call. Raises CorruptObject."""
        if self._parts is None:
            try:
                self._parts = dict(from_cbor(zlib.decompress(self.data)))
            except (zlib.error, cbor2.CBORDecodeError, TypeError, ValueError) as error:
                raise CorruptObject(f"a pack of metadata parts does not decode: {error}") from error
        return self._parts

    def held_bytes(self) -> int:
        """Return how many bytes the pack takes in memory once it is decoded."""
        try:
            self.parts()
        except CorruptObject:
            return len(self.data)  # its reader gets the error
        return held_bytes(self)


PACK_TYPE: Final = ObjectType("iceberg-pack", IcebergPack)


def to_pack(entries: Sequence[tuple[PartKey, ObjectRef | None]], thinned: Mapping[ObjectRef, int]) -> list[PartKey]:
    """Return the keys of the parts to write as packs, in order; none if the stored packs are good enough.

    `entries` are the parts of a section, None for one that is not written yet; `thinned` are packs that lost parts,
    with the number of parts that they hold.
    """
    packs: dict[ObjectRef, list[PartKey]] = {}
    single: list[PartKey] = []
    for key, ref in entries:
        if ref is not None and ref.type == PACK_TYPE.name:
            packs.setdefault(ref, []).append(key)
        else:
            single.append(key)
    chosen: set[PartKey] = set()
    for ref, held in thinned.items():
        if 2 * len(packs.get(ref, ())) < held:
            chosen.update(packs.pop(ref, ()))
    if len(single) + len(chosen) > PACK_AFTER:
        chosen.update(single)
        for keys in sorted(packs.values(), key=len):
            if len(keys) > len(chosen) or len(keys) + len(chosen) > MOST_PACKED:
                break
            chosen.update(keys)
    return [key for key, _ in entries if key in chosen]


def slices(keys: Sequence[PartKey]) -> Iterator[Sequence[PartKey]]:
    """Return the keys of one pack after the other."""
    return (keys[start : start + MOST_PACKED] for start in range(0, len(keys), MOST_PACKED))
