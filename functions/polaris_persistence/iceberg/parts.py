"""The parts of a metadata state under their index: found by section and id, added, removed, packed and written."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from polaris_persistence.errors import CorruptObject, InvalidIcebergMetadata
from polaris_persistence.iceberg.layout import Layout, check_nesting
from polaris_persistence.iceberg.log import WriteObject
from polaris_persistence.iceberg.objects import IcebergPart
from polaris_persistence.iceberg.packs import PACK_TYPE, IcebergPack, slices, to_pack
from polaris_persistence.index.format import IndexBytes
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import MAX_KEY_BYTES, IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from polaris_persistence.objects.types import Fetch

FIELDS: Final = "+fields"
WHOLE: Final = "+wholes"
PENDING: Final = ObjectRef("+pending", 0)


class MetadataParts:
    """The parts of a working copy. Every method that reads stored parts raises CorruptObject for a missing one."""

    def __init__(self, layout: Layout, index: IndexBytes, fetch: Fetch) -> None:
        self._layout = layout
        self._fetch_stored = fetch
        self._held: dict[ObjectRef, Loaded[PersistedModel] | None] = {}
        self._index = Index.load(index, fetch)
        self._keys: dict[str, dict[bytes, list[bytes]]] = {}
        self._next: dict[str, int] = {}
        self._new: dict[bytes, IcebergPart] = {}
        self._thinned: dict[str, set[ObjectRef]] = {}

    @property
    def changed(self) -> bool:
        return self._index.changed

    def held(self, key: bytes) -> IcebergPart | ObjectRef:
        """Return a part that is not written yet, otherwise its reference."""
        return self._new.get(key) or self._index.get(IndexKey(key)) or PENDING

    def finish(self, policy: IndexPolicy, write: WriteObject) -> IndexBytes:
        """Return the index to store, after passing new parts and packs to `write`."""
        for section in self._layout.sections:
            if self._layout.sections[section].packed:
                self._pack(section, write)
        for key, part in self._new.items():
            self._index.put(IndexKey(key), write(part))
        self._new.clear()
        self._thinned.clear()
        return self._index.finish(policy, write).embedded

    def fetch(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Return stored objects, from those that `_prefetch` read or from the store."""
        wanted = list(refs)
        missing = list(dict.fromkeys(ref for ref in wanted if ref not in self._held))
        found = dict(zip(missing, self._fetch_stored(missing), strict=True)) if missing else {}
        return [self._held[ref] if ref in self._held else found[ref] for ref in wanted]

    def prefetch(self, logs: Iterable[ObjectRef]) -> None:
        """Read all that is not in memory, with the objects of the logs: stripes of the index, then the rest."""
        self._index.prefetch_all()
        refs = [ref for _, ref in self._index.items() if ref is not PENDING]
        refs += logs
        missing = list(dict.fromkeys(ref for ref in refs if ref not in self._held))
        if missing:
            self._held |= zip(missing, self._fetch_stored(missing), strict=True)

    def _pack(self, section: str, write: WriteObject) -> None:
        """Write new parts of a section as packs, with stored ones if these are many or their packs have thinned."""
        prefix = IndexKey.of(section)
        if section not in self._thinned and not any(key.startswith(bytes(prefix) + b"\x00") for key in self._new):
            return
        thinned = {ref: len(self._pack_of(ref)) for ref in self._thinned.get(section, ())}
        known = self.known(section)
        entries: list[tuple[bytes, ObjectRef | None]] = [
            (key, None if key in self._new else ref)
            for key, ref in self._index.items(prefix=prefix)
            # A pack holds one part of an id; a document that repeats an id keeps these parts as objects.
            if len(known[key[id_at(section) :]]) == 1
        ]
        keys = to_pack(entries, thinned)
        values = dict(zip(keys, self.values(keys), strict=True))
        for some in slices(keys):
            ref = write(IcebergPack.of({key[id_at(section) :]: values[key] for key in some}))
            for key in some:
                self._index.put(IndexKey(key), ref)
                self._new.pop(key, None)

    def _pack_of(self, ref: ObjectRef) -> Mapping[bytes, Any]:
        [loaded] = self.fetch([ref])
        if loaded is None or not isinstance(loaded.value, IcebergPack):
            raise CorruptObject(f"the pack {ref.id} of metadata parts is missing")
        return loaded.value.parts()

    def thin(self, section: str, key: bytes) -> None:
        """Note that the pack of a part loses it."""
        ref = self._index.get(IndexKey(key))
        if ref is not None and ref.type == PACK_TYPE.name:
            self._thinned.setdefault(section, set()).add(ref)

    def unlink(self, section: str, key: bytes) -> None:
        self.thin(section, key)
        self._index.remove(IndexKey(key))
        self._new.pop(key, None)

    def keys_of(self, section: str) -> list[bytes]:
        return self._index.keys(prefix=IndexKey.of(section))

    def known(self, section: str) -> dict[bytes, list[bytes]]:
        """Return the keys of a section by id, several if a document repeats an id."""
        if section not in self._keys:
            keys = self.keys_of(section)
            skip = id_at(section)
            known: dict[bytes, list[bytes]] = {}
            for key in keys:
                known.setdefault(key[skip:], []).append(key)
            self._next[section] = _position(keys[-1][skip - 9 : skip - 1]) + 1 if keys else 0
            self._keys[section] = known
        return self._keys[section]

    def append(self, section: str, text: bytes, held: IcebergPart | ObjectRef) -> None:
        """Add a part at the end of a section. Raises InvalidIcebergMetadata for a long id."""
        known = self.known(section)
        if len(section) + len(text) + 10 > MAX_KEY_BYTES:
            raise InvalidIcebergMetadata(f"an id in {section} is too long for an index key")
        key = IndexKey.of(section, f"{self._next[section]:08x}", text.decode())
        self._next[section] += 1
        known.setdefault(text, []).append(key)
        if isinstance(held, ObjectRef):
            self._index.put(key, held)
        else:
            self.write(key, held)

    def write(self, key: bytes, part: IcebergPart) -> None:
        """Put a new part under a key. Raises InvalidIcebergMetadata for one that nests too deeply."""
        section = IndexKey(key).elements()[0]
        check_nesting(section, part.value, 1 if section in (WHOLE, FIELDS) else 2)
        self._new[key] = part
        # A placeholder until the part is written and its id is known.
        self._index.put(IndexKey(key), PENDING)

    def values(self, keys: Iterable[bytes]) -> list[Any]:
        """Return parts by their keys, read in one batch."""
        wanted = list(keys)
        stored = [IndexKey(key) for key in wanted if key not in self._new]
        refs = [ref for ref in self._index.get_many(stored).values() if ref is not None]
        values: dict[bytes, Any] = {key: self._new[key].value for key in wanted if key in self._new}
        for key, ref, loaded in zip(stored, refs, self.fetch(refs) if refs else [], strict=True):
            section = key.elements()[0]
            if loaded is not None and isinstance(loaded.value, IcebergPart):
                values[key] = loaded.value.value
                continue
            packed = loaded.value.parts() if loaded is not None and isinstance(loaded.value, IcebergPack) else {}
            text = bytes(key)[id_at(section) :]
            if text not in packed:
                raise CorruptObject(f"part {ref.id} of the metadata's {section} is missing")
            values[key] = packed[text]
        return [values[key] for key in wanted]


def _position(text: bytes) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise CorruptObject("a part of the metadata has an invalid position") from error


def id_at(section: str) -> int:
    """Return where the id starts in a part's key: after section and position; ASCII JSON needs no escape."""
    return len(section) + 10
