"""What a caller states about the table, compared with what the catalog has.

A caller may have loaded the table before the last commits. That is merely stale: the purge continues with the
catalog's state. Any other difference means another table, or a state that the table never had.
"""

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import ParsedMetadata
from delegation.operations.purge.context import StatedTable
from delegation.operations.purge.errors import TableStateMismatch
from delegation.storage.locations import canonical


def check_stated(stated: StatedTable | None, metadata: ParsedMetadata) -> None:
    """Raise TableStateMismatch, which has both values, unless the table has or had what the caller states.

    The location has to be the present one, the metadata file the present one or one of the metadata log, and the format
    version at most the present one, because a table is never set back to an older version.
    """
    if stated is None:
        return
    if _place(stated.location) != _place(metadata.location):
        raise TableStateMismatch("location", stated.location, metadata.location)
    if _place(stated.metadata_location) not in {_place(path) for path in (metadata.path, *metadata.former)}:
        raise TableStateMismatch("metadata_location", stated.metadata_location, metadata.path)
    if stated.format_version > metadata.format_version:
        raise TableStateMismatch("format-version", str(stated.format_version), str(metadata.format_version))


def _place(location: str) -> str:
    """Return one spelling of a location; one that cannot be read is compared by its letters."""
    text = location.rstrip("/")
    try:
        return canonical(text)
    except GuardRefused:
        return text
