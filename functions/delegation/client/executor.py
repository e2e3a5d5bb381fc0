"""Task executors and their factory (Delegation Service proposal, Polaris Changes), to be called to drop a table.

The table is purged first and then dropped (Delegation Service proposal, Order Of Deletion: Metadata & Object Storage).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Final, Protocol
from urllib.parse import urlsplit

from delegation.client.client import DelegationClient, new_key
from delegation.client.errors import (
    ClientMisconfigured,
    DelegationClientError,
    NothingPurged,
    PurgedNotDropped,
    TableChangedSincePurge,
)
from delegation.client.settings import BASE_PATH
from delegation.identifiers import TableIdentifier
from delegation.polaris.errors import NoSuchNamespace, NoSuchTable, PolarisError, TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.timestamps import utc_now
from delegation.wire.purges import PurgeRequest, TableState
from delegation.wire.responses import TaskSuccessResponse

DRY_RUN = "dry-run"
TASK_TYPE = "polaris.delegation-service.task-type"
ENDPOINT = "polaris.delegation-service.endpoint"
_METADATA_FILE: Final = re.compile(r"\S+\.json\b")


class TaskExecutor(Protocol):
    """Executes the catalog's tasks, with one method for each type of task."""

    def execute_purge_task(
        self, identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None, key: str | None = None
    ) -> TaskSuccessResponse:
        """Purge a table, then drop it from the catalog; after an error it may still be in the catalog."""
        ...


class TableCatalog(Protocol):
    """The catalog's operations that an executor needs; implemented by PolarisClient."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True) -> LoadedTable: ...

    def drop_table(self, identifier: TableIdentifier, *, purge: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class DelegatedTaskExecutor:
    """Has the Delegation Service purge a table, then drops it from the catalog.

    `catalog` uses the caller's credentials, so the caller needs the privileges to load and to drop the table. Nothing
    changes in the catalog before the purge has succeeded, so a failed call can be repeated.

    A drop is by name, so the table is loaded once more after the purge and dropped only if it is still the purged one.
    A commit or a recreation between that load and the drop loses its entry, because the Iceberg REST API has no
    conditional drop; its files stay, and registering its metadata.json restores it.
    """

    client: DelegationClient
    catalog: TableCatalog
    realm: str
    _: KW_ONLY
    clock: Callable[[], datetime] = utc_now

    def execute_purge_task(
        self, identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None, key: str | None = None
    ) -> TaskSuccessResponse:
        """Load the table, purge it under one idempotency key, and drop it without purge if it is still the same.

        Raises ClientMisconfigured for a dry run, PolarisError if the first load fails, DelegationClientError if the
        purge fails, NothingPurged if it deleted no file, TableChangedSincePurge if the name has another table or a
        newer commit, and PurgedNotDropped if the second load or the drop fails. After PurgedNotDropped or
        TableMetadataMissing the files are deleted: drop the table without purge.
        """
        if (properties or {}).get(DRY_RUN, "").lower() == "true":
            raise ClientMisconfigured(f"{DRY_RUN}: a dry run cannot be followed by a drop; submit it to POST /v1/tasks")
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
        outcome = self.client.execute_synchronous(purge.request(synchronous=True), key=key)
        if not _purged_anything(outcome):
            raise NothingPurged(str(identifier), outcome.delegation_task_id)
        try:
            self._check_unchanged(table, outcome)
            self.catalog.drop_table(identifier, purge=False)
        except (NoSuchTable, NoSuchNamespace):
            # Dropped by another client, or by an earlier request whose answer was lost.
            return outcome
        except PolarisError as error:
            raise PurgedNotDropped(str(identifier), outcome.delegation_task_id, str(error)) from error
        return outcome

    def _check_unchanged(self, purged: LoadedTable, outcome: TaskSuccessResponse) -> None:
        """Check that the name is still the purged table's; raises NoSuchTable, TableChangedSincePurge and others.

        A purge that kept the metadata file, because a live table shares it, leaves the table as it was loaded.
        """
        try:
            found = self.catalog.load_table(purged.identifier, vend=False)
        except TableMetadataMissing as missing:
            self._check_missing(str(missing), purged, outcome.delegation_task_id)
            return
        before, now = (purged.table_uuid, purged.metadata_location), (found.table_uuid, found.metadata_location)
        if before != now:
            raise TableChangedSincePurge(str(purged.identifier), outcome.delegation_task_id, purged=before, found=now)

    def _check_missing(self, message: str, purged: LoadedTable, task_id: str) -> None:
        """Check that the metadata file that Polaris misses is one that the purge deleted, if its message names one.

        It is newer than the one that was sent if the table was committed to during the purge; the task names it.
        """
        named = _METADATA_FILE.search(message)
        if named is None or purged.metadata_location in message:
            return
        try:
            deleted = self.client.task(task_id).purged_metadata_location
        except DelegationClientError as error:
            raise PurgedNotDropped(str(purged.identifier), task_id, str(error)) from error
        if deleted is None or deleted not in message:
            before = (purged.table_uuid, deleted or purged.metadata_location)
            raise TableChangedSincePurge(str(purged.identifier), task_id, purged=before, found=(None, named.group()))


def _purged_anything(outcome: TaskSuccessResponse) -> bool:
    return outcome.execution_result is not None and outcome.execution_result.files_deleted > 0


@dataclass(frozen=True, slots=True)
class TaskExecutorFactory:
    """Provides the executor that Polaris' `application.properties` name; `connect` returns a client for a base URL."""

    properties: Mapping[str, str] = field(repr=False)
    _: KW_ONLY
    connect: Callable[[str], DelegationClient]
    catalog: TableCatalog
    realm: str

    def executor(self) -> TaskExecutor:
        """Return the executor; raises ClientMisconfigured for a task type or an endpoint that it does not support."""
        task_type = self.properties.get(TASK_TYPE)
        if task_type != "delegated":
            raise ClientMisconfigured(f"{TASK_TYPE}: {task_type!r} is not supported; set it to `delegated`")
        endpoint = self.properties.get(ENDPOINT, "").rstrip("/")
        parts = urlsplit(endpoint)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ClientMisconfigured(f"{ENDPOINT}: {endpoint!r} is not an http(s) URL")
        # The proposal's example leaves the API's base path out.
        base_url = endpoint if parts.path else f"{endpoint}{BASE_PATH}"
        return DelegatedTaskExecutor(self.connect(base_url), self.catalog, self.realm)
