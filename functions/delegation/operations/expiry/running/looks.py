"""Looking at the table of an expiry: loading it, and asking what may be expired of it, as it is at each look."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TypeVar

from delegation.iceberg.errors import ManifestMissing
from delegation.keeping.errors import table_uuid_mismatch
from delegation.operations.expiry.context import ExpiryContext
from delegation.operations.expiry.errors import table_changes_too_often
from delegation.operations.expiry.notes import OwnCommit
from delegation.operations.expiry.permission import Withdrawn, keeps_more
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import canonical

T = TypeVar("T")


class TableLooks:
    """The looks of one attempt; `ctx` has the retention permitted last, `withdrawn` states why nothing is any more."""

    def __init__(self, ctx: ExpiryContext) -> None:
        self.ctx = ctx
        self.withdrawn: str | None = None

    def load(self) -> LoadedTable:
        """Load the table as it is now; raise errors of catalog and guards, and GuardRefused (TABLE_UUID_MISMATCH)."""
        self.ctx.attempt.checkpoint()
        table = self.ctx.tables.load()
        if table.table_uuid != self.ctx.table_uuid.lower():
            raise table_uuid_mismatch(self.ctx.table_uuid.lower(), table.table_uuid, work="expiry")
        self.ctx.check(table)
        return table

    def followed(self, table: LoadedTable, read: Callable[[LoadedTable], T]) -> tuple[LoadedTable, T]:
        """Return a table that could be read, with what `read` returns; raise ExpiryError (TABLE_CHANGES_TOO_OFTEN),
        ManifestMissing.

        Another expiry may delete manifests while they are read: then the table is loaded again.
        """
        for _ in range(self.ctx.settings.most_looks):
            try:
                return table, read(table)
            except ManifestMissing:
                now = self.load()
                if canonical(now.metadata_location) == canonical(table.metadata_location):
                    raise
                table = now
        raise table_changes_too_often(self.ctx.identifier, self.ctx.settings.most_looks)

    def permit(self, table: LoadedTable) -> bool:
        """Decide from here on by what may be expired now; return whether anything may."""
        if self.ctx.permitted is None:
            return True
        found = self.ctx.permitted(table)
        if isinstance(found, Withdrawn):
            self.withdrawn = found.reason
            return False
        self.ctx = replace(self.ctx, retention=found)
        return True

    def permit_deleting(self, table: LoadedTable, noted: OwnCommit | None) -> bool:
        """Return whether the files of what was removed may be deleted: not if less of it might be removed now."""
        # After a commit whose answer is not known, what this attempt found permitted before.
        used = (noted and noted.retention) or asdict(self.ctx.retention)
        if not self.permit(table):
            return False
        if self.ctx.permitted is not None and keeps_more(asdict(self.ctx.retention), used):
            self.withdrawn = "more of the table is to be kept now than when its snapshots were removed"
        return self.withdrawn is None
