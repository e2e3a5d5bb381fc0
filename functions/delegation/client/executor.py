"""Task executors (Delegation Service proposal, Polaris Changes) and their factory. The table is purged first, and then
dropped if its name is still the purged table's (Delegation Service proposal, Order Of Deletion: Metadata & Object
Storage). A drop is by name, so the table is loaded again before it. A commit or recreation between the load and the
drop loses its entry, because the Iceberg REST API has no conditional drop. Its files stay, and registering its
metadata.json restores it."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self
from urllib.parse import urlsplit

from delegation.client.client import DelegationClient, new_key
from delegation.client.errors import (
    ClientMisconfigured,
    DelegationClientError,
    ExtraMissing,
    NotAuthorised,
    NothingPurged,
    PurgedNotDropped,
    TableChangedSincePurge,
)
from delegation.client.settings import BASE_PATH, ClientSettings
from delegation.environment import parse_properties
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, PolarisError, TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.timestamps import utc_now
from delegation.wire.requests import TableState
from delegation.wire.responses import TaskSuccessResponse
from delegation.wire.tables import PurgeRequest

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


_METADATA_FILE: Final = re.compile(r"\S+\.json\b")

Authorise = Callable[[TableIdentifier], bool]
"""Returns whether the caller may drop the table with its files; only True permits it, and it may raise the host's own
error.

The service purges as its own principal, so without it a caller who may only read a table could have it purged: the drop
that proves the privilege comes after the files are gone. In Polaris this is the authorizer's decision on
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
    """Drop the table without purge if its name is still the purged table's; a missing one counts as dropped.
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
    """Check that the name is still the purged table's. A purge that kept the metadata file, because a live table shares
    it, leaves the table as it was loaded. Raises NoSuchTable, TableChangedSincePurge and others."""
    try:
        loaded = catalog.load_table(purged.identifier, vend=False)
    except TableMetadataMissing as missing:
        _check_missing(str(missing), purged, deleted_location)
        return
    before, now = (purged.table_uuid, purged.metadata_location), (loaded.table_uuid, loaded.metadata_location)
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


SERVICE: Final = "service"


@contextmanager
def needed_by(what: str, extra: str = SERVICE) -> Iterator[None]:
    """Import here what only `extra` installs. Raises ExtraMissing, which names it, for a missing module."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "delegation":
            raise
        raise ExtraMissing(what, extra, error.name) from error


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
    """Has the Delegation Service purge a table, then drops it from the catalog. `catalog` uses the caller's
    credentials, so the caller needs the privileges to load and drop the table. They are used too late to protect its
    files, so `authorise` is called first. Nothing changes in the catalog before the purge has succeeded, so a failed
    call can be repeated. `delegation.client.executor` states the limits of a drop by name."""

    client: DelegationClient
    catalog: TableCatalog
    realm: str
    _: KW_ONLY
    authorise: Authorise
    clock: Callable[[], datetime] = utc_now

    def execute_purge_task(
        self, identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None, key: str | None = None
    ) -> TaskSuccessResponse:
        """Load the table, purge it under one idempotency key, and drop it without purge if it is still the same. Raises
        NotAuthorised, ClientMisconfigured for a dry run, PolarisError if the first load fails, DelegationClientError if
        the purge fails, NothingPurged if it deleted no file, TableChangedSincePurge if the name has another table or a
        newer commit, and PurgedNotDropped if the second load or the drop fails. After PurgedNotDropped or
        TableMetadataMissing the files are deleted: drop the table without purge."""
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
        raise ClientMisconfigured(
            f"{DRY_RUN} cannot be used here, because a drop follows the purge. Submit the dry run to POST /v1/tasks"
        )


class WholeCatalog(Protocol):
    """The catalog's operations that a purge and the drop after it need; implemented by PolarisClient."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable: ...

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None: ...

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...

    def drop_table(self, identifier: TableIdentifier, *, purge: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class LocalTaskExecutor:
    """Purges a table in this process with the service's inline engine, then drops it from the catalog.

    `catalog` acts for a principal that gets vended credentials which read and delete the table's files. The principal
    must be able to list and load the tables that could share them; with `scan` `namespace` only those of its namespace.
    `plans` is the directory or `s3://…` place for plans and receipts. A call after a failure or crash resumes there, so
    it must outlive the process. Use one process at a time for a table. `store_of` opens a table's files other than with
    vended credentials. Without the extra `service` the constructor raises ExtraMissing.
    """

    catalog: WholeCatalog
    realm: str
    _: KW_ONLY
    authorise: Authorise
    plans: str = "./delegation-plans"
    scan: Literal["namespace", "catalog"] = "catalog"
    clock: Callable[[], datetime] = utc_now
    store_of: "Callable[[TableIdentifier], ListableStore] | None" = None

    def __post_init__(self) -> None:
        with needed_by("LocalTaskExecutor"):
            import delegation.client.local_purge  # noqa: F401, PLC0415 - the extra may be missing

    def execute_purge_task(
        self, identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None, key: str | None = None
    ) -> TaskSuccessResponse:
        """Purge the table with its guards, and drop it without purge if it is still the same; `key` has no effect.
        Raises NotAuthorised, ClientMisconfigured for a dry run, InvalidOption, the errors of `inline.purge_table`,
        NothingPurged, TableChangedSincePurge and PurgedNotDropped."""
        del key  # a repeat resumes by the plan's place
        refuse_dry_run(properties)
        require_authorised(self.authorise, identifier)
        from delegation.client.local_purge import LocalPurge  # noqa: PLC0415 - the extra is there

        purge = LocalPurge(self.catalog, identifier, self.realm, self.plans, self.scan, self.clock, self.store_of)
        purged = purge.run(properties or {})
        result = purged.outcome.execution_result
        if result is None or result.files_deleted == 0:
            raise NothingPurged(str(identifier), purged.outcome.delegation_task_id)
        drop_if_unchanged(self.catalog, purged.table, lambda: purged.deleted_location)
        return purged.outcome


PREFIX: Final = "polaris.delegation-service."
TASK_TYPE: Final = f"{PREFIX}task-type"
ENDPOINT: Final = f"{PREFIX}endpoint"
_VARIABLES: Final = {name: name.upper().replace(".", "_").replace("-", "_") for name in (TASK_TYPE, ENDPOINT)}
"""MicroProfile Config, Environment Variables Mapping Rules: POLARIS_DELEGATION_SERVICE_TASK_TYPE, …_ENDPOINT."""


def executor_properties(file: Path | None = None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Read the properties of a Polaris host: its `application.properties`, then the environment. A variable takes
    precedence, as in Quarkus (All configuration options: ordinals). Raises ClientMisconfigured for an unreadable file,
    and for an unknown name with this service's prefix."""
    properties: dict[str, str] = {}
    if file is not None:
        try:
            properties = parse_properties(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ClientMisconfigured(f"{file} cannot be read: {type(error).__name__}") from error
        except ValueError as error:
            raise ClientMisconfigured(f"{file}, {error}") from None
    unknown = sorted(name for name in properties if name.startswith(PREFIX) and name not in _VARIABLES)
    if unknown:
        raise ClientMisconfigured(
            f"unknown properties: {', '.join(unknown)}. The properties are {TASK_TYPE} and {ENDPOINT}"
        )
    environment = os.environ if environment is None else environment
    given = {name: environment[variable] for name, variable in _VARIABLES.items() if environment.get(variable)}
    return {**properties, **given}


def connect_to(base_url: str) -> DelegationClient:
    """Return a client of the API at this address, with the settings' identity. Raises ClientMisconfigured."""
    return DelegationClient.connect(ClientSettings.at(base_url))


@dataclass(frozen=True, slots=True)
class TaskExecutorFactory:
    """Provides the executor that Polaris' `application.properties` names. `connect` returns a client for a base URL,
    `local` are further arguments of a LocalTaskExecutor; `catalog` and `authorise` are those of every executor."""

    properties: Mapping[str, str] = field(repr=False)
    _: KW_ONLY
    catalog: WholeCatalog
    realm: str
    authorise: Authorise
    connect: Callable[[str], DelegationClient] = connect_to
    local: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path | None = None, **arguments: Any) -> Self:
        """Return a factory with the properties of a file and of the environment; see `executor_properties`."""
        return cls(executor_properties(file), **arguments)

    def executor(self) -> TaskExecutor:
        """Return the executor. Raises ClientMisconfigured for another task type or endpoint, and ExtraMissing."""
        task_type = self.properties.get(TASK_TYPE)
        if task_type == "local":
            return LocalTaskExecutor(self.catalog, self.realm, authorise=self.authorise, **self.local)
        if task_type != "delegated":
            problem = "is not set" if task_type is None else f"{task_type!r} is not supported"
            raise ClientMisconfigured(f"{TASK_TYPE}: {problem}; set it to `delegated` or `local`")
        client = self.connect(self._base_url())
        return DelegatedTaskExecutor(client, self.catalog, self.realm, authorise=self.authorise)

    def _base_url(self) -> str:
        endpoint = self.properties.get(ENDPOINT, "").rstrip("/")
        parts = urlsplit(endpoint)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ClientMisconfigured(f"{ENDPOINT}: {endpoint!r} is not an http(s) URL")
        # The proposal's example omits the API's base path.
        return endpoint if parts.path else f"{endpoint}{BASE_PATH}"
