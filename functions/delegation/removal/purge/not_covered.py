"""Deletes what a plan kept as NOT_COVERED, with the operator's credentials: files of an already purged table. A purge
takes such files over from an earlier one (`kept_files`) and lists them in its KEPT chunks, because its vended
credentials do not cover them. When that plan was made, no live table referenced them. Tables that may reference them
since then are named to protect theirs."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from delegation.iceberg.paths import RANK, Row, TableFile
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.chunks import Phase, records_of
from delegation.removal.errors import FilesNotDeleted, FilesNotDeletedYet, PlanTampered
from delegation.removal.index import INDEX, SAMPLE, Finding, PlanIndex, Sorter, common, read_index, sorted_runs
from delegation.removal.marks import Deleted
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.neighbours import ReadOnce, reach_of_neighbour
from delegation.removal.path_guard import NOBODYS, SHARED
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.direct import DirectResources, MetadataFile, identifier_of
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.removal.spark_executors import no_checkpoint
from delegation.removal.unread_neighbours import UnreadNeighbours
from delegation.storage.base import PlanStore
from delegation.storage.deleter import DeletePolicy, Deleter, Outcome
from delegation.storage.locations import FOREIGN_LOCATION, ForeignLocations, Roots, canonical

VERDICT: Final = "not-covered"


@dataclass
class NotCoveredRun:
    """One run. It may be repeated, because an absent file counts as deleted."""

    index_location: str
    resources: DirectResources
    protect: tuple[str, ...] = ()
    dry_run: bool = False
    foreign: ForeignLocations = NOBODYS
    checkpoint: Callable[[], None] = no_checkpoint
    deleted: Deleted = field(default_factory=Deleted)

    def __call__(self) -> PurgeResult:
        """Delete the files, or count them. Raises PlanTampered, FilesNotDeleted, and what reading a table raises."""
        started = time.monotonic()
        plans = self.resources.plans()
        index = read_index(plans, plan_of(self.index_location))
        store = self.resources.store(identifier_of(index.metadata_location))
        ctx = PurgeContext(
            attempt=MemoryAttempt("not-covered", on_checkpoint=self.checkpoint),
            identifier=identifier_of(index.metadata_location),
            table_uuid=index.table_uuid,
            tables=MetadataFile(index.metadata_location, store),
            store=store,
            plans=plans,
            options=PurgeOptions(),
            settings=PurgeSettings(vended=False),
        )
        files, protected, foreign, failures = 0, 0, 0, []
        with Sorter() as ours_all, Sorter() as theirs, Deleter(store, DeletePolicy()) as deleter:
            once = ReadOnce()
            for path in map(canonical, self.protect):
                other = self.resources.store(identifier_of(path))
                neighbour = Neighbour(MetadataFile(path, other).load(), other, certain=True)
                theirs.extend(reach_of_neighbour(ctx, neighbour, UnreadNeighbours(ctx), once))
            ours_all.extend(_kept_rows(plans, index))
            for rows, shared in common(ours_all.batches(), (row.path for row in theirs.sorted())):
                unshared = [TableFile(*row) for row in rows if row[0] not in shared]
                ours = [row for row in unshared if not self.foreign.contain(row.path)]
                files, protected = files + len(ours), protected + len(shared)
                foreign += len(unshared) - len(ours)
                if self.dry_run:
                    continue
                outcome = deleter.delete(ours, self.checkpoint)
                self._note(outcome)
                failures += outcome.failures
        if failures:
            sample = [(failure.path, failure.code) for failure in failures[:SAMPLE]]
            later = all(failure.transient for failure in failures)
            raise (FilesNotDeletedYet if later else FilesNotDeleted)(len(failures), sample)
        counts = {SHARED: protected, FOREIGN_LOCATION: foreign}
        findings = tuple(Finding(code=code, count=count) for code, count in counts.items() if count)
        return PurgeResult(
            status="PLANNED" if self.dry_run else "PURGED",
            engine="inline",
            identifier=ctx.identifier,
            table_uuid=index.table_uuid,
            metadata_location=index.metadata_location,
            plan_ids=(index.plan_id,),
            files_planned=files,
            files_deleted=self.deleted.files,
            files_absent=self.deleted.absent,
            bytes_planned=0,
            bytes_deleted=self.deleted.bytes,
            bytes_freed=self.deleted.bytes,
            files_kept=protected + foreign,
            findings=findings,
            receipt=None,
            seconds=time.monotonic() - started,
            root_kept=True,
        )

    def _note(self, outcome: Outcome) -> None:
        before = self.deleted
        self.deleted = Deleted(
            before.files + outcome.files, before.bytes + outcome.bytes, before.absent + outcome.absent
        )

    def marked(self) -> tuple[int, Deleted]:
        """Return what this run deleted, as DirectRun.marked does for all runs."""
        return 0, self.deleted


def place_of(index_location: str) -> str:
    """Return the place of the plans from an index's location, `DIR_OR_URI/TASK/ATTEMPT/NONCE/index.json`."""
    return index_location.removesuffix(f"/{plan_of(index_location)}/{INDEX}")


def plan_of(index_location: str) -> str:
    """Return a plan's id from its index's location. Raises PlanTampered if it is not one."""
    parts = index_location.split("/")
    if len(parts) < 5 or parts[-1] != INDEX:
        raise PlanTampered(index_location, f"name a plan's {INDEX}, as the receipt does")
    return "/".join(parts[-4:-1])


def _kept_rows(plans: PlanStore, index: PlanIndex) -> Iterator[Row]:
    roots = Roots(index.taken)
    for chunk in (chunk for _, run in sorted_runs(index, Phase.KEPT) for chunk in run):
        for record in (record for record in records_of(plans, index.plan_id, chunk) if record["kept"] == VERDICT):
            path = str(record["path"])
            if canonical(path) != path or not roots.contains(path):
                raise PlanTampered(f"{index.plan_id}/{chunk.name}", "it has a path outside the locations of the plan")
            yield path, RANK[record["type"]], int(record["size"])
