"""The order of a pass: a table's position, and when it is visited."""

from enum import Enum

from delegation.identifiers import TableIdentifier

Position = tuple[str, ...]
"""Of a table in a pass; see `position_of`."""


def position_of(identifier: TableIdentifier) -> Position:
    """Return a sort key by namespace first: the empty level is below every name."""
    return (*identifier.namespace, "", identifier.name)


class Turn(Enum):
    """When a pass visits a name."""

    EARLY = "before all others, because it has no entry"
    IN_ORDER = "in the order of positions, so that its visit moves the position of the pass"
    LATER = "after the names that were listed first, or once more"
