"""Identifiers of tables in a catalog, and of writes."""

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

NAMESPACE_SEPARATOR = "\x1f"
_NO_TEXT = re.compile(r"[\ud800-\udfff]")
_NAME_PART = re.compile(r"(?:`([^`]+)`|([^.`]+))(?:\.|\Z)")


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    """A table's identifier in Polaris: catalog, at least one namespace level, name.

    Raises ValueError for a part that cannot be one segment of a REST path: an empty part, one with 0x1F (the separator
    of namespace levels) or a lone surrogate, and `.` and `..`, which URL normalization removes.
    """

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        if not self.namespace:
            raise ValueError("a table identifier needs at least one namespace level")
        for part in (self.catalog, *self.namespace, self.name):
            _check_part(part, NAMESPACE_SEPARATOR)

    def __str__(self) -> str:
        """Return the dotted form for messages; it cannot be parsed, because a level may contain a dot."""
        return ".".join((self.catalog, *self.namespace, self.name))


def encoded(name: str | bytes) -> str:
    """Return a name for paths and queries: percent-encoded once, a blank as %20, which every server decodes."""
    return quote(name, safe="")


def encoded_query(parameters: Iterable[tuple[str, str]]) -> str:
    return "&".join(f"{encoded(name)}={encoded(value)}" for name, value in parameters)


def joined_levels(levels: Sequence[str], separator: str = NAMESPACE_SEPARATOR) -> str:
    """Return a namespace as one name, to be encoded. Raises ValueError for levels that would be another namespace."""
    for level in levels:
        _check_part(level, separator)
    if not levels:
        raise ValueError("a namespace needs at least one level")
    return separator.join(levels)


def _check_part(part: str, separator: str) -> None:
    is_dots = not {".", ".."}.isdisjoint(part.split("/"))
    if not part or is_dots or separator in part or NAMESPACE_SEPARATOR in part or _NO_TEXT.search(part):
        raise ValueError(
            "a part of an identifier is empty, is a dot segment, or contains a level separator, the character 0x1F or "
            "a lone surrogate"
        )


def split_name(text: str) -> list[str]:
    """Split a dotted name whose parts are plain or between backquotes; return nothing for any other text."""
    parts: list[str] = []
    at = 0
    while at < len(text) and (part := _NAME_PART.match(text, at)):
        parts.append(part[1] or part[2])
        at = part.end()
    return [] if at < len(text) or text.endswith(".") else parts


def stand_in_uuid(catalog: str, metadata_location: str) -> str:
    """Return an identity, in the form of a uuid, for a table of format version 1 without table-uuid. It does not depend
    on the table's name, so a rename by a drop keeps it. A commit changes it."""
    by_name = str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:without-uuid:{catalog}:{metadata_location}"))
    # Version 8 is for such uses (RFC 9562, Section 5.8); no table writer generates it.
    return f"{by_name[:14]}8{by_name[15:]}"


def is_stand_in(table_uuid: str) -> bool:
    return table_uuid[14:15] == "8"


def new_nonce() -> str:
    """Return a new nonce for one write; it fits a DynamoDB ClientRequestToken (36 characters)."""
    return str(uuid.uuid4())
