"""What is decided before a table is renamed: whether its metadata permits a purge, and whether the caller may."""

from delegation.gateway.drop.errors import purge_forbidden
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
