"""The input of a purge (table, stores, settings, attempt), its result and what only its receipt has."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.choice import Forecast, by_type
from delegation.removal.context import RemovalContext, RemovalResult
from delegation.removal.index import PlanIndex
from delegation.removal.marks import paths_digest, seconds_since_planned
from delegation.removal.purge.guards import LostPlan, StatedTable
from delegation.removal.purge.options import PurgeOptions, PurgeSettings
from delegation.storage.locations import LOCAL, Root
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


@dataclass(frozen=True, kw_only=True)
class PurgeContext(RemovalContext):
    """One attempt at purging one table.

    `stated` is compared with the table when no plan exists yet. `loaded` is the table as it was loaded to choose the
    engine: a plan may be made from it, because the table is loaded and compared again before the first delete.
    `lost_plan` is what is left of a plan that was lost, while it is made again.
    """

    options: PurgeOptions = field(default_factory=PurgeOptions)
    settings: PurgeSettings = field(default_factory=PurgeSettings)
    stated: StatedTable | None = None
    loaded: LoadedTable | None = None
    lost_plan: LostPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult(RemovalResult):
    """What a purge deleted, or with `status` PLANNED what it would delete and a `forecast` of that.

    `metadata_location` is the current metadata file, which is deleted last unless `root_kept`. `files_kept` were
    reachable and not deleted. `metadata_files` are the present and former metadata files that the purge removed from
    the table's history. `left_over` is the operator's command for files that the credentials do not cover, `stayed`
    what is at the table's location afterwards, None if that was not looked at. INCOMPLETE means that some keys could
    not be deleted; the receipt lists them.
    """

    status: Literal["PURGED", "PLANNED", "INCOMPLETE"]
    metadata_location: str
    files_kept: int = 0
    root_kept: bool = False
    metadata_files: tuple[str, ...] = ()
    forecast: Forecast | None = None
    left_over: str | None = None
    stayed: Stayed | None = None


def own_of_receipt(
    ctx: PurgeContext, result: PurgeResult, indexes: Sequence[PlanIndex], segments: Sequence[PlanSegment]
) -> dict[str, Any]:
    """Return the members of the receipt that operations do not have in common."""
    return {
        "format_version": indexes[-1].format_version,
        "snapshots": indexes[-1].snapshots,
        "options": ctx.options.recorded(),
        "plan": [asdict(segment) for segment in segments],
        "seconds_since_planned": seconds_since_planned(ctx, indexes),
        **({"files_absent": result.files_absent} if result.files_absent else {}),
        "files_kept": result.files_kept,
        "by_type": {name: total.model_dump() for name, total in by_type(indexes).items()},
        "neighbours": [asked.model_dump() for index in indexes for asked in index.neighbours],
        **({} if result.left_over is None else {"not_covered": result.left_over}),
        **({} if result.stayed is None else {"stayed": result.stayed.recorded()}),
        "paths_sha256": paths_digest(ctx.plans, indexes),
    }
