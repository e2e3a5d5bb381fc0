"""Where a tombstone's table is in the catalog, and renaming it back, as the service's principal."""

from delegation.gateway.drop.errors import NameTaken
from delegation.gateway.drop.tombstones import Tombstone
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    TableAlreadyExists,
    TableMetadataMissing,
)
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import LoadedTable


def is_there(catalog: PolarisClient, record: Tombstone) -> bool:
    """Return whether the entry at a tombstone's destination is its own; raises NoSuchTable without an entry."""
    try:
        return catalog.load_table(record.destination, vend=False).table_uuid == record.table_uuid
    except TableMetadataMissing:
        return True  # nobody else knows the name, and the purge deletes the file last


def uuid_at(catalog: PolarisClient, identifier: TableIdentifier) -> str | None:
    """Return the uuid of the table that has a name, None without one."""
    found = _table_at(catalog, identifier)
    return None if found is None else found.table_uuid


def renamed_back(catalog: PolarisClient, record: Tombstone) -> str | None:
    """Rename a tombstone to its target and return a note, None without one; may be repeated. The tables at both names
    decide, whatever the rename's answer. A clone registered under the name is kept, and the tombstone's entry is
    dropped without purge. Raises NameTaken, PolarisUnavailable if the rename's outcome is unknown, and other
    PolarisErrors if nothing was renamed."""
    target = record.restore_identifier
    error = _rename(catalog, record, target)
    if error is None:
        return None
    there = _table_at(catalog, target)
    if there is not None and there.table_uuid == record.table_uuid:
        left = _table_at(catalog, record.destination)
        if left is None or left.table_uuid != record.table_uuid:
            return None
        if _follows(there, left):
            catalog.drop_table(record.destination, purge=False)
            return (
                f"a clone was registered as {target} meanwhile, which is the table now; the tombstone's entry is gone"
            )
        raise NameTaken(record.tombstone_id, str(target), is_former_state=True) from error
    if isinstance(error, TableAlreadyExists):
        raise NameTaken(record.tombstone_id, str(target)) from error
    raise error


def _rename(catalog: PolarisClient, record: Tombstone, target: TableIdentifier) -> PolarisError | None:
    """Rename the table at the destination if it is still this one; return the error that prevented it."""
    try:
        found = uuid_at(catalog, record.destination)
        if found is not None and found != record.table_uuid:
            return PolarisError(f"another table is at {record.destination}")
        catalog.rename_table(record.destination, target)
    except PolarisError as error:
        return error
    return None


def _table_at(catalog: PolarisClient, identifier: TableIdentifier) -> LoadedTable | None:
    try:
        return catalog.load_table(identifier, vend=False)
    except (NoSuchTable, NoSuchNamespace, TableMetadataMissing):
        return None


def _follows(clone: LoadedTable, table: LoadedTable) -> bool:
    """Return whether a clone has the table's current state or was committed on top of it."""
    log = clone.metadata.get("metadata-log") or ()
    return table.metadata_location in {clone.metadata_location, *(one.get("metadata-file") for one in log)}
