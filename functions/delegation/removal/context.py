"""The input of an attempt at an operation that deletes (table, stores, settings, attempt), and its result."""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from delegation.iceberg.metadata import ParsedMetadata
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import Attempt, PlanSegment
from delegation.removal.choice import EngineChoice, RemovalSettings
from delegation.removal.errors import NeighbourUnreadable, plan_of_another_table, table_uuid_mismatch
from delegation.removal.index import Finding, PlanIndex, segment_of
from delegation.removal.neighbourhood import Neighbour, ReferenceCheck, SearchOptions, TableSource, no_neighbours
from delegation.storage.base import PlanStore
from delegation.storage.deleter import AdaptiveRate
from delegation.storage.locations import Roots
from delegation.timestamps import utc_now

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


def random_id() -> str:
    """Return a nonce that distinguishes two plans of one attempt."""
    return secrets.token_hex(6)


@dataclass(frozen=True, kw_only=True)
class RemovalContext:
    """One attempt at an operation on one table. Each operation adds its own fields.

    `store` is the table's storage, opened with vended credentials; `plans` is the service's plan bucket. `neighbours`
    yields the live tables that may overlap locations (None for all), and an error for a table or list that cannot be
    loaded; it may raise ReferencesNotKnown. `find_plan` returns the published segment of an earlier plan's id; without
    it the stored plan is trusted. `request` is for the receipt. If more than `spark_above` files are left when the
    references are known, the attempt ends with HandedToSpark; None: it deletes all. With `awaits_references` it waits
    for another process's pass instead of ending with ReferencesNotKnown. `rate` is that of all deletes of this process
    in the attempt. `now` and `sleep` count in seconds, `clock` returns UTC.
    """

    attempt: Attempt
    identifier: TableIdentifier
    table_uuid: str
    tables: TableSource
    store: "ListableStore"
    plans: PlanStore
    options: SearchOptions
    settings: RemovalSettings
    neighbours: Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]] = no_neighbours
    references: ReferenceCheck | None = None
    clock: Callable[[], datetime] = utc_now
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rate: AdaptiveRate | None = None
    nonce: Callable[[], str] = random_id
    find_plan: Callable[[str], PlanSegment] | None = None
    spark_above: int | None = None
    awaits_references: bool = False
    request: Mapping[str, Any] = field(default_factory=dict)

    def named_plan(self, plan_id: str) -> PlanSegment:
        """Return an earlier plan by its id. Raises PlanTampered."""
        return self.find_plan(plan_id) if self.find_plan is not None else segment_of(self.plans, plan_id)

    def plan_head(self, plan_id: str, metadata: ParsedMetadata) -> dict[str, Any]:
        """Return the fields of a PlanIndex that state the attempt, the time and the metadata of the plan."""
        return {
            "plan_id": plan_id,
            "task_id": self.attempt.task_id,
            "attempt": self.attempt.attempt,
            "table_uuid": metadata.table_uuid,
            "identifier": str(self.identifier),
            "metadata_location": metadata.path,
            "last_updated_ms": metadata.last_updated_ms,
            "format_version": metadata.format_version,
            "created_at": self.clock().isoformat(),
            "outside": self.options.outside,
        }

    def check_plan(self, index: PlanIndex) -> None:
        """Raise GuardRefused (PLAN_OF_ANOTHER_TABLE) unless the plan is for this attempt's table."""
        if index.table_uuid != self.table_uuid.lower():
            raise plan_of_another_table(f"plan {index.plan_id} is for table {index.table_uuid}, not {self.table_uuid}")
        # A clone registered from a metadata file has the same uuid, but is another table.
        if index.identifier != str(self.identifier):
            raise plan_of_another_table(f"plan {index.plan_id} is for {index.identifier}, not {self.identifier}")

    def load_table(self, work: str) -> LoadedTable:
        """Load the current table. Raises errors of the catalog and GuardRefused (TABLE_UUID_MISMATCH)."""
        self.attempt.checkpoint()
        table = self.tables.load()
        if table.table_uuid != self.table_uuid.lower():
            raise table_uuid_mismatch(self.table_uuid.lower(), table.table_uuid, work=work)
        return table

    def note_size(self, size: str, fits: bool = True) -> None:
        """Record the size of the work and, without Spark, whether it fits a function."""
        self.attempt.measured(size, fits or self.settings.has_spark)

    def new_plan_id(self) -> str:
        """Return a new plan id. Its nonce keeps a delayed attempt from overwriting another plan."""
        return f"{self.attempt.task_id}/{self.attempt.attempt}/{self.nonce()}"


Ctx = TypeVar("Ctx", bound=RemovalContext)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalResult:
    """What an operation deleted or would delete; each operation adds its status and its own fields. `files_absent` are
    the deleted files that the store reported as absent; their bytes are not counted. `bytes_freed` is None in a bucket
    that keeps versions, where a delete frees nothing. `findings` are the reasons why files were kept."""

    status: str
    identifier: TableIdentifier
    table_uuid: str
    plan_ids: tuple[str, ...] = ()
    files_planned: int = 0
    files_deleted: int = 0
    files_absent: int = 0
    bytes_planned: int = 0
    bytes_deleted: int = 0
    bytes_freed: int | None = 0
    findings: tuple[Finding, ...] = ()
    receipt: str | None = None
    seconds: float = 0.0
    engine: EngineChoice = "inline"

    def deleted_text(self, files: str, of: str = "") -> str:
        """Return a summary's text about the deletes of `files`; `of` is what they belong to or come with."""
        absent = f" ({self.files_absent:,} of them absent already)" if self.files_absent else ""
        return f"deleted {files}{absent}, {self.bytes_deleted} bytes{of} in {self.seconds:.1f} s"

    def freed_text(self) -> str:
        """Return a summary's addition for a bucket that keeps versions."""
        return "; nothing was freed, because the bucket is versioned" if self.bytes_freed is None else ""

    def deleted_details(self) -> dict[str, Any]:
        """Return the details of a task whose plan was executed."""
        return {
            "files_planned": self.files_planned,
            "files_deleted": self.files_deleted,
            "files_absent": self.files_absent,
            "files_failed": 0,
            "bytes_deleted": self.bytes_deleted,
        }
