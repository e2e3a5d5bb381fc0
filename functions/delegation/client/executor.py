"""Task executors (Delegation Service proposal, Polaris Changes), to be called to drop a table.

The table is purged first and then dropped (Delegation Service proposal, Order Of Deletion: Metadata & Object Storage).
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Final, Protocol

from delegation.client.client import DelegationClient, new_key
from delegation.client.dropping import Authorise, PurgedTable, TableCatalog, drop_if_unchanged, require_authorised
from delegation.client.errors import ClientMisconfigured, NothingPurged
from delegation.identifiers import TableIdentifier
from delegation.timestamps import utc_now
from delegation.wire.requests import TableState
from delegation.wire.responses import TaskSuccessResponse
from delegation.wire.tables import PurgeRequest

DRY_RUN: Final = "dry-run"
_SPELLINGS: Final = (DRY_RUN, "dryRun")


class TaskExecutor(Protocol):
    """Executes the catalog's tasks, with one method for each type of task."""

    def execute_purge_task(
        self, identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None, key: str | None = None
    ) -> TaskSuccessResponse:
        """Purge a table, then drop it from the catalog; after an error it may still be in the catalog."""
        ...


@dataclass(frozen=True, slots=True)
class DelegatedTaskExecutor:
    """Has the Delegation Service purge a table, then drops it from the catalog.

    `catalog` uses the caller's credentials, so the caller needs the privileges to load and to drop the table. They are
    used too late to protect its files, so `authorise` is asked before anything else. Nothing changes in the catalog
    before the purge has succeeded, so a failed call can be repeated. What a drop by name cannot exclude is in
    `delegation.client.dropping`.
    """

    client: DelegationClient
    catalog: TableCatalog
    realm: str
    _: KW_ONLY
    authorise: Authorise
    clock: Callable[[], datetime] = utc_now

    def execute_purge_task(
        self, identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None, key: str | None = None
    ) -> TaskSuccessResponse:
        """Load the table, purge it under one idempotency key, and drop it without purge if it is still the same.

        Raises NotAuthorised, ClientMisconfigured for a dry run, PolarisError if the first load fails,
        DelegationClientError if the purge fails, NothingPurged if it deleted no file, TableChangedSincePurge if the
        name has another table or a newer commit, and PurgedNotDropped if the second load or the drop fails. After
        PurgedNotDropped or TableMetadataMissing the files are deleted: drop the table without purge.
        """
        refuse_dry_run(properties)
        require_authorised(self.authorise, identifier)
        key = key or new_key()
        # Without vended credentials: the service requests its own.
        table = self.catalog.load_table(identifier, vend=False)
        purge = PurgeRequest(
            realm=self.realm,
            identifier=identifier,
            table=TableState.of(table),
            properties=properties or {},
            correlation_id=key,
            requested_at=self.clock(),
        )
        outcome = self.client.execute(purge, key=key)
        task_id = outcome.delegation_task_id
        if outcome.execution_result is None or outcome.execution_result.files_deleted == 0:
            raise NothingPurged(str(identifier), task_id)
        purged = PurgedTable(identifier, table.table_uuid, table.metadata_location, task_id)
        drop_if_unchanged(self.catalog, purged, lambda: self.client.get(task_id).purged_metadata_location)
        return outcome


def refuse_dry_run(properties: Mapping[str, str] | None) -> None:
    """Raise ClientMisconfigured for a purge that would delete nothing, because a drop follows it."""
    if any((properties or {}).get(name, "").lower() == "true" for name in _SPELLINGS):
        raise ClientMisconfigured(f"{DRY_RUN}: a dry run cannot be followed by a drop; submit it to POST /v1/tasks")
