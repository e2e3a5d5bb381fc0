"""Who executes a task for the catalog: the strategy and its factory of delegation-service.txt §5.

Polaris calls these where it drops a table; so may anyone who owns one. The order is §9.4's: purge first, drop second.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Protocol
from urllib.parse import urlsplit

from delegation.client.client import DelegationClient, new_key
from delegation.client.errors import ClientMisconfigured, PurgedNotDropped
from delegation.client.settings import BASE_PATH
from delegation.identifiers import TableIdentifier
from delegation.polaris.errors import NoSuchTable, PolarisError
from delegation.polaris.model import LoadedTable
from delegation.timestamps import utc_now
from delegation.wire.purges import PurgeRequest, TableState
from delegation.wire.responses import TaskSuccessResponse

TASK_TYPE = "polaris.delegation-service.task-type"
ENDPOINT = "polaris.delegation-service.endpoint"


class TaskExecutor(Protocol):
    """Executes a task of the catalog; one method for each kind of task."""

    def execute_purge_task(
        self, identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None, key: str | None = None
    ) -> TaskSuccessResponse:
        """Delete a table's files, then its entry in the catalog; any error leaves the entry."""
        ...


class TableCatalog(Protocol):
    """What an executor needs of the catalog; PolarisClient has it."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True) -> LoadedTable: ...

    def drop_table(self, identifier: TableIdentifier, *, purge: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class DelegatedTaskExecutor:
    """Has the delegation service purge the table, and drops it from the catalog only after that has succeeded.

    `catalog` acts as the caller, so loading and dropping prove the caller's own privileges. Until COMPLETED_SUCCESS
    nothing changes in the catalog: whatever is raised before, the table is still there and the call can be repeated.
    """

    client: DelegationClient
    catalog: TableCatalog
    realm: str
    _: KW_ONLY
    clock: Callable[[], datetime] = utc_now

    def execute_purge_task(
        self, identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None, key: str | None = None
    ) -> TaskSuccessResponse:
        """Load, purge under one key, drop without purge.

        Raises PolarisError from loading, DelegationClientError from purging, PurgedNotDropped from dropping. After
        the last, and when loading raises TableMetadataMissing, the files are gone: drop the table without purge.
        """
        key = key or new_key()
        # Credentials are not asked for: the service vends its own.
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
        try:
            self.catalog.drop_table(identifier, purge=False)
        except NoSuchTable:
            # An earlier drop whose answer was lost, or somebody else's: the state we want.
            return outcome
        except PolarisError as error:
            raise PurgedNotDropped(str(identifier), outcome.delegation_task_id, str(error)) from error
        return outcome


@dataclass(frozen=True, slots=True)
class TaskExecutorFactory:
    """Provides the executor that the configuration names.

    `properties` are Polaris' own (`application.properties`); `connect` makes a client for an endpoint's base URL.
    """

    properties: Mapping[str, str] = field(repr=False)
    _: KW_ONLY
    connect: Callable[[str], DelegationClient]
    catalog: TableCatalog
    realm: str

    def executor(self) -> TaskExecutor:
        """Raises ClientMisconfigured for a task type other than `delegated` and for an endpoint that is no URL."""
        task_type = self.properties.get(TASK_TYPE)
        if task_type != "delegated":
            raise ClientMisconfigured(f"{TASK_TYPE}: {task_type!r} is not `delegated`, the only one provided here")
        endpoint = self.properties.get(ENDPOINT, "").rstrip("/")
        parts = urlsplit(endpoint)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ClientMisconfigured(f"{ENDPOINT}: {endpoint!r} is not an http(s) URL")
        # The proposal's example leaves the API's base path out.
        base_url = endpoint if parts.path else f"{endpoint}{BASE_PATH}"
        return DelegatedTaskExecutor(self.connect(base_url), self.catalog, self.realm)
