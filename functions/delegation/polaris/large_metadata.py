"""Reads large table metadata without the parts that no decision needs, a window of its text at a time. A metadata.json
of 200 MB becomes 1.5 GB of objects. `json`'s own scanner parses each element, so that it is read as `json.loads` reads
it: ijson's C parser refuses NaN and replaces lone surrogates."""

import json
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from json.decoder import WHITESPACE  # type: ignore[attr-defined] # not in typeshed
from sys import intern
from typing import Any, Final

LARGE: Final = 8 * 1024 * 1024
"""Bytes from which metadata is read by parts; above the largest answer that passes through the gateway."""
_WINDOW: Final = 1024 * 1024
_CUT: Final = 64
"""What is no JSON within so many characters of a window's end may be cut off there."""
MARK: Final = "delegation.task-id"
"""In the summary of a snapshot: the task that committed it (`rewrites.commits`)."""
_METADATA: Final = "metadata"
_SNAPSHOTS: Final = "snapshots"
_CURRENT: Final = "current-snapshot-id"
_NOT_KEPT: Final[Mapping[str, str]] = {
    _SNAPSHOTS: "summary",
    "schemas": "fields",
    "statistics": "blob-metadata",
}
"""The lists of table metadata that are read by their elements, and what is not kept of these.

Of the current snapshot's summary the totals are kept, and all of one that has MARK. Nothing is kept of `snapshot-log`.
"""
_LOG: Final = "snapshot-log"


def read_document(data: bytes) -> Any:
    """Return a JSON document, without what is not kept of large table metadata in it. Raises ValueError."""
    if len(data) < LARGE or json.detect_encoding(data[:4]) != "utf-8":
        return json.loads(data)
    return read_large(memoryview(data)[start : start + _WINDOW] for start in range(0, len(data), _WINDOW))


def read_large(data: Iterable[bytes | memoryview]) -> Any:
    """Return table metadata, or an answer with it as `metadata`, from pieces of UTF-8. Raises ValueError."""
    text = _Text(data)
    found = _object(text, outermost=True) if text.next() == "{" else text.value()
    if text.next():
        raise text.error("Extra data")
    return found


def _object(text: "_Text", *, outermost: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    text.take("{")
    if text.next() == "}":
        text.take("}")
        return found
    while True:
        if text.next() != '"':
            raise text.error("Expecting property name enclosed in double quotes")
        name = text.value()
        text.take(":")
        begin = text.next()
        if begin == "{" and outermost and name == _METADATA:
            found[name] = _object(text)
        elif begin == "[" and (name in _NOT_KEPT or name == _LOG):
            found[name] = [one for one in _elements(text, name, found) if name != _LOG]
        else:
            found[name] = text.value()
        if text.take(",}") == "}":
            return found


def _elements(text: "_Text", name: str, around: Mapping[str, Any]) -> Iterator[Any]:
    text.take("[")
    if text.next() == "]":
        text.take("]")
        return
    while True:
        one = text.value()
        yield _kept(one, name, around) if isinstance(one, dict) else one
        if text.take(",]") == "]":
            return


def _kept(one: dict[str, Any], name: str, around: Mapping[str, Any]) -> dict[str, Any]:
    # Names are shared: the scanner has a name of its own for each element.
    kept = {intern(key): value for key, value in one.items() if key != _NOT_KEPT.get(name)}
    summary = one.get("summary") if name == _SNAPSHOTS else None
    snapshot_id = one.get("snapshot-id")
    if isinstance(summary, dict) and MARK in summary:
        kept["summary"] = summary
    elif isinstance(summary, dict) and snapshot_id == around.get(_CURRENT, snapshot_id):
        kept["summary"] = {intern(key): value for key, value in summary.items() if key.startswith("total-")}
    return kept


class _Text:
    """The text that was decoded and not yet read."""

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
        """Return the next character, one of those expected, and go beyond it."""
        found = self.next()
        if not found or found not in expected:
            raise self.error(f"Expecting {' or '.join(map(repr, expected))} delimiter")
        self._at += 1
        return found

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
        """Return whether more of the text may repair it; an integer of too many digits may be the begin of a float."""
        if not isinstance(error, json.JSONDecodeError):
            return True
        return error.msg.startswith("Unterminated string") or error.pos > len(self._text) - _CUT

    def error(self, reason: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(reason, self._text, self._at)

    def _grow(self) -> None:
        """Forget what was read, and decode at least as much as is left."""
        pieces = [self._text[self._at :]]
        left = max(len(pieces[0]), 1)
        while left > 0 and not self._ended:
            data = next(self._data, None)
            self._ended = data is None
            pieces.append(self._decoder.decode(data or b"", final=self._ended))
            left -= len(pieces[-1])
        self._text, self._at = "".join(pieces), 0
