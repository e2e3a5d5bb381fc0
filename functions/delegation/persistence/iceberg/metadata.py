"""The metadata of a table or view as objects, read and changed in parts and exported as the value of metadata.json.

An index has the parts under (section, position, id): lists keep their order, and an id is found without reading parts.
A change writes its parts and one small state (NoSQL persistence proposal, Managed Iceberg Metadata).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import cbor2

from delegation.persistence.errors import CorruptObject, InvalidIcebergMetadata
from delegation.persistence.iceberg.layout import (
    LAYOUTS,
    Derived,
    Json,
    Layout,
    check_nesting,
    id_text,
    identified,
    in_order,
    is_section,
)
from delegation.persistence.iceberg.log import Log, WriteObject, same
from delegation.persistence.iceberg.objects import IcebergField, IcebergMetadata, IcebergPart, LogState
from delegation.persistence.iceberg.packs import PACK_TYPE, IcebergPack, slices, to_pack
from delegation.persistence.index.index import Index
from delegation.persistence.index.keys import MAX_KEY_BYTES, IndexKey
from delegation.persistence.index.spill import IndexPolicy
from delegation.persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from delegation.persistence.objects.types import Fetch

FIELD_BYTES: Final = 1_024
"""An unknown top-level field above this size is stored as a separate object."""
_FIELDS: Final = "+fields"
_WHOLE: Final = "+wholes"
_PENDING: Final = ObjectRef("+pending", 0)


class ManagedMetadata:
    """A working copy for one thread. Returned values are shared with the cache and must not be altered.

    Every method that reads stored parts raises CorruptObject for a missing or malformed one.
    """

    def __init__(self, state: IcebergMetadata, fetch: Fetch) -> None:
        layout = LAYOUTS.get(state.kind)
        if layout is None:
            raise CorruptObject(f"the metadata has the unknown kind {state.kind!r}")
        self.layout: Layout = layout
        self._state = state
        self._fetch_stored = fetch
        self._held: dict[ObjectRef, Loaded[PersistedModel] | None] = {}
        self._index = Index.load(state.index, fetch)
        self._fields = dict(state.fields)
        self._present = set(state.sections)
        self._derived = set(state.derived)
        self._logs = {name: Log(log, self._fetch) for name, log in state.logs.items()}
        self._keys: dict[str, dict[bytes, list[bytes]]] = {}
        self._next: dict[str, int] = {}
        self._new: dict[bytes, IcebergPart] = {}
        self._touched = False
        self._thinned: dict[str, set[ObjectRef]] = {}

    @classmethod
    def of(cls, document: Mapping[str, Any], layout: Layout, fetch: Fetch) -> Self:
        """Return the working copy of a metadata document. Raises InvalidIcebergMetadata."""
        new = cls(IcebergMetadata(kind=layout.kind, fields={}, sections=()), fetch)
        new.replace_with(document)
        return new

    @property
    def changed(self) -> bool:
        """Return whether there is anything to write."""
        return self._touched or self._index.changed or any(log.changed for log in self._logs.values())

    def field(self, name: str) -> Any:
        """Return a small top-level field, or one that could be derived; None if it is absent."""
        if name in self.layout.derived and name not in self._fields:
            return self.part(_FIELDS, name)
        return self._fields.get(name)

    def set_field(self, name: str, value: Any) -> None:
        """Set a small top-level field. Raises InvalidIcebergMetadata for one that nests too deeply."""
        check_nesting(name, value, 1)
        if name not in self._fields or not same(self._fields[name], value):
            self._fields[name] = value
            self._touched = True

    def ids(self, section: str) -> list[Any]:
        """Return the ids (or names) of a section in order, without reading its parts."""
        return [json.loads(key[_id_at(section) :]) for key in self._keys_of(section)]

    def has(self, section: str, id_: object) -> bool:
        """Return whether there is a part of that id (or name), without reading it."""
        return bool(self._known(section).get(id_text(id_)))

    def part(self, section: str, id_: object) -> Any:
        """Return the first part of that id (or name), None if there is none."""
        keys = self._known(section).get(id_text(id_))
        return next(iter(self._values(keys[:1]))) if keys else None

    def parts(self, section: str) -> list[Any]:
        """Return all parts of a section in order, read in batches."""
        return self._values(self._keys_of(section))

    def put(self, section: str, id_: object, value: Any) -> None:
        """Replace the part of that id in place, or add it at the end."""
        self._present_now(section)
        keys = self._known(section).get(id_text(id_))
        if keys:
            if not same(self.part(section, id_), value):
                self._thin(section, keys[0])
                self._write(keys[0], self._model(section)(value=value))
        else:
            self._append(section, id_text(id_), self._model(section)(value=value))

    def has_section(self, name: str) -> bool:
        """Return whether the document has the section, even an empty one."""
        return name in self._present

    def keep_only(self, section: str, ids: Iterable[object]) -> None:
        """Keep the parts of these ids, in this order."""
        self._replace_section(section, [self.part(section, id_) for id_ in ids])

    def drop(self, name: str) -> None:
        """Remove a top-level field or a section."""
        if name in self.layout.sections:
            self.clear(name)
        self.remove(_FIELDS, name)
        self._touched |= self._fields.pop(name, None) is not None

    def derive(self, names: Iterable[str]) -> None:
        """Let the document have these derived fields, and no others."""
        self._touched |= set(names) != self._derived
        self._derived = set(names)
        for name in self.layout.derived:
            self.drop(name)

    def remove(self, section: str, id_: object) -> bool:
        """Remove all parts of that id; return False if there is none."""
        keys = self._known(section).pop(id_text(id_), [])
        for key in keys:
            self._unlink(section, key)
        return bool(keys)

    def clear(self, section: str) -> None:
        """Remove a section with all its parts."""
        for id_ in self.ids(section):
            self.remove(section, id_)
        if section in self._present:
            self._present.remove(section)
            self._touched = True

    @property
    def properties(self) -> Mapping[str, Any]:
        """Return the properties, empty if absent."""
        found = self.part(_WHOLE, "properties")
        return found if isinstance(found, dict) else {}

    def set_properties(self, properties: Mapping[str, Any]) -> None:
        """Replace the properties."""
        self.put(_WHOLE, "properties", dict(properties))

    def log(self, name: str) -> Log:
        """Return a log, to read and append to."""
        if name not in self.layout.logs:
            raise KeyError(name)
        if name not in self._logs:
            self._logs[name] = Log(LogState(), self._fetch)
            self._touched = True
        return self._logs[name]

    def entries(self, log: str) -> list[Json]:
        """Return the entries of a log, the oldest first; none for an absent log."""
        return self._logs[log].entries() if log in self._logs else []

    def newest(self, log: str) -> Json | None:
        """Return the newest entry of a log, without reading older ones."""
        return self._logs[log].newest() if log in self._logs else None

    def length(self, log: str) -> int:
        """Return the number of entries of a log, without reading them."""
        return len(self._logs[log]) if log in self._logs else 0

    def document(self) -> Json:
        """Return the metadata document, the value of metadata.json, with fields in Iceberg's order.

        All that is not in memory is read in two batches: the stripes of the index, then the parts and logs.
        """
        self._prefetch()
        document = dict(self._fields)
        for section in self._present:
            value: Any = self.parts(section)
            if self.layout.sections[section].id is None:
                value = dict(zip(self.ids(section), value, strict=True))
            document[section] = value
        for section in (_WHOLE, _FIELDS):
            document |= dict(zip(self.ids(section), self.parts(section), strict=True))
        document |= {name: log.entries() for name, log in self._logs.items()}
        document |= {name: self._derive(self.layout.derived[name], document) for name in self._derived}
        return in_order(document, self.layout)

    def replace_with(self, document: Mapping[str, Any]) -> None:
        """Change the metadata to `document`, keeping unchanged parts. Raises InvalidIcebergMetadata for a long id, and
        for more than MAX_JSON_NESTING objects and arrays within each other."""
        rest = dict(document)
        check_nesting("the metadata document", rest, 0)
        for name in self.layout.sections:
            if is_section(rest.get(name), self.layout.sections[name].id):
                self._replace_section(name, rest.pop(name))
            else:
                self.clear(name)
        for name in self.layout.logs:
            if is_section(rest.get(name), ""):
                self.log(name).replace(rest.pop(name))
            else:
                self._touched |= self._logs.pop(name, None) is not None
        derived = {
            name
            for name, how in self.layout.derived.items()
            if name in rest and same(rest[name], self._derive(how, document))
        }
        self._touched |= derived != self._derived
        self._derived = derived
        self._replace_fields({name: value for name, value in rest.items() if name not in derived})

    def finish(self, policy: IndexPolicy, write: WriteObject) -> IcebergMetadata:
        """Return the state to store, after passing new parts to `write`; the loaded state itself if unchanged."""
        if not self.changed:
            return self._state
        for section in self.layout.sections:
            if self.layout.sections[section].packed:
                self._pack(section, write)
        for key, part in self._new.items():
            self._index.put(IndexKey(key), write(part))
        self._new.clear()
        self._thinned.clear()
        return self._state.model_copy(
            update={
                "fields": dict(self._fields),
                "sections": tuple(name for name in self.layout.order if name in self._present),
                "derived": tuple(sorted(self._derived)),
                "index": self._index.finish(policy, write).embedded,
                "logs": {name: log.finish(write) for name, log in self._logs.items()},
            }
        )

    def _fetch(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Return stored objects, from those that `_prefetch` read or from the store."""
        wanted = list(refs)
        missing = list(dict.fromkeys(ref for ref in wanted if ref not in self._held))
        found = dict(zip(missing, self._fetch_stored(missing), strict=True)) if missing else {}
        return [self._held[ref] if ref in self._held else found[ref] for ref in wanted]

    def _prefetch(self) -> None:
        self._index.prefetch_all()
        refs = [ref for _, ref in self._index.items() if ref is not _PENDING]
        refs += [ref for log in self._logs.values() for ref in log.refs]
        missing = list(dict.fromkeys(ref for ref in refs if ref not in self._held))
        if missing:
            self._held |= zip(missing, self._fetch_stored(missing), strict=True)

    def _pack(self, section: str, write: WriteObject) -> None:
        """Write new parts of a section as packs, with stored ones if these are many or their packs have thinned."""
        prefix = IndexKey.of(section)
        if section not in self._thinned and not any(key.startswith(bytes(prefix) + b"\x00") for key in self._new):
            return
        thinned = {ref: len(self._pack_of(ref)) for ref in self._thinned.get(section, ())}
        known = self._known(section)
        entries: list[tuple[bytes, ObjectRef | None]] = [
            (key, None if key in self._new else ref)
            for key, ref in self._index.items(prefix=prefix)
            # A pack holds one part of an id; a document that repeats an id keeps these parts as objects.
            if len(known[key[_id_at(section) :]]) == 1
        ]
        keys = to_pack(entries, thinned)
        values = dict(zip(keys, self._values(keys), strict=True))
        for some in slices(keys):
            ref = write(IcebergPack.of({key[_id_at(section) :]: values[key] for key in some}))
            for key in some:
                self._index.put(IndexKey(key), ref)
                self._new.pop(key, None)

    def _pack_of(self, ref: ObjectRef) -> Mapping[bytes, Any]:
        [loaded] = self._fetch([ref])
        if loaded is None or not isinstance(loaded.value, IcebergPack):
            raise CorruptObject(f"the pack {ref.id} is missing")
        return loaded.value.parts()

    def _thin(self, section: str, key: bytes) -> None:
        ref = self._index.get(IndexKey(key))
        if ref is not None and ref.type == PACK_TYPE.name:
            self._thinned.setdefault(section, set()).add(ref)

    def _unlink(self, section: str, key: bytes) -> None:
        self._thin(section, key)
        self._index.remove(IndexKey(key))
        self._new.pop(key, None)

    def _keys_of(self, section: str) -> list[bytes]:
        return self._index.keys(prefix=IndexKey.of(section))

    def _known(self, section: str) -> dict[bytes, list[bytes]]:
        """Return the keys of a section by id, several if a document repeats an id."""
        if section not in self._keys:
            keys = self._keys_of(section)
            skip = _id_at(section)
            known: dict[bytes, list[bytes]] = {}
            for key in keys:
                known.setdefault(key[skip:], []).append(key)
            self._next[section] = _position(keys[-1][skip - 9 : skip - 1]) + 1 if keys else 0
            self._keys[section] = known
        return self._keys[section]

    def _model(self, section: str) -> type[IcebergPart]:
        if section == _FIELDS:
            return IcebergField
        return self.layout.wholes["properties"] if section == _WHOLE else self.layout.sections[section].model

    def _present_now(self, section: str) -> None:
        if section in self.layout.sections and section not in self._present:
            self._present.add(section)
            self._touched = True

    def _append(self, section: str, text: bytes, held: IcebergPart | ObjectRef) -> None:
        known = self._known(section)
        if len(section) + len(text) + 10 > MAX_KEY_BYTES:
            raise InvalidIcebergMetadata(f"an id in {section} is too long for an index key")
        key = IndexKey.of(section, f"{self._next[section]:08x}", text.decode())
        self._next[section] += 1
        known.setdefault(text, []).append(key)
        if isinstance(held, ObjectRef):
            self._index.put(key, held)
        else:
            self._write(key, held)

    def _write(self, key: bytes, part: IcebergPart) -> None:
        section = IndexKey(key).elements()[0]
        check_nesting(section, part.value, 1 if section in (_WHOLE, _FIELDS) else 2)
        self._new[key] = part
        # A placeholder until the part is written and its id is known.
        self._index.put(IndexKey(key), _PENDING)

    def _values(self, keys: Iterable[bytes]) -> list[Any]:
        wanted = list(keys)
        stored = [IndexKey(key) for key in wanted if key not in self._new]
        refs = [ref for ref in self._index.get_many(stored).values() if ref is not None]
        values: dict[bytes, Any] = {key: self._new[key].value for key in wanted if key in self._new}
        for key, ref, loaded in zip(stored, refs, self._fetch(refs) if refs else [], strict=True):
            section = key.elements()[0]
            if loaded is not None and isinstance(loaded.value, IcebergPart):
                values[key] = loaded.value.value
                continue
            packed = loaded.value.parts() if loaded is not None and isinstance(loaded.value, IcebergPack) else {}
            text = bytes(key)[_id_at(section) :]
            if text not in packed:
                raise CorruptObject(f"part {ref.id} of {section} is missing")
            values[key] = packed[text]
        return [values[key] for key in wanted]

    def _replace_section(self, section: str, value: Any) -> None:
        """Parts keep object and position up to the first new or moved part; from there on positions are new."""
        self._present_now(section)
        self._known(section)
        keys = self._keys_of(section)
        old: dict[bytes, list[tuple[bytes, Any]]] = {}
        for key, part in zip(keys, self._values(keys), strict=True):
            old.setdefault(key[_id_at(section) :], []).append((key, part))
        last = b""
        moved: list[tuple[bytes, IcebergPart | ObjectRef]] = []
        removed: list[bytes] = []
        for text, part in identified(value, self.layout.sections[section].id):
            new = self._model(section)(value=part)
            if not old.get(text):
                moved.append((text, new))
                continue
            key, before = old[text].pop(0)
            unchanged = same(before, part)
            if moved or key <= last:
                held = self._new.get(key) or self._index.get(IndexKey(key)) or _PENDING
                moved.append((text, held if unchanged else new))
                removed.append(key)
                continue
            last = key
            if not unchanged:
                self._write(key, new)
        removed += [key for same_id in old.values() for key, _ in same_id]
        for key in removed:
            self._known(section)[key[_id_at(section) :]].remove(key)
            self._unlink(section, key)
        for text, held in moved:
            self._append(section, text, held)

    def _replace_fields(self, fields: Json) -> None:
        wholes = {name: fields.pop(name) for name in self.layout.wholes if name in fields}
        large = {name: value for name, value in fields.items() if len(cbor2.dumps(value)) > FIELD_BYTES}
        for section, values in ((_WHOLE, wholes), (_FIELDS, large)):
            for name in self.ids(section):
                if name not in values:
                    self.remove(section, name)
            for name, value in values.items():
                self.put(section, name, value)
        small = {name: value for name, value in fields.items() if name not in large}
        for name in [name for name in self._fields if name not in small]:
            del self._fields[name]
            self._touched = True
        for name, value in small.items():
            self.set_field(name, value)

    def _derive(self, how: Derived, document: Mapping[str, Any]) -> Any:
        section = document.get(how.section)
        id_name = self.layout.sections[how.section].id
        for part in section if isinstance(section, list) else ():
            if isinstance(part, dict) and id_name in part and same(part[id_name], document.get(how.current)):
                return part.get(how.part) if how.part else part
        return None


def _position(text: bytes) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise CorruptObject("a part of the metadata has an invalid position") from error


def _id_at(section: str) -> int:
    """Return where the id begins in a part's key: after section and position; ASCII JSON needs no escape."""
    return len(section) + 10
