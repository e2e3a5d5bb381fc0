"""The executor that purges in this process; what it needs beyond the client is imported when one is made."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from delegation.client.dropping import Authorise, drop_if_unchanged, require_authorised
from delegation.client.errors import NothingPurged
from delegation.client.executor import refuse_dry_run
from delegation.client.extras import needed_by
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.timestamps import utc_now
from delegation.wire.responses import TaskSuccessResponse

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


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

    `catalog` is of a principal that may have credentials vended for the table, which read and delete its files, and
    may list and load the tables that could share them: with `scan` `namespace` only those of its namespace. `plans` is
    the directory or `s3://…` place for plans and receipts; a call after a failure or a crash resumes there, so it has
    to outlive the process. Use one process at a time for a table. `store_of` opens a table's files otherwise than with
    vended credentials.

    Making one raises ExtraMissing without the extra `service`.
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

        Raises NotAuthorised, ClientMisconfigured for a dry run, InvalidOption, what `inline.purge_table` raises,
        NothingPurged, TableChangedSincePurge and PurgedNotDropped.
        """
        del key  # the plan's place is what makes a repeat resume
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
