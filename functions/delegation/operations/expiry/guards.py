"""Guards: which tables' snapshots may be expired (docs/expiry.md)."""

from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import ParsedMetadata
from delegation.identifiers import is_stand_in
from delegation.keeping.errors import gc_disabled, table_protected, table_uuid_mismatch
from delegation.keeping.table_properties import protection_of
from delegation.operations.expiry.errors import manifests_encrypted

WORK: Final = "expiry"
"""What messages call the work."""
_ENCRYPTION_KEY: Final = "encryption.key-id"
"""The property of a table whose manifests and lists are encrypted (Iceberg documentation, Configuration)."""


def check_table(metadata: ParsedMetadata, *, table_uuid: str) -> None:
    """Raise GuardRefused (TABLE_UUID_MISMATCH, TABLE_PROTECTED, GC_DISABLED, UNSUPPORTED).

    No setting overrules any of them. `gc.enabled` is read as Iceberg does, which refuses every expiry then too.
    """
    if metadata.table_uuid != table_uuid.lower():
        raise table_uuid_mismatch(table_uuid.lower(), metadata.table_uuid, work=WORK)
    if is_stand_in(metadata.table_uuid):
        raise GuardRefused(
            "the table has no table-uuid, so a commit to it cannot be required to find the same table; have an engine "
            "assign one (the update assign-uuid), or upgrade the table to format version 2",
            code="UNSUPPORTED",
        )
    protection = protection_of(metadata.properties)
    if protection is not None:
        raise table_protected(protection, work=WORK, otherwise="")
    if not metadata.gc_enabled:
        raise gc_disabled("the table's property gc.enabled is false, so its snapshots cannot be expired")
    if metadata.properties.get(_ENCRYPTION_KEY):
        raise manifests_encrypted(f"the table's property {_ENCRYPTION_KEY} is set")
    encrypted = next((one for one in metadata.snapshots if one.encrypted), None)
    if encrypted is not None:
        raise manifests_encrypted(f"the manifest list of snapshot {encrypted.snapshot_id} has a key")
