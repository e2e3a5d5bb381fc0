"""Changes of a metadata document, collected separately and written at once, or not at all.

An update reads through the changes to the document, whose parts may be stored apart: what an update does not name is
neither read nor copied.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from polaris_persistence.iceberg.layout import Json, Layout, in_order


class MetadataSource(Protocol):
    """A metadata document that is read in parts; returned values must not be altered."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties, empty if absent."""
        ...

    def field(self, name: str) -> Any:
        """Return a top-level field that is neither section, log nor properties; None if it is absent."""
        ...

    def has_section(self, name: str) -> bool:
        """Return whether the document has the section, even an empty one."""
        ...

    def ids(self, section: str) -> Sequence[Any]:
        """Return the ids or names of a section in order."""
        ...

    def has(self, section: str, id_: object) -> bool:
        """Return whether a section has a part of that id or name."""
        ...

    def part(self, section: str, id_: object) -> Any:
        """Return the first part of that id or name, None if there is none."""
        ...

    def parts(self, section: str) -> Sequence[Any]:
        """Return the parts of a section in order."""
        ...

    def entries(self, log: str) -> Sequence[Json]:
        """Return the entries of a log, oldest first; none for an absent log."""
        ...

    def newest(self, log: str) -> Json | None:
        """Return the newest entry of a log."""
        ...

    def length(self, log: str) -> int:
        """Return the number of entries of a log."""
        ...


class DocumentSource:
    """A metadata document as a plain value, which is not altered."""

    def __init__(self, document: Mapping[str, Any], layout: Layout) -> None:
        self.document = document
        self._layout = layout
        self._known: dict[str, dict[Any, Any]] = {}

    @property
    def properties(self) -> Mapping[str, Any]:
        return self.document.get("properties") or {}

    def field(self, name: str) -> Any:
        return self.document.get(name)

    def has_section(self, name: str) -> bool:
        return self.document.get(name) is not None

    def ids(self, section: str) -> Sequence[Any]:
        id_name = self._layout.sections[section].id
        found = self.document.get(section) or ()
        return list(found) if id_name is None else [part.get(id_name) for part in found]

    def has(self, section: str, id_: object) -> bool:
        return id_ in self._index(section)

    def part(self, section: str, id_: object) -> Any:
        return self._index(section).get(id_)

    def parts(self, section: str) -> Sequence[Any]:
        found = self.document.get(section) or ()
        return list(found.values()) if isinstance(found, dict) else list(found)

    def entries(self, log: str) -> Sequence[Json]:
        return self.document.get(log) or []

    def newest(self, log: str) -> Json | None:
        entries = self.entries(log)
        return entries[-1] if entries else None

    def length(self, log: str) -> int:
        return len(self.entries(log))

    def _index(self, section: str) -> dict[Any, Any]:
        if section not in self._known:
            parts = zip(reversed(self.ids(section)), reversed(self.parts(section)), strict=True)
            self._known[section] = dict(parts)
        return self._known[section]


class SectionEdits:
    """The changes of one section: removed ids, replaced parts, parts added at the end, or a new order of all."""

    def __init__(self) -> None:
        self.removed: dict[Any, None] = {}
        self.replaced: dict[Any, Any] = {}
        self.added: dict[Any, Any] = {}
        self.reordered: list[Any] | None = None


class Edits:
    """A document with the changes of one commit. Callers that apply updates set `changed` if one had an effect."""

    def __init__(self, source: MetadataSource, layout: Layout) -> None:
        self.source = source
        self.layout = layout
        self.changed = False
        self.fields: Json = {}
        self.dropped: set[str] = set()
        self.sections: dict[str, SectionEdits] = {}
        self.logs: dict[str, list[Json]] = {}
        self.appended: dict[str, list[Json]] = {}
        self.oldest_dropped: dict[str, int] = {}
        self.new_properties: dict[str, Any] | None = None

    @property
    def properties(self) -> Mapping[str, Any]:
        return self.source.properties if self.new_properties is None else self.new_properties

    def set_properties(self, properties: Mapping[str, Any]) -> None:
        self.new_properties = dict(properties)

    def field(self, name: str) -> Any:
        return self.fields[name] if name in self.fields else self.source.field(name)

    def set_field(self, name: str, value: Any) -> None:
        self.fields[name] = value

    def has(self, section: str, id_: object) -> bool:
        edits = self.sections.get(section)
        if edits is None:
            return self.source.has(section, id_)
        return id_ in edits.added or (id_ not in edits.removed and self.source.has(section, id_))

    def part(self, section: str, id_: object) -> Any:
        edits = self.sections.get(section) or SectionEdits()
        for parts in (edits.added, edits.replaced):
            if id_ in parts:
                return parts[id_]
        return None if id_ in edits.removed else self.source.part(section, id_)

    def ids(self, section: str) -> list[Any]:
        edits = self.sections.get(section) or SectionEdits()
        if edits.reordered is not None:
            return list(edits.reordered)
        return [id_ for id_ in self.source.ids(section) if id_ not in edits.removed] + list(edits.added)

    def parts(self, section: str) -> list[Any]:
        edits = self.sections.get(section) or SectionEdits()
        if edits.reordered is not None:
            return [self.part(section, id_) for id_ in edits.reordered]
        pairs = zip(self.source.ids(section), self.source.parts(section), strict=True)
        kept = [edits.replaced.get(id_, part) for id_, part in pairs if id_ not in edits.removed]
        return kept + list(edits.added.values())

    def put(self, section: str, id_: Any, value: Any) -> None:
        """Replace the part of that id in place, or add it at the end."""
        edits = self.sections.setdefault(section, SectionEdits())
        in_source = id_ not in edits.removed and self.source.has(section, id_)
        (edits.replaced if in_source else edits.added)[id_] = value

    def remove(self, section: str, id_: Any) -> bool:
        """Remove all parts of that id or name; return False if there is none."""
        if not self.has(section, id_):
            return False
        edits = self.sections.setdefault(section, SectionEdits())
        edits.added.pop(id_, None)
        edits.replaced.pop(id_, None)
        if self.source.has(section, id_):
            edits.removed[id_] = None
        return True

    def keep_only(self, section: str, ids: Sequence[Any]) -> None:
        """Keep the parts of these ids, in this order."""
        for id_ in set(self.ids(section)) - set(ids):
            self.remove(section, id_)
        self.sections.setdefault(section, SectionEdits()).reordered = list(ids)

    def entries(self, log: str) -> list[Json]:
        entries = self.logs[log] if log in self.logs else self.source.entries(log)
        return [*entries, *self.appended.get(log, [])][self.oldest_dropped.get(log, 0) :]

    def newest(self, log: str) -> Json | None:
        if self.appended.get(log):
            return self.appended[log][-1]
        if log not in self.logs:
            return self.source.newest(log)
        return self.logs[log][-1] if self.logs[log] else None

    def log(self, log: str, entry: Json) -> None:
        self.appended.setdefault(log, []).append(entry)

    def limit_log(self, log: str, most: int) -> None:
        """Drop the oldest entries of a log that was only appended to, so that at most `most` are left."""
        length = self.source.length(log) + len(self.appended.get(log, ()))
        self.oldest_dropped[log] = max(0, length - most)

    def replace_log(self, log: str, entries: Iterable[Json]) -> None:
        self.logs[log] = list(entries)
        self.appended.pop(log, None)

    def document(self, mirrors: Mapping[str, Any], absent: Iterable[str]) -> Json:
        """Return the changed document of a DocumentSource with the fields `mirrors`, without those in `absent`."""
        if not isinstance(self.source, DocumentSource):
            raise TypeError(type(self.source))
        document: Json = {**self.source.document, **self.fields, **mirrors}
        for section in self.sections:
            ids, parts = self.ids(section), self.parts(section)
            is_map = self.layout.sections[section].id is None
            document[section] = dict(zip(ids, parts, strict=True)) if is_map else parts
        for log in {*self.logs, *self.appended, *self.oldest_dropped}:
            document[log] = self.entries(log)
        if self.new_properties is not None:
            document["properties"] = self.new_properties
        for name in absent:
            document.pop(name, None)
        return in_order(document, self.layout)
