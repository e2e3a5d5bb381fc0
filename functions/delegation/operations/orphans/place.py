"""Where orphan files may be looked for: one place, if nothing else is there. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import ParsedMetadata
from delegation.operations.orphans.errors import LocationShared, location_too_wide
from delegation.operations.orphans.spelling import Equal, is_below, overlap
from delegation.removal.errors import gc_disabled, table_protected
from delegation.removal.paths import protection_of
from delegation.storage.locations import LOCAL, Root, same_storage

WORK: Final = "removal of orphan files"
"""What messages call the work."""
_DEEP_ENOUGH: Final = 2
"""Components that a local location has at least: `/data` may be a whole disk."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something of a catalog is: a table, a table of another format, a view or a namespace.

    One that `is_of_metadata` has a view's metadata: a file, or the folder of such files.
    """

    kind: Literal["table", "table of another format", "view", "namespace"]
    name: str
    location: str
    is_of_metadata: bool = False


def place_of(metadata: ParsedMetadata, elsewhere: str | None = None) -> Root:
    """Return the only place where orphan files of a table are looked for: its location, or the one that is `elsewhere`.

    Neither a former location nor a write path is one by itself, for those who write the table choose them: the operator
    allows places elsewhere. Raises GuardRefused (LOCATION_TOO_WIDE) for a whole bucket, a root of a file system, and a
    location that names no clear place.
    """
    location = elsewhere or metadata.location
    try:
        root = Root.of(location)
    except GuardRefused as error:
        raise location_too_wide(location) from error
    parts = root.prefix.split("/")
    unclear = not root.prefix or any(part in ("", ".", "..") for part in parts)
    if unclear or not same_storage(location, metadata.path) or (root.bucket == LOCAL and len(parts) < _DEEP_ENOUGH):
        raise location_too_wide(location)
    return root


def check_alone(root: Root, others: Iterable[Place], equal: Equal) -> None:
    """Raise LocationShared if another table or a view is at, above or below the place, or a namespace at or below it.

    A table normally lies in its namespace's location, and may lie below the folder of a view's metadata files.
    """
    for other in others:
        if other.kind == "namespace" or other.is_of_metadata:
            shared = is_below(other.location, root.uri, equal)
        else:
            shared = overlap(other.location, root.uri, equal)
        if shared:
            raise LocationShared(root.uri, f"the {other.kind} {other.name}", other.location)


def check_allowed(metadata: ParsedMetadata) -> None:
    """Raise GuardRefused (TABLE_PROTECTED, GC_DISABLED); no setting overrules either here."""
    protection = protection_of(metadata.properties)
    if protection is not None:
        raise table_protected(protection, work=WORK, otherwise="")
    if not metadata.gc_enabled:
        raise gc_disabled("the table's property gc.enabled is false, so other tables may own its files")
