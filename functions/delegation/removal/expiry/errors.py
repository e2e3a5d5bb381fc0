"""Errors of an expiry, by what the caller can do next, and the guards that refuse a table."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.metadata import ParsedMetadata
from delegation.identifiers import TableIdentifier, is_stand_in
from delegation.references.model import restore_statement
from delegation.removal.errors import changed_at_each_look, gc_disabled, table_protected, table_uuid_mismatch
from delegation.removal.path_guard import protection_of
from polaris_common.errors import DelegationError, counted, printable, shown

PLAN_LOST: Final = "EARLIER_PLAN_LOST"
"""A plan was lost, so files of the snapshots that it removed may stay until orphan files are removed."""

ADVICE: Final[Mapping[type[DelegationError], str]] = {
    ManifestMissing: ". A kept snapshot needs it. Restore the file, or drop or move the refs that keep the snapshot"
}
"""The outcome's addition to an error."""


class ExpiryError(DelegationError):
    """An expiry of snapshots failed."""

    code = "EXPIRY_FAILED"


class RefLost(ExpiryError):
    """The commit of an expiry removed refs that were created just before it. No file was deleted. `refs` are their
    names with their snapshots, `metadata_file` is the file that still has them. What it reaches is kept until
    `kept_until`; None: the next expiry may delete it."""

    code = "REF_LOST"

    def __init__(
        self,
        table: TableIdentifier,
        refs: Mapping[str, int],
        metadata_file: str,
        *,
        kept_until: datetime | None = None,
    ) -> None:
        shown_refs = ", ".join(f"{printable(name)} at snapshot {refs[name]}" for name in sorted(refs)[:3])
        kept = (
            "Without a reference index, their files are not kept. Restore the refs before the table's snapshots "
            "expire again"
        )
        if kept_until is not None:
            kept = (
                f"Their files stay until {kept_until:%Y-%m-%d}. When the refs are restored or nobody needs them, "
                "release the files with `delegation references dismiss`"
            )
        super().__init__(
            f"the commit also removed {counted(len(refs), 'ref')} of {table}, created just before it: "
            f"{shown_refs}. No file was deleted, and the metadata file {printable(metadata_file, 1000)} still "
            f"has them. Register this file under another name in Spark: {restore_statement(table, metadata_file)}. "
            f"{kept}"
        )
        self.refs = dict(refs)
        self.metadata_file = metadata_file
        self.kept_until = kept_until


class RefsUnknown(ExpiryError):
    """It can no longer be read whether the commit removed unplanned refs. No file was deleted. `metadata_file` is the
    file that would state it, or why there is none."""

    code = "REFS_UNKNOWN"

    def __init__(self, table: TableIdentifier, missing: str) -> None:
        super().__init__(
            f"the snapshots of {table} are removed, but the former metadata file is missing or unreadable "
            f"({printable(missing)}), so a new tag may be lost. No file was deleted. The plan in the receipt "
            f"lists the files that stay. `delegation orphans scan {table}` finds those that no table needs"
        )
        self.metadata_file = missing


def rest_of_plan_lost(table: TableIdentifier, missing: str, *, is_made: bool) -> ExpiryError:
    """Return the error for an approved plan of which a part is missing after its commit was sent; the rest stays
    undeleted. `is_made` states whether the commit is known to be applied."""
    are_removed = "are removed" if is_made else "may be removed"
    return ExpiryError(
        f"snapshots of {table} {are_removed}, but {printable(missing)} of the approved plan is missing, so the "
        f"remaining files are not deleted. The next request makes a new plan. `delegation orphans scan {table}` "
        "finds the files that no table needs",
        code=PLAN_LOST,
    )


def commit_refused(table: TableIdentifier, why: DelegationError) -> ExpiryError:
    """Return the error for a catalog that refused the commit for a reason that a retry does not change."""
    return ExpiryError(
        f"the catalog refused to remove snapshots of {table}, and nothing was changed ({why.code}): "
        f"{printable(str(why), 1_000)}",
        code="COMMIT_REFUSED",
    )


def commits_forestalled(table: TableIdentifier, times: int) -> ExpiryError:
    """Return the error for other commits that were first each time the removal of snapshots was sent."""
    return ExpiryError(
        f"other commits to {table} came first, {times} times. Nothing changed, and the task tries again later",
        code="COMMITS_FORESTALLED",
        retryable=True,
    )


def table_changes_too_often(table: TableIdentifier, looks: int) -> ExpiryError:
    """Return the error for a table with a commit at each of this many comparisons."""
    return ExpiryError(changed_at_each_look(table, looks), code="TABLE_CHANGES_TOO_OFTEN", retryable=True)


class InvalidRetention(GuardRefused):
    """An option or table property that sets how much history to keep is not a number that Iceberg accepts."""

    code = "INVALID_RETENTION"


class SnapshotReferenced(GuardRefused):
    """A snapshot named in the request is at the head of branches or tags that are kept."""

    code = "SNAPSHOT_REFERENCED"

    def __init__(self, snapshot_id: int, refs: Sequence[str]) -> None:
        super().__init__(
            f"snapshot {snapshot_id} cannot be expired, because it is the head of {shown(refs)}. Move or drop these "
            "refs, or remove the snapshot from the request"
        )
        self.snapshot_id = snapshot_id
        self.refs = tuple(refs)


def manifests_encrypted(why: str) -> GuardRefused:
    """Return the error for encrypted manifests (Iceberg Table Spec, version 3), whose files are unknown."""
    return GuardRefused(
        f"{why}, and this release cannot read encrypted manifests. Expire the snapshots with an engine that has the "
        "keys",
        code="UNSUPPORTED",
    )


WORK: Final = "expiry"
"""The name of the work in messages."""
_ENCRYPTION_KEY: Final = "encryption.key-id"
"""The property of a table with encrypted manifests and lists (Iceberg documentation, Configuration)."""


def check_table(metadata: ParsedMetadata, *, table_uuid: str) -> None:
    """Raise GuardRefused (TABLE_UUID_MISMATCH, TABLE_PROTECTED, GC_DISABLED, UNSUPPORTED). No setting overrules these.
    `gc.enabled` is read as by Iceberg, which also refuses every expiry without it."""
    if metadata.table_uuid != table_uuid.lower():
        raise table_uuid_mismatch(table_uuid.lower(), metadata.table_uuid, work=WORK)
    if is_stand_in(metadata.table_uuid):
        raise GuardRefused(
            "the table has no table-uuid, so a commit could change another table. Let an engine assign a table-uuid "
            "(assign-uuid), or upgrade the table to format version 2",
            code="UNSUPPORTED",
        )
    protection = protection_of(metadata.properties)
    if protection is not None:
        raise table_protected(protection, work=WORK, otherwise="")
    if not metadata.gc_enabled:
        raise gc_disabled("the table's property gc.enabled is false, so its snapshots cannot be expired")
    if metadata.properties.get(_ENCRYPTION_KEY):
        raise manifests_encrypted(f"the table's property {_ENCRYPTION_KEY} is set")
    encrypted = next((snapshot for snapshot in metadata.snapshots if snapshot.encrypted), None)
    if encrypted is not None:
        raise manifests_encrypted(f"the manifest list of snapshot {encrypted.snapshot_id} has an encryption key")
