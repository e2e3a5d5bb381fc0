"""What is decided before a table is renamed: whether its metadata permits a purge, and whether the caller may."""

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
    """Delete a key that never existed below each location of the table with the caller's own vended credentials.

    Polaris asks TABLE_DROP and TABLE_WRITE_DATA for a drop with purge, and only the first for a rename; without the
    second it vends credentials that cannot delete, which look like any others. Raises DropError (PURGE_FORBIDDEN).
    """
    if not table.credentials:
        raise purge_forbidden(str(table.identifier), "it vends none")
    for prefix in covered_roots(table).uris:
        refused = files.probe_delete(prefix)
        if refused is not None:
            raise purge_forbidden(str(table.identifier), refused)


_CLOCK_DRIFT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DropKey:
    """The key's scope, when its first request reserved it, and whether an earlier request had it already.

    This request arrived at `arrived`. `hold` has it keep the key, and raises MutationInProgress if another one has it.
    """

    scope: str
    since: datetime
    is_repeat: bool
    arrived: datetime
    hold: Callable[[], None]

    def is_of(self, record: Tombstone, caller: str) -> bool:
        """Return whether a request with this key put the record.

        Of a record without a scope, which an earlier release put, the caller and the time decide.
        """
        if record.scope is not None:
            return record.scope == self.scope
        return record.caller == caller and record.created_at >= self.since - _CLOCK_DRIFT
