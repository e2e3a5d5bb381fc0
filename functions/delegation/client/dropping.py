"""The last step of a purge: drops the table if its name is still the purged table's. A drop is by name, so the table is
loaded again before it. A commit or recreation between the load and the drop loses its entry, because the Iceberg REST
API has no conditional drop; its files stay, and registering its metadata.json restores it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from delegation.client.errors import (
    DelegationClientError,
    NotAuthorised,
    PurgedNotDropped,
    TableChangedSincePurge,
)
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, PolarisError, TableMetadataMissing
from delegation.polaris.model import LoadedTable

_METADATA_FILE: Final = re.compile(r"\S+\.json\b")

Authorise = Callable[[TableIdentifier], bool]
"""Whether the caller may drop the table with its files; only True permits it, and it may raise the host's own error.

The service purges as its own principal, so a caller who may read a table could otherwise have it purged: the
drop that proves the privilege comes after the files are gone. In Polaris this is the authorizer's decision on
DROP_TABLE_WITH_PURGE for the caller (Apache Polaris documentation, Access Control).
"""


def require_authorised(authorise: Authorise, identifier: TableIdentifier) -> None:
    """Raise NotAuthorised unless the host permits the purge."""
    if authorise(identifier) is not True:
        raise NotAuthorised(str(identifier))


class TableCatalog(Protocol):
    """The catalog's operations that a drop needs; implemented by PolarisClient."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True) -> LoadedTable: ...

    def drop_table(self, identifier: TableIdentifier, *, purge: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class PurgedTable:
    """The table whose purge was requested, as it was loaded before it, and the task that purged it."""

    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str
    task_id: str


def drop_if_unchanged(catalog: TableCatalog, purged: PurgedTable, deleted_location: Callable[[], str | None]) -> None:
    """Drop the table without purge if its name is still the purged one's; a missing one counts as dropped.
    `deleted_location` returns the metadata file that the purge deleted last. Raises TableChangedSincePurge, and
    PurgedNotDropped if the table cannot be loaded or dropped."""
    try:
        _check_unchanged(catalog, purged, deleted_location)
        catalog.drop_table(purged.identifier, purge=False)
    except (NoSuchTable, NoSuchNamespace):
        # Dropped by another client, or by an earlier request whose answer was lost.
        return
    except PolarisError as error:
        raise PurgedNotDropped(str(purged.identifier), purged.task_id, str(error)) from error


def _check_unchanged(catalog: TableCatalog, purged: PurgedTable, deleted_location: Callable[[], str | None]) -> None:
    """Check that the name is still the purged table's; raises NoSuchTable, TableChangedSincePurge and others. A purge
    that kept the metadata file, because a live table shares it, leaves the table as it was loaded."""
    try:
        found = catalog.load_table(purged.identifier, vend=False)
    except TableMetadataMissing as missing:
        _check_missing(str(missing), purged, deleted_location)
        return
    before, now = (purged.table_uuid, purged.metadata_location), (found.table_uuid, found.metadata_location)
    if before != now:
        raise TableChangedSincePurge(str(purged.identifier), purged.task_id, purged=before, found=now)


def _check_missing(message: str, purged: PurgedTable, deleted_location: Callable[[], str | None]) -> None:
    """Check that a metadata file in Polaris' message is one that the purge deleted. It is newer than the one sent if
    the table was committed to during the purge; the task names it."""
    named = _METADATA_FILE.search(message)
    if named is None or purged.metadata_location in message:
        return
    try:
        deleted = deleted_location()
    except DelegationClientError as error:
        raise PurgedNotDropped(str(purged.identifier), purged.task_id, str(error)) from error
    if deleted is None or deleted not in message:
        before = (purged.table_uuid, deleted or purged.metadata_location)
        raise TableChangedSincePurge(str(purged.identifier), purged.task_id, purged=before, found=(None, named.group()))
