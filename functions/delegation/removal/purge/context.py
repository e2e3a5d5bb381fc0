"""The input of a purge (table, stores, settings, attempt), its result and its receipt."""

import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import Attempt, PlanSegment
from delegation.removal.choice import EngineChoice, Forecast, by_type
from delegation.removal.errors import FilesNotDeleted, NeighbourUnreadable
from delegation.removal.index import Finding, PlanIndex, segment_of
from delegation.removal.marks import failures, heading, paths_digest, put_receipt
from delegation.removal.model import Neighbour, ReferenceCheck, TableSource, no_neighbours
from delegation.removal.purge.guards import LostPlan, StatedTable
from delegation.removal.purge.options import PurgeOptions, PurgeSettings
from delegation.storage.base import PlanStore
from delegation.storage.locations import LOCAL, Root, Roots
from delegation.storage.rate import AdaptiveRate
from delegation.timestamps import utc_now
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


PAGES: Final = 3
"""Requests of a count at most, for 1,000 objects each: nobody waits long for the count at a wide location."""


@dataclass(frozen=True, slots=True)
class Stayed:
    """How many objects a location has, and their bytes; `is_whole` is False if there may be more.

    `problem` is the code of the error for which nothing is known.
    """

    location: str
    objects: int = 0
    size: int = 0
    is_whole: bool = True
    problem: str | None = None

    def recorded(self) -> dict[str, Any]:
        """Return what the receipt has: the figures, and if there is something, a command that shows it."""
        if self.problem is not None:
            return {"location": self.location, "problem": self.problem}
        figures = {"objects": self.objects, "bytes": self.size, "is_whole": self.is_whole}
        return {"location": self.location, **figures, **({"command": self._command()} if self.objects else {})}

    def _command(self) -> str:
        # No command of this service lists the location of a table that the catalog does not have any more.
        if self.location.startswith(LOCAL):
            return f"find {shlex.quote(self.location.removeprefix('file://'))} -type f"
        return f"aws s3 ls --recursive --summarize {shlex.quote(self.location)}"


def count_stayed(store: "ListableStore", root: Root) -> Stayed:
    """Count the objects at a location, of whichever table or job; at most PAGES requests, the first failed one last."""
    objects, size, after = 0, 0, ""
    prefix = f"{root.prefix}/" if root.prefix else ""
    for _ in range(PAGES):
        try:
            page = store.page(root.bucket, prefix, after=after)
        except DelegationError as error:
            # All is deleted. What hinders the count, such as credentials that may not list, is no fault of the purge.
            return Stayed(root.uri, problem=error.code)
        objects += len(page.objects)
        size += sum(one.size for one in page.objects)
        if page.is_last or not page.objects:
            return Stayed(root.uri, objects, size)
        after = page.objects[-1].key
    return Stayed(root.uri, objects, size, is_whole=False)


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
    stayed: Stayed | None = None


def store_receipt(
    ctx: PurgeContext,
    result: PurgeResult,
    indexes: Sequence[PlanIndex],
    segments: Sequence[PlanSegment],
    *,
    failed: FilesNotDeleted | None = None,
) -> None:
    """Write the receipt; a repeat after a crash overwrites it with a later time.

    Of keys that `failed` it has the exact count, a sample, and the keys of the full lists.
    """
    receipt = {
        **_request(ctx, result, indexes[-1]),
        "plan": [asdict(segment) for segment in segments],
        **_outcome(ctx, result, indexes),
        **failures(ctx.plans, indexes, failed),
        "paths_sha256": paths_digest(ctx.plans, indexes),
    }
    put_receipt(ctx.plans, indexes[-1].plan_id, receipt)


def _request(ctx: PurgeContext, result: PurgeResult, last: PlanIndex) -> dict[str, Any]:
    return {
        **heading(ctx, result.status, result.engine),
        "table_uuid": result.table_uuid,
        "metadata_location": result.metadata_location,
        "format_version": last.format_version,
        "snapshots": last.snapshots,
        "options": ctx.options.recorded(),
    }


def _outcome(ctx: PurgeContext, result: PurgeResult, indexes: Sequence[PlanIndex]) -> dict[str, Any]:
    now = ctx.clock()
    return {
        "planned_at": indexes[0].created_at,
        "finished_at": now.isoformat(),
        "seconds": round(result.seconds, 3),
        "seconds_since_planned": round((now - datetime.fromisoformat(indexes[0].created_at)).total_seconds(), 3),
        "files_planned": result.files_planned,
        "files_deleted": result.files_deleted,
        **({"files_absent": result.files_absent} if result.files_absent else {}),
        "bytes_deleted": result.bytes_deleted,
        "bytes_freed": result.bytes_freed,
        "files_kept": result.files_kept,
        "by_type": {name: total.model_dump() for name, total in by_type(indexes).items()},
        "neighbours": [asked.model_dump() for index in indexes for asked in index.neighbours],
        **({} if ctx.references is None else {"references": ctx.references.summary()}),
        "findings": [finding.model_dump() for finding in result.findings],
        **({} if result.left_over is None else {"not_covered": result.left_over}),
        **({} if result.stayed is None else {"stayed": result.stayed.recorded()}),
    }
