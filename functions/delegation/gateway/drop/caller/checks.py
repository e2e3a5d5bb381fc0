"""Checks before a table is renamed: its metadata permits a purge, and so do the caller's privileges."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.gateway.drop.errors import purge_forbidden
from delegation.gateway.drop.tombstones import Tombstone
from delegation.iceberg.metadata import parse_metadata
from delegation.polaris.model import LoadedTable
from delegation.removal.paths import covered_roots, table_roots
from delegation.removal.purge.guards import check_table
from delegation.removal.purge.options import PurgeOptions
from delegation.storage.base import ObjectStore


def check_purgeable(table: LoadedTable, options: PurgeOptions) -> None:
    """Apply the guards that metadata alone decides; raises GuardRefused and IcebergError, as the purge would later."""
    metadata = parse_metadata(table.metadata_location, table.metadata, experimental=options.experimental_format)
    check_table(metadata, options, table_uuid=table.table_uuid)
    table_roots(metadata, (), options)


def prove_privilege(table: LoadedTable, files: ObjectStore) -> None:
    """Delete a key that never existed below each location, with the caller's vended credentials. Polaris requires
    TABLE_DROP and TABLE_WRITE_DATA for a drop with purge, but only TABLE_DROP for a rename; without TABLE_WRITE_DATA it
    vends credentials that cannot delete. Raises DropError (PURGE_FORBIDDEN)."""
    if not table.credentials:
        raise purge_forbidden(str(table.identifier), "it vends none")
    for prefix in covered_roots(table).uris:
        refused = files.probe_delete(prefix)
        if refused is not None:
            raise purge_forbidden(str(table.identifier), refused)


_CLOCK_DRIFT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DropKey:
    """The key's scope, when it was first reserved, and whether an earlier request reserved it. `hold` extends the
    reservation and raises MutationInProgress if another request has the key."""

    scope: str
    since: datetime
    is_repeat: bool
    arrived: datetime
    hold: Callable[[], None]

    def is_of(self, record: Tombstone, caller: str) -> bool:
        """Return whether a request with this key wrote the record; without a scope, caller and time decide."""
        if record.scope is not None:
            return record.scope == self.scope
        return record.caller == caller and record.created_at >= self.since - _CLOCK_DRIFT
