"""The input of a purge (table, stores, settings, attempt) and its result."""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from delegation.identifiers import TableIdentifier
from delegation.keeping.errors import NeighbourUnreadable
from delegation.keeping.model import Neighbour, ReferenceCheck, TableSource, no_neighbours
from delegation.operations.purge.options import PurgeOptions
from delegation.operations.purge.planning.lost import LostPlan
from delegation.operations.purge.planning.succession import StatedTable
from delegation.operations.purge.settings import PurgeSettings
from delegation.polaris.model import LoadedTable
from delegation.storage.base import PlanStore
from delegation.storage.locations import Roots
from delegation.storage.rate import AdaptiveRate
from delegation.timestamps import utc_now
from delegation.worksets.attempt import Attempt, PlanSegment
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.forecast import Forecast
from delegation.worksets.index import Finding, segment_of

if TYPE_CHECKING:
    from delegation.operations.purge.stayed import Stayed
    from delegation.storage.listing.model import ListableStore


def random_nonce() -> str:
    return secrets.token_hex(6)


def nobody() -> Mapping[str, Any]:
    """Return what a receipt states about a purge that no caller of the service asked for."""
    return {"requested_by": None, "cancelled_by": None}


def unmeasured(_size: str, _fits: bool = True) -> None:
    """Keep no size: of a run that nothing repeats."""


@dataclass(frozen=True)
class PurgeContext:
    """One attempt at purging one table.

    `store` is the table's storage, opened with vended credentials; `plans` is the service's plan bucket. `now` (a
    monotonic clock) and `sleep` count in seconds; `clock` returns the UTC time for records. `find_plan` returns the
    published segment of an earlier plan's id; without it the stored plan is trusted. `request` is for the receipt, and
    `asked_by` returns its members `requested_by` and `cancelled_by`.
    `stated` is compared with the table when no plan exists yet. `loaded` is the table as it was loaded to choose the
    engine: a plan may be made from it, because the table is loaded and compared again before the first delete.
    `neighbours` yields an error for a table or list that cannot be loaded. `lost_plan` is what is left of a plan that
    was lost, while it is made again. `measured` is called with the size that was found.
    """

    attempt: Attempt
    identifier: TableIdentifier
    table_uuid: str
    tables: TableSource
    store: "ListableStore"
    plans: PlanStore
    options: PurgeOptions = field(default_factory=PurgeOptions)
    settings: PurgeSettings = field(default_factory=PurgeSettings)
    neighbours: Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]] = no_neighbours
    clock: Callable[[], datetime] = utc_now
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rate: AdaptiveRate | None = None
    nonce: Callable[[], str] = random_nonce
    references: ReferenceCheck | None = None
    find_plan: Callable[[str], PlanSegment] | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    asked_by: Callable[[], Mapping[str, Any]] = nobody
    stated: StatedTable | None = None
    loaded: LoadedTable | None = None
    lost_plan: LostPlan | None = None
    measured: Callable[..., None] = unmeasured

    def named_plan(self, plan_id: str) -> PlanSegment:
        """Return an earlier plan by its id; raise PlanTampered."""
        return self.find_plan(plan_id) if self.find_plan is not None else segment_of(self.plans, plan_id)


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What a purge deleted, or with `status` PLANNED what it would delete and a `forecast` of that.

    `metadata_location` is the current metadata file, which is deleted last unless `root_kept`. The store reported
    `files_absent` of those deleted as absent; their bytes are not counted. `bytes_freed` is None for
    a versioned bucket, where a delete frees nothing. `files_kept` were reachable and not deleted; `findings` have
    the reasons. `metadata_files` are the present and former metadata files that the purge removed from the table's
    history. `left_over` is the operator's command for files that the credentials do not cover, `stayed` what is at the
    table's location afterwards, None if that was not looked at. INCOMPLETE means that some keys could not be deleted;
    the receipt lists them.
    """

    status: Literal["PURGED", "PLANNED", "INCOMPLETE"]
    engine: EngineChoice
    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str
    plan_ids: tuple[str, ...]
    files_planned: int
    files_deleted: int
    bytes_planned: int
    bytes_deleted: int
    bytes_freed: int | None
    files_kept: int
    findings: tuple[Finding, ...]
    receipt: str | None
    seconds: float
    root_kept: bool = False
    metadata_files: tuple[str, ...] = ()
    files_absent: int = 0
    forecast: Forecast | None = None
    left_over: str | None = None
    stayed: "Stayed | None" = None
