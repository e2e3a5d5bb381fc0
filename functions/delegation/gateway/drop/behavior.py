"""The task of a tombstone: it purges the files as any purge does, then drops the entry without purge."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.errors import DropError, tombstone_refused
from delegation.gateway.drop.purge_tasks import TOMBSTONE, task_id_of
from delegation.gateway.drop.service import Tombstones, is_there
from delegation.gateway.drop.tombstones import Tombstone, TombstoneState
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, PolarisError
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.index import SAMPLE, Finding
from delegation.removal.marks import add_findings
from delegation.removal.neighbourhood import Neighbour, loaded_neighbour
from delegation.removal.purge.behavior import PurgeBehavior, PurgeFunction
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.requests import TablePurge
from delegation.removal.purge.run import purge_table
from delegation.removal.purge.task_type import DROP_TASK_TYPE
from delegation.storage.locations import Roots
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.hooks import INLINE

STILL_SHOWN: Final = "DROPPED_TABLE_SHOWN"
"""The code of a finding: the catalog still shows the entry after its drop, so its name is taken."""
MAY_BE_RESERVED: Final = "NAME_MAY_BE_RESERVED"
"""The code of a finding: the catalog advertises endpoints by which it may keep dropped tables and their names."""
_DONE: Final = frozenset({TombstoneState.PURGED, TombstoneState.DROPPED})
_TO_PURGE: Final = frozenset({TombstoneState.RENAMED, TombstoneState.PURGING, TombstoneState.FAILED})


@dataclass(frozen=True)
class DropBehavior:
    """TaskBehavior for TABLE_DROP_WITH_PURGE: `purge` on a tombstone, then the drop of its entry, then SUCCESS. After a
    crash between two steps the record shows where to continue."""

    task_types: ClassVar[frozenset[str]] = frozenset({DROP_TASK_TYPE})

    purge: PurgeBehavior
    tombstones: Tombstones

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        """Prepare as PurgeBehavior does; chooses an engine only for a tombstone of this service's own record."""

        def choose() -> str:
            is_left = self._begun(task).state not in _DONE
            return self.purge.engine(task, hand_over_at) if is_left else INLINE

        engine = self.purge.runner.prepare(task, choose)
        if engine is None:
            self._failed(self.purge.tasks.reads.get(task.task_id))
        return engine

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        return self._run_with(purge_table, task, hand_over_at)

    def run_job(self, engine: PurgeFunction, task_id: str, attempt: int) -> Task:
        """Run an engine in a Spark job. Raises LeaseLost."""
        return self._run_with(engine, self.purge.runner.begin_job(task_id, attempt), in_job=True)

    def _run_with(
        self, engine: PurgeFunction, task: Task, hand_over_at: datetime | None = None, *, in_job: bool = False
    ) -> Task:
        def dropped() -> Task:
            record = self._begun(task)
            if record.state in _DONE:
                self._drop(record)
                return self.purge.runner.succeed(
                    task,
                    "an earlier attempt deleted all files; this attempt dropped the table's entry from the catalog",
                )
            return self.purge.purged(self._dropping(engine, record), task, hand_over_at, in_job=in_job)

        return self._failed(self.purge.runner.run(task, dropped))

    def _begun(self, task: Task) -> Tombstone:
        """Return the record of a tombstone whose purge starts or continues. Anybody with TABLE_CREATE can put tables
        into the tombstones' namespace. Only the table that the service found at its own record's destination, with the
        same uuid, is purged. Raises GuardRefused (TOMBSTONE_REFUSED)."""
        purge = TablePurge.of(task)
        tombstone_id = purge.properties.get(TOMBSTONE, "")
        record = self.tombstones.store.get(tombstone_id) if tombstone_id else None
        if record is None:
            raise tombstone_refused(f"task {task.task_id} names no tombstone of this service; nothing was purged")
        wanted = (purge.identifier, purge.table.table_uuid.lower(), task.task_id)
        if wanted != (record.destination, record.table_uuid, task_id_of(tombstone_id)):
            raise tombstone_refused(
                f"the tombstone {tombstone_id} holds another table than the one that task {task.task_id} is to purge; "
                "nothing was purged"
            )
        if record.table_uuid != record.expected_uuid:
            raise tombstone_refused(
                f"the tombstone {tombstone_id} holds another table than the one that its caller dropped; nothing "
                "was purged"
            )
        if record.dismissed_at is not None:
            raise tombstone_refused(f"the tombstone {tombstone_id} was dismissed and must not be purged")
        if record.state in _DONE:
            return record
        if record.state not in _TO_PURGE:
            raise tombstone_refused(f"the tombstone {tombstone_id} is {record.state} and must not be purged")
        return self.tombstones.changed(record, lambda now, tombstone: records.purging(tombstone, now))

    def _dropping(self, engine: PurgeFunction, record: Tombstone) -> PurgeFunction:
        def purge_and_drop(ctx: PurgeContext) -> PurgeResult:
            result = engine(replace(ctx, neighbours=self._neighbours(ctx, record)))
            current = self.tombstones.get(record.tombstone_id)
            drop_findings = self._drop(
                self.tombstones.changed(current, lambda now, tombstone: records.purged(tombstone, now))
            )
            if drop_findings and result.receipt is not None:
                add_findings(ctx.plans, result.receipt, drop_findings)
            return replace(result, findings=(*result.findings, *drop_findings))

        return purge_and_drop

    def _neighbours(
        self, ctx: PurgeContext, record: Tombstone
    ) -> Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]]:
        """Return the table's neighbours, first the table that now has its former name. It has the same location
        (Polaris' default), may share metadata, and may be newer than the reference index."""

        def neighbours(roots: Roots | None) -> Iterator[Neighbour | NeighbourUnreadable]:
            heir = list(loaded_neighbour(self.purge.catalog, record.identifier, self.purge.store_of, certain=True))
            yield from heir
            known = {neighbour.table.identifier for neighbour in heir if isinstance(neighbour, Neighbour)}
            for neighbour in ctx.neighbours(roots):
                if not (isinstance(neighbour, Neighbour) and neighbour.table.identifier in known):
                    yield neighbour

        return neighbours

    def _drop(self, record: Tombstone) -> tuple[Finding, ...]:
        """Drop the entry of a purged tombstone without purge, if it is still this table's. Returns findings if the
        catalog keeps what was dropped, as a soft delete does."""
        if record.state is TombstoneState.DROPPED:
            return ()
        catalog, shows = self.tombstones.catalog, False
        try:
            if is_there(catalog, record):
                catalog.drop_table(record.destination, purge=False)
                with suppress(PolarisError):
                    shows = is_there(catalog, record)
        except (NoSuchTable, NoSuchNamespace):
            pass
        self.tombstones.changed(record, lambda now, tombstone: records.dropped(tombstone, now))
        shown = [Finding(code=STILL_SHOWN, count=1, sample=(str(record.destination),))] if shows else []
        unknown = catalog.unknown_endpoints(record.catalog)
        reserved = [Finding(code=MAY_BE_RESERVED, count=len(unknown), sample=unknown[:SAMPLE])] if unknown else []
        return (*shown, *reserved)

    def _failed(self, task: Task) -> Task:
        if task.status is Status.FAILURE:
            with suppress(DropError, MalformedPayload):
                record = self.tombstones.get(TablePurge.of(task).properties.get(TOMBSTONE) or "unnamed")
                if record.task_id == task.task_id:
                    self.tombstones.settled(record, task)
        return task
