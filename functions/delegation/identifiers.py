"""Identifiers of tables in a catalog, and of writes."""

import re
import uuid
from dataclasses import dataclass

NAMESPACE_SEPARATOR = "\x1f"
_NAME_PART = re.compile(r"(?:`([^`]+)`|([^.`]+))(?:\.|\Z)")


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    """A table's identifier in Polaris: catalog, at least one namespace level, name.

    Raises ValueError for a part that cannot be one segment of a REST path: an empty one, one with 0x1F (the separator
    of namespace levels), and `.` and `..`, which URL normalisation removes.
    """

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        if not self.namespace:
            raise ValueError("a table identifier needs at least one namespace level")
        for part in (self.catalog, *self.namespace, self.name):
            if not part or {".", ".."} & set(part.split("/")) or NAMESPACE_SEPARATOR in part:
                raise ValueError("a part of a table identifier is empty, a dot segment, or contains the character 0x1F")

    def __str__(self) -> str:
        """Return the dotted form for messages; it cannot be parsed, because a level may contain a dot."""
        return ".".join((self.catalog, *self.namespace, self.name))


def split_name(text: str) -> list[str]:
    """Split a dotted name whose parts are plain or between backquotes; return nothing for a text that is none."""
    parts: list[str] = []
    at = 0
    while at < len(text) and (part := _NAME_PART.match(text, at)):
        parts.append(part[1] or part[2])
        at = part.end()
    return [] if at < len(text) or text.endswith(".") else parts


def new_nonce() -> str:
    """Return a new nonce for one write; it fits a DynamoDB ClientRequestToken (36 characters)."""
    return str(uuid.uuid4())
