"""The metadata of a table or view as objects, read and changed in parts and exported as the value of metadata.json.

An index has the parts under (section, position, id): lists keep their order, and an id is found without reading parts.
A change writes its parts and one small state (NoSQL persistence proposal, Managed Iceberg Metadata).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import cbor2

from polaris_persistence.errors import CorruptObject
from polaris_persistence.iceberg.layout import (
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
from polaris_persistence.iceberg.log import Log, WriteObject, same
from polaris_persistence.iceberg.objects import IcebergField, IcebergMetadata, IcebergPart, LogState
from polaris_persistence.iceberg.parts import FIELDS, WHOLE, MetadataParts, id_at
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.types import Fetch

FIELD_BYTES: Final = 1_024
"""An unknown top-level field above this size is stored as a separate object."""


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
        self._parts = MetadataParts(layout, state.index, fetch)
        self._fields = dict(state.fields)
        self._present = set(state.sections)
        self._derived = set(state.derived)
        self._logs = {name: Log(log, self._parts.fetch) for name, log in state.logs.items()}
        self._touched = False

    @classmethod
    def of(cls, document: Mapping[str, Any], layout: Layout, fetch: Fetch) -> Self:
        """Return the working copy of a metadata document. Raises InvalidIcebergMetadata."""
        new = cls(IcebergMetadata(kind=layout.kind, fields={}, sections=()), fetch)
        new.replace_with(document)
        return new

    @property
    def changed(self) -> bool:
        return self._touched or self._parts.changed or any(log.changed for log in self._logs.values())

    def field(self, name: str) -> Any:
        """Return a small top-level field, or one that could be derived; None if it is absent."""
        if name in self.layout.derived and name not in self._fields:
            return self.part(FIELDS, name)
        return self._fields.get(name)

    def set_field(self, name: str, value: Any) -> None:
        """Set a small top-level field. Raises InvalidIcebergMetadata for one that nests too deeply."""
        check_nesting(name, value, 1)
        if name not in self._fields or not same(self._fields[name], value):
            self._fields[name] = value
            self._touched = True

    def ids(self, section: str) -> list[Any]:
        """Return the ids (or names) of a section in order, without reading its parts."""
        return [json.loads(key[id_at(section) :]) for key in self._parts.keys_of(section)]

    def has(self, section: str, id_: object) -> bool:
        """Return whether a part of that id (or name) exists, without reading it."""
        return bool(self._parts.known(section).get(id_text(id_)))

    def part(self, section: str, id_: object) -> Any:
        """Return the first part of that id (or name), None if there is none."""
        keys = self._parts.known(section).get(id_text(id_))
        return next(iter(self._parts.values(keys[:1]))) if keys else None

    def parts(self, section: str) -> list[Any]:
        """Return all parts of a section in order, read in batches."""
        return self._parts.values(self._parts.keys_of(section))

    def put(self, section: str, id_: object, value: Any) -> None:
        """Replace the part of that id in place, or add it at the end."""
        self._present_now(section)
        keys = self._parts.known(section).get(id_text(id_))
        if keys:
            if not same(self.part(section, id_), value):
                self._parts.thin(section, keys[0])
                self._parts.write(keys[0], self._model(section)(value=value))
        else:
            self._parts.append(section, id_text(id_), self._model(section)(value=value))

    def has_section(self, name: str) -> bool:
        """Return whether the document has the section, even an empty one."""
        return name in self._present

    def keep_only(self, section: str, ids: Iterable[object]) -> None:
        """Keep the parts of these ids, in this order."""
        self._replace_section(section, [self.part(section, id_) for id_ in ids])

    def drop(self, name: str) -> None:
        """Remove a top-level field, a section or the properties."""
        if name in self.layout.sections:
            self.clear(name)
        self.remove(WHOLE if name in self.layout.wholes else FIELDS, name)
        self._touched |= self._fields.pop(name, None) is not None

    def derive(self, names: Iterable[str]) -> None:
        """Give the document these derived fields, and no others."""
        if set(names) != self._derived:
            self._touched = True
            self._derived = set(names)
            for name in self.layout.derived:
                self.drop(name)

    def remove(self, section: str, id_: object) -> bool:
        """Remove all parts of that id; return False if there is none."""
        keys = self._parts.known(section).pop(id_text(id_), [])
        for key in keys:
            self._parts.unlink(section, key)
        return bool(keys)

    def clear(self, section: str) -> None:
        for id_ in self.ids(section):
            self.remove(section, id_)
        if section in self._present:
            self._present.remove(section)
            self._touched = True

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties, empty if absent."""
        found = self.part(WHOLE, "properties")
        return found if isinstance(found, dict) else {}

    def set_properties(self, properties: Mapping[str, Any]) -> None:
        self.put(WHOLE, "properties", dict(properties))

    def log(self, name: str) -> Log:
        """Return a log, to read and append to."""
        if name not in self.layout.logs:
            raise KeyError(name)
        if name not in self._logs:
            self._logs[name] = Log(LogState(), self._parts.fetch)
            self._touched = True
        return self._logs[name]

    def entries(self, log: str) -> list[Json]:
        """Return the entries of a log, oldest first; none for an absent log."""
        return self._logs[log].entries() if log in self._logs else []

    def newest(self, log: str) -> Json | None:
        """Return the newest entry of a log, without reading older ones."""
        return self._logs[log].newest() if log in self._logs else None

    def length(self, log: str) -> int:
        """Return the number of entries of a log, without reading them."""
        return len(self._logs[log]) if log in self._logs else 0

    def document(self) -> Json:
        """Return the metadata document, the value of metadata.json, with fields in Iceberg's order.

        What is not in memory is read in two batches: the stripes of the index, then the parts and logs.
        """
        self._parts.prefetch([ref for log in self._logs.values() for ref in log.refs])
        document = dict(self._fields)
        for section in self._present:
            value: Any = self.parts(section)
            if self.layout.sections[section].id is None:
                value = dict(zip(self.ids(section), value, strict=True))
            document[section] = value
        for section in (WHOLE, FIELDS):
            document |= dict(zip(self.ids(section), self.parts(section), strict=True))
        document |= {name: log.entries() for name, log in self._logs.items()}
        document |= {name: self._derive(self.layout.derived[name], document) for name in self._derived}
        return in_order(document, self.layout)

    def replace_with(self, document: Mapping[str, Any]) -> None:
        """Change the metadata to `document`, keeping unchanged parts. Raises InvalidIcebergMetadata for a long id, and
        for more than MAX_JSON_NESTING levels of objects and arrays."""
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
        index = self._parts.finish(policy, write)
        return self._state.model_copy(
            update={
                "fields": dict(self._fields),
                "sections": tuple(name for name in self.layout.order if name in self._present),
                "derived": tuple(sorted(self._derived)),
                "index": index,
                "logs": {name: log.finish(write) for name, log in self._logs.items()},
            }
        )

    def _model(self, section: str) -> type[IcebergPart]:
        if section == FIELDS:
            return IcebergField
        return self.layout.wholes["properties"] if section == WHOLE else self.layout.sections[section].model

    def _present_now(self, section: str) -> None:
        if section in self.layout.sections and section not in self._present:
            self._present.add(section)
            self._touched = True

    def _replace_section(self, section: str, value: Any) -> None:
        """Parts keep object and position up to the first new or moved part; from there on positions are new."""
        self._present_now(section)
        self._parts.known(section)
        keys = self._parts.keys_of(section)
        old: dict[bytes, list[tuple[bytes, Any]]] = {}
        for key, part in zip(keys, self._parts.values(keys), strict=True):
            old.setdefault(key[id_at(section) :], []).append((key, part))
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
                held = self._parts.held(key)
                moved.append((text, held if unchanged else new))
                removed.append(key)
                continue
            last = key
            if not unchanged:
                self._parts.write(key, new)
        removed += [key for same_id in old.values() for key, _ in same_id]
        for key in removed:
            self._parts.known(section)[key[id_at(section) :]].remove(key)
            self._parts.unlink(section, key)
        for text, held in moved:
            self._parts.append(section, text, held)

    def _replace_fields(self, fields: Json) -> None:
        wholes = {name: fields.pop(name) for name in self.layout.wholes if name in fields}
        large = {name: value for name, value in fields.items() if len(cbor2.dumps(value)) > FIELD_BYTES}
        for section, values in ((WHOLE, wholes), (FIELDS, large)):
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
