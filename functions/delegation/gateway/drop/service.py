"""Tombstones: where their tables are, and what operators do with them: list, show, restore, purge before the grace
period ends, and dismiss."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeGuard

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.errors import (
    NameTaken,
    RestoreRefused,
    dismissal_refused,
    purge_not_possible,
    tombstone_not_found,
)
from delegation.gateway.drop.purge_tasks import RESTORED, dispatched, due_now, ended_by_restore, submit
from delegation.gateway.drop.store import TombstoneConflict, TombstonePage, TombstoneStore
from delegation.gateway.drop.tombstones import MovedTable, Tombstone, TombstoneState
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    PolarisUnavailable,
    TableAlreadyExists,
    TableMetadataMissing,
)
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import LoadedTable
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.work.service import TaskService


def is_there(catalog: PolarisClient, record: Tombstone) -> bool:
    """Return whether the entry at a tombstone's destination is its own. Raises NoSuchTable without an entry."""
    try:
        return catalog.load_table(record.destination, vend=False).table_uuid == record.table_uuid
    except TableMetadataMissing:
        return True  # nobody else knows the name, and the purge deletes the file last


def uuid_at(catalog: PolarisClient, identifier: TableIdentifier) -> str | None:
    """Return the uuid of the table that has a name, None without one."""
    table = _table_at(catalog, identifier)
    return None if table is None else table.table_uuid


def renamed_back(catalog: PolarisClient, record: Tombstone) -> str | None:
    """Rename a tombstone to its target; return a note or None. May be repeated. The tables at both names decide,
    whatever the rename's answer. A clone registered under the name is kept, and the tombstone's entry is dropped
    without purge. Raises NameTaken, PolarisUnavailable if the rename's outcome is unknown, and other PolarisErrors if
    nothing was renamed."""
    target = record.restore_identifier
    error = _rename(catalog, record, target)
    if error is None:
        return None
    there = _table_at(catalog, target)
    if there is not None and there.table_uuid == record.table_uuid:
        left = _table_at(catalog, record.destination)
        if left is None or left.table_uuid != record.table_uuid:
            return None
        if _follows(there, left):
            catalog.drop_table(record.destination, purge=False)
            return (
                f"in the meantime, a clone was registered as {target}. The clone is now the table, and the tombstone's "
                "entry was dropped"
            )
        raise NameTaken(record.tombstone_id, str(target), is_former_state=True) from error
    if isinstance(error, TableAlreadyExists):
        raise NameTaken(record.tombstone_id, str(target)) from error
    raise error


def _rename(catalog: PolarisClient, record: Tombstone, target: TableIdentifier) -> PolarisError | None:
    """Rename the table at the destination if it is still this one; return the error that prevented it."""
    try:
        uuid = uuid_at(catalog, record.destination)
        if uuid is not None and uuid != record.table_uuid:
            return PolarisError(f"another table now has the name {record.destination}")
        catalog.rename_table(record.destination, target)
    except PolarisError as error:
        return error
    return None


def _table_at(catalog: PolarisClient, identifier: TableIdentifier) -> LoadedTable | None:
    try:
        return catalog.load_table(identifier, vend=False)
    except (NoSuchTable, NoSuchNamespace, TableMetadataMissing):
        return None


def _follows(clone: LoadedTable, table: LoadedTable) -> bool:
    """Return whether a clone has the table's current state or was committed on top of it."""
    log = clone.metadata.get("metadata-log") or ()
    return table.metadata_location in {clone.metadata_location, *(entry.get("metadata-file") for entry in log)}


_RACES: Final = 5
_FAILING: Final = frozenset({TombstoneState.RENAMED, TombstoneState.PURGING, TombstoneState.PURGED})
_RESTORABLE: Final = frozenset({TombstoneState.RENAMED, TombstoneState.FAILED, TombstoneState.RESTORING})
_UNCONFIRMED: Final = frozenset({TombstoneState.PENDING, TombstoneState.CLEARED})
"""States in which only the catalog knows whether the table is at its destination."""


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The tombstones of this deployment. Methods raise DropError (TOMBSTONE_NOT_FOUND) and store and catalog errors.
    `failed` is called with each tombstone whose failure this process recorded, `stuck` with the number that the
    recurring task repeatedly could not settle."""

    store: TombstoneStore
    tasks: TaskService
    catalog: PolarisClient
    clock: Callable[[], datetime]
    failed: Callable[[Tombstone], None]
    stuck: Callable[[int], None]

    def list(self, limit: int = 100, cursor: str | None = None, *, caller: str | None = None) -> TombstonePage:
        """Return all tombstones or one caller's, newest first, at most `limit` a page; ended ones for 90 days."""
        return self.store.newest(limit, cursor, caller=caller)

    def get(self, tombstone_id: str) -> Tombstone:
        record = self.store.get(tombstone_id)
        if record is None:
            raise tombstone_not_found(tombstone_id)
        return record

    def task(self, record: Tombstone) -> Task | None:
        """Return the task that purges the tombstone, None before it is submitted."""
        return None if record.task_id is None else self.tasks.reads.find(record.task_id)

    def restore(self, tombstone_id: str, to: TableIdentifier | None = None, *, because: str | None = None) -> Tombstone:
        """Rename a tombstone to its former name, or to another of the same catalog; return it RESTORED. A conditional
        write first ends the purge: either no attempt ever starts, or nothing is restored. A repeat finishes the
        restore. `because` is the service's own reason, for the record. A rename that was never confirmed counts if the
        table is at its destination. Raises RestoreRefused and NameTaken."""
        record = self.get(tombstone_id)
        if record.dismissed_at is not None:
            raise RestoreRefused(f"the tombstone {tombstone_id} has ended and cannot be restored ({record.problem})")
        is_chosen = record.state in {TombstoneState.RESTORING, TombstoneState.RESTORED}
        target = to or (record.restore_identifier if is_chosen else record.identifier)
        if target.catalog != record.catalog:
            raise RestoreRefused(
                f"a table of the catalog {record.catalog} cannot be restored to {target}. "
                "Name a target in the same catalog"
            )
        if record.state is TombstoneState.RESTORED and target == record.restore_identifier:
            return record
        record = self._to_be_restored(record, target, because)
        return record if record.state is TombstoneState.RESTORED else self._renamed_back(record)

    def rename_unread(
        self, record: Tombstone, target: TableIdentifier, unread: PolarisError, because: str | None
    ) -> Tombstone:
        """Rename a table that cannot be loaded to `target`, by name alone; return it RESTORED. `unread` is the
        catalog's answer to the load. Raises RestoreRefused, NameTaken and PolarisUnavailable."""
        try:
            self.catalog.rename_table(record.destination, target)
        except PolarisUnavailable:
            raise
        except TableAlreadyExists as error:
            raise NameTaken(record.tombstone_id, str(target)) from error
        except PolarisError as error:
            raise RestoreRefused(
                f"the table of the tombstone {record.tombstone_id} can neither be read at {record.destination} "
                f"({unread.code}: {unread}) nor renamed to {target}: {error}"
            ) from error
        return self.changed(record, lambda now, tombstone: records.restored_unread(tombstone, target, now, because))

    def run_now(self, tombstone_id: str, *, by: Caller | None = None) -> Tombstone:
        """End a tombstone's grace period, or retry its failed purge, now. Raises DropError (PURGE_NOT_POSSIBLE)."""
        record = self.get(tombstone_id)
        if record.dismissed_at is not None:
            raise purge_not_possible(f"the tombstone {tombstone_id} has ended and cannot be purged ({record.problem})")
        if record.state in {TombstoneState.PURGING, TombstoneState.PURGED, TombstoneState.DROPPED}:
            return record
        if record.state not in {TombstoneState.RENAMED, TombstoneState.FAILED}:
            raise purge_not_possible(
                f"the tombstone {tombstone_id} is {record.state}; only a RENAMED or FAILED tombstone can be purged"
            )
        if record.is_of_another_table:
            raise purge_not_possible(
                f"the tombstone {tombstone_id} holds another table than the one that its caller dropped, so it is "
                "never purged. Restore the table"
            )
        now = self.clock()
        task = submit(self.tasks, record, at=now)
        if task.status is Status.FAILURE:
            if task.error_code == RESTORED and record.state is TombstoneState.RENAMED:
                raise purge_not_possible(
                    f"the tombstone {tombstone_id} is being restored. Repeat the request after the restore"
                )
            self.tasks.operators.retry(task.task_id, by=by)
        elif task.status is Status.SUBMITTED:
            dispatched(self.tasks, self.tasks.writes.change(task.task_id, due_now))
        return self.get(tombstone_id)

    def dismiss(self, tombstone_id: str) -> Tombstone:
        """End a FAILED tombstone: drop its entry without purge and keep its files; a repeat finishes that. The record
        names the metadata.json for `delegation purge`. Raises DropError (DISMISSAL_REFUSED)."""
        record = self.get(tombstone_id)
        if record.dismissed_at is None:
            if record.state is not TombstoneState.FAILED:
                raise dismissal_refused(
                    f"the tombstone {tombstone_id} is {record.state}; only a FAILED tombstone can be dismissed"
                )
            if record.is_of_another_table:
                raise dismissal_refused(
                    f"the tombstone {tombstone_id} holds another table than the one that its caller dropped. Restore "
                    "the table: "
                    f"`delegation tombstones restore {tombstone_id} --to NAME`"
                )
            left = f"dismissed: its files stay. {_finish(record)}"
            record = self.changed(
                record, lambda now, tombstone: records.dismissed(tombstone, now, left, drops_entry=True)
            )
        return self.entry_dropped(record)

    def entry_dropped(self, record: Tombstone) -> Tombstone:
        """Drop a dismissed tombstone's entry without purge if it is still this table's; return its last record."""
        if record.check_at is None:
            return record
        try:
            if is_there(self.catalog, record):
                self.catalog.drop_table(record.destination, purge=False)
        except (NoSuchTable, NoSuchNamespace):
            pass
        return self.changed(record, lambda now, tombstone: records.checked(tombstone, now, None))

    def closed(self, record: Tombstone) -> Tombstone:
        """End a FAILED tombstone whose entry somebody else removed, and note which files remain."""
        if record.is_of_another_table:
            left = "closed: somebody else moved the table. The tombstone's caller had not dropped that table"
        elif uuid_at(self.catalog, record.identifier) == record.table_uuid:
            left = f"closed: somebody else restored the table to {record.identifier}"
        else:
            left = (
                f"closed: somebody else removed the table's entry from the catalog. The files stay. {_finish(record)}"
            )
        return self.changed(record, lambda now, tombstone: records.dismissed(tombstone, now, left, drops_entry=False))

    def settled(self, record: Tombstone, task: Task | None) -> Tombstone:
        """Return the record, with the failure of its task noted if that is new."""
        if task is None or task.status is not Status.FAILURE or task.error_code == RESTORED:
            return record
        if record.state not in _FAILING:
            return record
        problem = f"{task.error_code}: {task.result_summary or ''}"
        after = self.changed(record, lambda now, tombstone: records.failed(tombstone, now, problem))
        self.failed(after)
        return after

    def changed(self, record: Tombstone, change: Callable[[datetime, Tombstone], Tombstone]) -> Tombstone:
        after = change(self.clock(), record)
        if after is not record:
            self.store.replace(after, record)
        return after

    def _to_be_restored(self, record: Tombstone, target: TableIdentifier, because: str | None) -> Tombstone:
        """End the purge and record the restore; no attempt at the purge starts afterwards."""
        for _ in range(_RACES):
            task = self.task(record)
            try:
                record = self.settled(record, task)
                if record.state in _UNCONFIRMED:
                    return self._found(record, target, because)
                if record.state not in _RESTORABLE:
                    raise RestoreRefused(_why_not(record))
                self._take(record, task, target)
                if record.state is TombstoneState.RESTORING and record.restore_identifier == target:
                    return record
                if record.state is TombstoneState.RESTORING:
                    record = self.changed(
                        record,
                        lambda now, tombstone: records.failed(
                            tombstone, now, "another name was chosen for the restore"
                        ),
                    )
                return self.changed(record, lambda now, tombstone: records.restoring(tombstone, target, now, because))
            except TombstoneConflict as conflict:
                if conflict.stored is None:
                    raise tombstone_not_found(record.tombstone_id) from conflict
                record = conflict.stored
        raise RestoreRefused(f"other processes kept changing the tombstone {record.tombstone_id}. Repeat the restore")

    def _found(self, record: Tombstone, target: TableIdentifier, because: str | None) -> Tombstone:
        """Return the record of a table to restore from its destination, or RESTORED if the table cannot be read."""
        try:
            loaded = self.catalog.load_table(record.destination, vend=False)
        except (NoSuchTable, NoSuchNamespace):
            raise RestoreRefused(_why_not(record)) from None
        except PolarisUnavailable:
            raise
        except PolarisError as unread:
            return self.rename_unread(record, target, unread, because)
        moved = MovedTable.model_validate(loaded)
        return self.changed(record, lambda now, tombstone: records.restoring(tombstone, target, now, because, moved))

    def _take(self, record: Tombstone, task: Task | None, target: TableIdentifier) -> None:
        """End a purge that no attempt has started as FAILURE; otherwise raise RestoreRefused. Without a task the record
        becomes RESTORING before one can be stored, and the purge refuses that."""
        if task is None:
            return
        taken = self.tasks.writes.change(task.task_id, lambda task, now: ended_by_restore(task, now, target))
        if taken.status is not Status.FAILURE or taken.effects_began_ts is not None:
            raise RestoreRefused(_too_late(record, taken))

    def _renamed_back(self, record: Tombstone) -> Tombstone:
        """Rename a RESTORING tombstone to its target, and record the outcome."""
        target = record.restore_identifier
        try:
            note = renamed_back(self.catalog, record)
        except PolarisUnavailable:
            raise
        except (PolarisError, NameTaken) as error:
            reasons = "; ".join(filter(None, [record.problem, f"not restored to {target}: {error}"]))
            self.changed(record, lambda now, tombstone: records.failed(tombstone, now, reasons))
            if isinstance(error, NameTaken):
                raise
            if isinstance(error, NoSuchNamespace):
                raise RestoreRefused(
                    f"the namespace of {target} no longer exists. Create it, or restore the table to another name"
                ) from error
            raise RestoreRefused(f"{record.destination} was not renamed to {target}: {error}") from error
        try:
            return self.changed(record, lambda now, tombstone: records.restored(tombstone, now, note))
        except TombstoneConflict as conflict:
            if not _is_restored_to(conflict.stored, target):
                raise
            return conflict.stored  # another restore, or the recurring task, did it at the same time


def _is_restored_to(record: Tombstone | None, target: TableIdentifier) -> TypeGuard[Tombstone]:
    return record is not None and record.state is TombstoneState.RESTORED and record.restore_identifier == target


def _finish(record: Tombstone) -> str:
    return (
        f"`delegation purge {record.metadata_location}` deletes the remaining files, unless another table now has them"
    )


def _why_not(record: Tombstone) -> str:
    match record.state:
        case TombstoneState.PENDING:
            reason = "its rename is not confirmed yet. Repeat the restore in a few minutes"
        case TombstoneState.CLEARED:
            reason = "it was never renamed. The table has its former name, unless somebody else dropped it"
        case TombstoneState.RESTORED:
            reason = f"it was already restored to {record.restore_identifier}"
        case TombstoneState.PURGING:
            reason = "its purge has begun. If no file is deleted yet, cancel the purge's task, then repeat the restore"
        case _:
            reason = "its files are deleted"
    return f"the tombstone {record.tombstone_id} is {record.state} and cannot be restored: {reason}"


def _too_late(record: Tombstone, task: Task) -> str:
    if task.status is Status.FAILURE:
        return (
            f"the tombstone {record.tombstone_id} cannot be restored, because its purge (task {task.task_id}) has "
            f"deleted files. To delete the remaining files, run `delegation tombstones purge {record.tombstone_id}`"
        )
    return (
        f"the tombstone {record.tombstone_id} cannot be restored, because its purge has begun (task {task.task_id} is "
        f"{task.status}). If no file is deleted yet, run `delegation tasks cancel {task.task_id}`, then repeat the "
        "restore"
    )
