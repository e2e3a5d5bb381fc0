"""The answer of DeleteObjects, read in one pass by expat (Amazon S3 API Reference, DeleteObjects).

than S3 documents is left to botocore: slower, same result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

# A thousand keys of 1,024 bytes, escaped, with a message for each take less.
MOST_BYTES = 8 * 1024 * 1024
# One for each of a thousand keys under both lists.
MOST_ENTRIES = 2_000
# The tag of the root element ends within so many bytes.
LATEST_START = 4_096
_ATTRIBUTES_OF_ROOT: tuple[dict[str, str], ...] = ({}, {"xmlns": "http://s3.amazonaws.com/doc/2006-03-01/"})
# The names allowed at each depth.
_ROOT = frozenset({"DeleteResult"})
_ENTRIES = frozenset({"Deleted", "Error"})
_FIELDS = frozenset({"Key", "Code", "Message", "VersionId", "DeleteMarker", "DeleteMarkerVersionId"})
_MARKER = "DeleteMarkerVersionId"
# What is between two keys if nothing but keys is confirmed, without white space.
_BETWEEN = b"</Key></Deleted><Deleted><Key>"
_NAMES = (_ROOT, _ENTRIES, _FIELDS, frozenset[str]())


@dataclass(frozen=True, slots=True)
class DeleteAnswer:
    """The confirmed keys, each with whether it got a delete marker, and (key, code) of each error. An error's key or
    code is None unless it has exactly one. `markers` are version ids of delete markers by key."""

    confirmed: dict[str, bool] = field(default_factory=dict)
    errors: list[tuple[str | None, str | None]] = field(default_factory=list)
    markers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> "DeleteAnswer":
        return cls(
            {one["Key"]: bool(one.get("DeleteMarker")) for one in parsed.get("Deleted", ()) if _text(one, "Key")},
            [(_text(one, "Key"), _text(one, "Code")) for one in parsed.get("Errors", ())],
            {
                one["Key"]: one[_MARKER]
                for one in parsed.get("Deleted", ())
                if one.get("DeleteMarker") and _text(one, "Key") and _text(one, _MARKER)
            },
        )


def _text(one: Mapping[str, Any], name: str) -> str | None:
    """Return a member, None if the answer has none or several of the name."""
    value = one.get(name)
    return value if isinstance(value, str) else None


class _Irregular(Exception):
    pass


def read_answer(body: bytes) -> DeleteAnswer | None:
    """Return the content of an answer in S3's form, None for any other."""
    if not body or len(body) > MOST_BYTES:
        return None
    try:
        return _read_keys(body) or _read(body)
    except (_Irregular, expat.ExpatError):
        return None


def _read_keys(body: bytes) -> DeleteAnswer | None:
    """Return the content of an answer with only confirmed keys, None for any other. Its tags are counted, so that expat
    need not report them: outside the keys there are only the root's, those before the first key and those after the
    last. So every text is a key, unless one is empty."""
    between = body.count(_BETWEEN)
    tags = 4 * between + 6 + body.startswith(b"<?xml ")
    if (
        not 0 < between < MOST_ENTRIES
        or body.count(b"<") != tags
        or b"></Key>" in body
        or root_of(body) != "DeleteResult"
    ):
        return None
    keys: list[str] = []
    parser = expat.ParserCreate("utf-8", "}")
    parser.CharacterDataHandler = keys.append
    parser.Parse(body, True)
    # A key with an escape or a line break is more than one text.
    return DeleteAnswer(dict.fromkeys(keys, False)) if len(keys) == between + 1 else None


def _read(body: bytes) -> DeleteAnswer:
    """Read an answer with at most three levels and no attributes but the root's namespace."""
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    answer = DeleteAnswer()
    confirmed, errors = answer.confirmed, answer.errors
    depth = entries = 0
    text = ""
    fields: dict[str, str] = {}

    def refuse(*_: Any) -> None:
        raise _Irregular

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, text
        if name not in _NAMES[depth]:
            raise _Irregular
        if attributes or not depth:
            begins_well = not depth and attributes in _ATTRIBUTES_OF_ROOT
            if not begins_well or body.find(b">", parser.CurrentByteIndex) >= LATEST_START:
                raise _Irregular
        depth += 1
        text = ""

    def characters(data: str) -> None:
        nonlocal text
        text += data

    def end(name: str) -> None:
        nonlocal depth, entries
        depth -= 1
        if depth == 2:
            if name in fields:
                raise _Irregular
            fields[name] = text
        elif depth == 1:
            entries += 1
            if entries > MOST_ENTRIES:
                raise _Irregular
            key = fields.get("Key")
            if name == "Error":
                errors.append((key, fields.get("Code")))
            elif key is not None:
                confirmed[key] = fields.get("DeleteMarker") == "true"
                if confirmed[key] and fields.get(_MARKER):
                    answer.markers[key] = fields[_MARKER]
            fields.clear()

    parser.StartElementHandler = start
    parser.CharacterDataHandler = characters
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = parser.ProcessingInstructionHandler = refuse
    parser.Parse(body, True)
    return answer


def root_of(body: bytes) -> str:
    """Return the name of an answer's root element, "" if it is not XML; botocore does not check it."""
    names: list[str] = []
    parser = expat.ParserCreate("utf-8", "}")
    parser.StartElementHandler = lambda name, _: names.append(name)
    try:
        parser.Parse(body[:LATEST_START], False)
    except expat.ExpatError:
        return ""
    return names[0].rpartition("}")[2] if names else ""
