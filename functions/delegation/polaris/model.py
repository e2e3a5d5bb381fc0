"""The contents of a namespace of Polaris: tables as loaded, views, and generic tables.

Large table metadata is read without the parts that no decision needs, a window of its text at a time: a metadata.json
of 200 MB becomes 1.5 GB of objects. `json`'s own scanner parses each element, so the result is that of `json.loads`;
ijson's C parser refuses NaN and replaces lone surrogates.
"""

import hashlib
import json
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from json.decoder import WHITESPACE  # type: ignore[attr-defined] # not in typeshed
from sys import intern
from typing import Any, Final

from delegation.identifiers import TableIdentifier, stand_in_uuid
from delegation.storage.credentials import S3Credential, S3Settings

_LONGEST_UUID: Final = 100
"""Characters. Iceberg accepts any text of any length as a table's UUID (TableMetadataParser)."""


def comparable_uuid(text: str) -> str:
    """Return a UUID in lower case, for comparison and hashing as text; for any other text a digest."""
    text = text.lower()
    if len(text) <= _LONGEST_UUID and text.isascii():
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def with_uuid(metadata: Mapping[str, Any], catalog: str, location: str) -> Mapping[str, Any]:
    """Return table metadata with a table-uuid, which is optional in format version 1."""
    if metadata.get("table-uuid") is None and metadata.get("format-version") == 1:
        return {**metadata, "table-uuid": stand_in_uuid(catalog, location)}
    return metadata


def properties_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of table metadata as JSON texts, without nulls: some writers store other types."""
    given = metadata.get("properties")
    properties = given if isinstance(given, Mapping) else {}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in properties.items()
        if value is not None
    }


@dataclass(frozen=True, slots=True)
class GenericTable:
    """A table of another format that Polaris keeps; `base_location` is None if it has none."""

    identifier: TableIdentifier
    base_location: str | None


@dataclass(frozen=True)
class LoadedTable:
    """A LoadTableResult of the Iceberg REST specification; its repr shows no secret. `metadata` has exact integers;
    `credentials` are those of `storage-credentials`, then that of `config` (prefix ""), empty if none were vended.
    `config` may contain secrets."""

    identifier: TableIdentifier
    metadata_location: str
    metadata: Mapping[str, Any] = field(repr=False)
    config: Mapping[str, str] = field(repr=False)
    credentials: tuple[S3Credential, ...] = ()
    etag: str | None = None

    @property
    def table_uuid(self) -> str:
        return comparable_uuid(str(self.metadata["table-uuid"]))

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    @property
    def format_version(self) -> int:
        return int(self.metadata["format-version"])

    @property
    def properties(self) -> Mapping[str, str]:
        return properties_of(self.metadata)

    @property
    def s3(self) -> S3Settings:
        return S3Settings.from_config(self.config)


TABLE: Final = "table"
VIEW: Final = "view"
"""Iceberg REST specification, listViews, loadView, dropView."""
GENERIC_TABLE: Final = "generic table"
"""Apache Polaris, generic-tables-api.yaml."""
NO_SUCH_ENDPOINT: Final = frozenset({400, 404, 405, 406, 501})
"""Answers of servers whose API has no views or generic tables."""


def entities_path(kind: str, namespace_path: str) -> str:
    return f"{namespace_path}/views" if kind == VIEW else f"polaris/{namespace_path}/generic-tables"


def name_in(entry: Any) -> str | None:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) and name else None


LARGE: Final = 8 * 1024 * 1024
"""Bytes from which metadata is read in parts; above the largest answer that passes through the gateway."""
_WINDOW: Final = 1024 * 1024
_CUT: Final = 64
"""Invalid JSON within this many characters of a window's end may only be cut off there."""
MARK: Final = "delegation.task-id"
"""In the summary of a snapshot: the task that committed it (`rewrites.commits`)."""
_METADATA: Final = "metadata"
_SNAPSHOTS: Final = "snapshots"
_SCHEMAS: Final = "schemas"
_CURRENT: Final = "current-snapshot-id"
_NOT_KEPT: Final[Mapping[str, str]] = {
    _SNAPSHOTS: "summary",
    _SCHEMAS: "fields",
    "statistics": "blob-metadata",
}
"""The lists of table metadata that are read element by element, and the member of each that is not kept.

The current schema is kept, the summary of a snapshot that has MARK, and of the current one its operation and totals. Of
another that replaced files only that is kept. Nothing is kept of `snapshot-log`.
"""
_LOG: Final = "snapshot-log"
_REPLACED: Final[Mapping[str, Any]] = {"operation": "replace"}


def read_document(data: bytes) -> Any:
    """Return a JSON document; parts of large table metadata in it are not kept. Raises ValueError."""
    if len(data) < LARGE or json.detect_encoding(data[:4]) != "utf-8":
        return json.loads(data)
    return read_large(memoryview(data)[start : start + _WINDOW] for start in range(0, len(data), _WINDOW))


def read_large(data: Iterable[bytes | memoryview]) -> Any:
    """Return table metadata, or an answer with it as `metadata`, from pieces of UTF-8. Raises ValueError."""
    text = _Text(data)
    document = _object(text, outermost=True) if text.next() == "{" else text.value()
    if text.next():
        raise text.error("Extra data")
    return document


def _object(text: "_Text", *, outermost: bool = False) -> dict[str, Any]:
    members: dict[str, Any] = {}
    text.take("{")
    if text.next() == "}":
        text.take("}")
        return members
    while True:
        if text.next() != '"':
            raise text.error("Expecting property name enclosed in double quotes")
        name = text.value()
        text.take(":")
        begin = text.next()
        if begin == "{" and outermost and name == _METADATA:
            members[name] = _object(text)
        elif begin == "[" and (name in _NOT_KEPT or name == _LOG):
            members[name] = [element for element in _elements(text, name, members) if name != _LOG]
        else:
            members[name] = text.value()
        if text.take(",}") == "}":
            return members


def _elements(text: "_Text", name: str, around: Mapping[str, Any]) -> Iterator[Any]:
    text.take("[")
    if text.next() == "]":
        text.take("]")
        return
    while True:
        element = text.value()
        yield _kept(element, name, around) if isinstance(element, dict) else element
        if text.take(",]") == "]":
            return


def _kept(element: dict[str, Any], name: str, around: Mapping[str, Any]) -> dict[str, Any]:
    schema_id = element.get("schema-id")
    if name == _SCHEMAS and schema_id == around.get("current-schema-id", schema_id):
        return element
    # Interned: the scanner creates a new string for each element's names.
    kept = {intern(key): value for key, value in element.items() if key != _NOT_KEPT.get(name)}
    summary = element.get("summary") if name == _SNAPSHOTS else None
    snapshot_id = element.get("snapshot-id")
    if isinstance(summary, dict) and MARK in summary:
        kept["summary"] = summary
    elif isinstance(summary, dict) and snapshot_id == around.get(_CURRENT, snapshot_id):
        shown = ("operation", "total-")
        kept["summary"] = {intern(key): value for key, value in summary.items() if key.startswith(shown)}
    elif isinstance(summary, dict) and summary.get("operation") == _REPLACED["operation"]:
        kept["summary"] = _REPLACED
    return kept


class _Text:
    """The text that is decoded and not yet read."""

    def __init__(self, data: Iterable[bytes | memoryview]) -> None:
        self._data = iter(data)
        self._decoder = getincrementaldecoder("utf-8")("surrogatepass")
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._ended = False

    def next(self) -> str:
        """Return the next character that is no white space, "" at the end."""
        while True:
            self._at = WHITESPACE.match(self._text, self._at).end()
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._grow()

    def take(self, expected: str) -> str:
        """Consume and return the next character, which must be one of those expected."""
        character = self.next()
        if not character or character not in expected:
            raise self.error(f"Expecting {' or '.join(map(repr, expected))} delimiter")
        self._at += 1
        return character

    def value(self) -> Any:
        """Return the next value, read again with more of the text if it may be cut off."""
        self.next()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except ValueError as error:
                if self._ended or not self._is_cut(error):
                    raise
            else:
                if self._ended or end < len(self._text) - _CUT:
                    self._at = end
                    return value
            self._grow()

    def _is_cut(self, error: ValueError) -> bool:
        """Return whether more text may repair it; an integer with too many digits may be the start of a float."""
        if not isinstance(error, json.JSONDecodeError):
            return True
        return error.msg.startswith("Unterminated string") or error.pos > len(self._text) - _CUT

    def error(self, reason: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(reason, self._text, self._at)

    def _grow(self) -> None:
        """Drop the text that was read, and decode at least as much as is left."""
        pieces = [self._text[self._at :]]
        left = max(len(pieces[0]), 1)
        while left > 0 and not self._ended:
            data = next(self._data, None)
            self._ended = data is None
            pieces.append(self._decoder.decode(data or b"", final=self._ended))
            left -= len(pieces[-1])
        self._text, self._at = "".join(pieces), 0
