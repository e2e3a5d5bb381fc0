"""The steps of a drop after its rename, for the request that drops and for the task that continues after a crash."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.caller import check_purgeable
from delegation.gateway.drop.errors import (
    DropError,
    NameTaken,
    RenamedBack,
    RestoreRefused,
    kept_as_tombstone,
    not_readable,
    still_purging,
)
from delegation.gateway.drop.purge_tasks import restore_target, submit, task_id_of
from delegation.gateway.drop.service import Tombstones
from delegation.gateway.drop.settings import DropSettings
from delegation.gateway.drop.store import TombstoneConflict, TombstoneStore
from delegation.gateway.drop.tombstones import LONGEST_BACKOFF, MovedTable, Tombstone, TombstoneState
from delegation.items import each_item, reason_of
from delegation.polaris.answers import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    PolarisUnavailable,
    TableMetadataMissing,
)
from delegation.polaris.model import LoadedTable
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.task_type import UPKEEP_TASK_TYPE
from delegation.tasks.life.declared import is_wanted
from delegation.tasks.life.model import Status, Task
from delegation.tasks.submit import Tasks, Waiting, wait
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError

GIVE_UP_AFTER = timedelta(minutes=10)
"""A rename without an answer was not performed if its table is not at the destination by then."""
OTHER_TABLE = "another table took the name before the rename. Send the request again"


@dataclass(frozen=True, slots=True)
class DropSteps:
    """Confirms renames, submits purges and waits for them. The guards use `options`."""

    tombstones: Tombstones
    settings: DropSettings
    options: PurgeOptions
    sleep: Callable[[float], None] = time.sleep

    @property
    def store(self) -> TombstoneStore:
        return self.tombstones.store

    def check_tombstones(self, catalog: str) -> None:
        """Raise the catalog's error unless the service may list the tombstones' namespace. Checked for each drop: a
        cached answer could hide a table that the service can no longer purge."""
        self.tombstones.catalog.check_listing(catalog, self.settings.tombstone_namespace)

    def at_destination(self, record: Tombstone) -> LoadedTable | None:
        """Load the table at a tombstone's destination as the service; None if nothing is there."""
        try:
            return self.tombstones.catalog.load_table(record.destination, vend=False)
        except (NoSuchTable, NoSuchNamespace):
            return None

    def confirmed(self, record: Tombstone, moved: LoadedTable) -> Tombstone:
        """Record which table was moved, unless another process did. Raises DropError (ILLEGAL_TOMBSTONE_CHANGE)."""
        task_id, grace = task_id_of(record.tombstone_id), self.settings.grace_of(record.identifier)
        table = MovedTable.model_validate(moved)
        try:
            return self.tombstones.changed(
                record, lambda now, tombstone: records.renamed(tombstone, table, now, task_id=task_id, grace=grace)
            )
        except TombstoneConflict as conflict:
            if conflict.stored is None or conflict.stored.table_uuid is None:
                raise
            return conflict.stored

    def submitted(self, record: Tombstone, moved: LoadedTable | None = None) -> Task:
        """Submit the purge of a tombstone unless it is submitted or the table must not be purged; there is no other way
        to a purge. `moved` is the table at its destination, loaded if None. Raises RenamedBack if it is not the table
        that was checked, and DropError (KEPT_AS_TOMBSTONE) if it cannot get its name back."""
        task = self.tombstones.task(record) if moved is None else None
        objection = self._objection(record, task, moved)
        if objection is not None:
            raise self.renamed_back(record, objection)
        return task or submit(self.tombstones.tasks, record)

    def _objection(self, record: Tombstone, task: Task | None, moved: LoadedTable | None) -> str | None:
        """Return why the table must not be purged. One with a task was checked before, and its purge checks again."""
        if record.is_of_another_table:
            return OTHER_TABLE
        if task is not None:
            return None
        try:
            table = moved or self.at_destination(record)
        except TableMetadataMissing:
            table = None
        if table is None or table.table_uuid != record.table_uuid:
            return None  # the purge finds the table gone or replaced, and fails
        try:
            check_purgeable(table, self.options)
        except DelegationError as error:
            return f"{error.code}: {error}"
        return None

    def outcome(self, record: Tombstone, task: Task, until: datetime, hold: Callable[[], None]) -> Task:
        """Wait for the end of a purge, and call `hold` after every pause. Raises DropError (STILL_PURGING)."""

        def pause(seconds: float) -> None:
            self.sleep(seconds)
            hold()

        tasks = self.tombstones.tasks
        try:
            return wait(Waiting(tasks, task.task_id, 1, until - tasks.clock()), pause)
        except TimeoutError:
            raise still_purging(str(record.identifier), record.tombstone_id) from None

    def renamed_back(self, record: Tombstone, reason: str) -> RenamedBack | DropError:
        """Rename the table back; return the error that reports it, or why that failed. A started restore keeps its
        target."""
        target = None if record.state is TombstoneState.RESTORING else record.identifier
        try:
            self.tombstones.restore(record.tombstone_id, target, because=reason)
        except (RestoreRefused, NameTaken) as refused:
            return kept_as_tombstone(str(record.identifier), record.tombstone_id, f"{reason}; {refused}")
        return RenamedBack(str(record.identifier), reason)

    def settle(self, record: Tombstone) -> Tombstone:
        """Finish or clear what a crash left between two steps; return the record. Raises the errors of the stores and
        the catalog; the next call continues."""
        if record.dismissed_at is not None:
            return self.tombstones.entry_dropped(record)
        match record.state:
            case TombstoneState.PENDING:
                return self._pending(record)
            case TombstoneState.RENAMED | TombstoneState.PURGING | TombstoneState.PURGED:
                return self._waiting(record)
            case TombstoneState.FAILED:
                return self._failed(record)
            case TombstoneState.RESTORING:
                return self.tombstones.restore(record.tombstone_id, record.restore_identifier)
            case _:
                return self._checked(record, None)

    def _pending(self, record: Tombstone) -> Tombstone:
        try:
            moved = self.at_destination(record)
        except PolarisUnavailable:
            raise
        except PolarisError as unread:
            return self.tombstones.rename_unread(record, record.identifier, unread, not_readable(unread))
        now = self.tombstones.clock()
        if moved is None and now < record.created_at + GIVE_UP_AFTER:
            return self._checked(record, record.created_at + GIVE_UP_AFTER)
        if moved is None:
            return self.tombstones.changed(
                record, lambda now, tombstone: records.cleared(tombstone, now, "the table was not renamed")
            )
        confirmed = self.confirmed(record, moved)
        is_ours = confirmed.state is TombstoneState.RENAMED  # or another process restores it
        return self._waiting(confirmed, moved) if is_ours else self.settle(confirmed)

    def _waiting(self, record: Tombstone, moved: LoadedTable | None = None) -> Tombstone:
        """Submit a missing purge, note its failure, or finish a restore that ended it."""
        task = self.tombstones.task(record)
        if record.is_of_another_table or (task is None and record.state is TombstoneState.RENAMED):
            try:
                task = self.submitted(record, moved)
            except RenamedBack:
                # No caller waits for this answer; the record states why a table has its name again.
                return self.tombstones.get(record.tombstone_id)
        if task is None:
            return self._checked(record, None)
        target = restore_target(record, task)
        if target is not None and record.state is TombstoneState.RENAMED:
            return self.tombstones.restore(record.tombstone_id, target)
        settled = self.tombstones.settled(record, task)
        if settled is not record or task.status is Status.SUCCESS:
            return settled if settled is not record else self._checked(record, None)
        return self._checked(record, self._next_check(record))

    def _failed(self, record: Tombstone) -> Tombstone:
        """Close a FAILED tombstone whose entry is gone; for one without metadata, note what to do. A table other than
        the dropped one is renamed back as soon as its name is free."""
        try:
            table = self.tombstones.catalog.load_table(record.destination, vend=False)
        except (NoSuchTable, NoSuchNamespace):
            return self.tombstones.closed(record)
        except TableMetadataMissing:
            if record.is_of_another_table:
                return self._waiting(record)
            return self._checked(
                record,
                self.tombstones.clock() + records.FAILED_CHECK,
                "its metadata file no longer exists, so its purge cannot be repeated. `delegation tombstones dismiss "
                f"{record.tombstone_id}` drops the table's entry and keeps the remaining files",
            )
        if table.table_uuid != record.table_uuid:
            return self.tombstones.closed(record)
        if record.is_of_another_table:
            return self._waiting(record)
        return self._checked(record, self.tombstones.clock() + records.FAILED_CHECK)

    def _next_check(self, record: Tombstone) -> datetime:
        """Return the next check: after the grace period, later the longer the purge takes."""
        now = self.tombstones.clock()
        begins = max(record.grace_until or now, now)
        return begins + max(records.CHECK_AFTER, (now - record.created_at) / 4)

    def _checked(self, record: Tombstone, at: datetime | None, advice: str | None = None) -> Tombstone:
        return self.tombstones.changed(record, lambda now, tombstone: records.checked(tombstone, now, at, advice))


logger = logging.getLogger(__name__)
EVERY: Final = timedelta(minutes=5)
_AT_ONCE: Final = 100
"""Tombstones that one run settles; the next run takes the others."""
_CONSIDERED: Final = 500
"""The most due tombstones that a run considers, earliest first; it settles those with the fewest failed checks."""
_COUNTED: Final = 1_000
"""The most stuck tombstones that are counted."""


class TombstoneUpkeep(BaseModel):
    """No parameters: one task settles all tombstones."""

    model_config = ConfigDict(frozen=True)


class UpkeepReport(BaseModel):
    """What one run did: settled tombstones by their new states, and how many it could not settle. `stuck` counts all
    that repeatedly failed, also those not in this run, and items that cannot be read."""

    model_config = ConfigDict(frozen=True)

    states: dict[str, int] = {}
    troubled: int = 0
    stuck: int = 0


def tombstone_upkeep(steps: Callable[[], DropSteps]) -> Behavior[TombstoneUpkeep, UpkeepReport]:
    def work(_parameters: TombstoneUpkeep, run: AttemptContext) -> UpkeepReport:
        return settle_all(steps(), run.checkpoint)

    return Behavior(
        UPKEEP_TASK_TYPE,
        TombstoneUpkeep,
        work,
        result=UpkeepReport,
        identify=lambda _parameters: "singleton",
        every=EVERY,
    )


def settle_all(steps: DropSteps, checkpoint: Callable[[], None]) -> UpkeepReport:
    """Settle the tombstones that are due, those without failed checks first; a failed one waits longer."""
    states: Counter[str] = Counter()
    troubled: dict[str, Exception] = {}
    considered = steps.store.due(steps.tombstones.clock(), _CONSIDERED).tombstones
    # Python's sort is stable: among equals the earliest comes first.
    for settled in each_item(
        sorted(considered, key=lambda record: record.attempts)[:_AT_ONCE],
        lambda listed: _settled(steps, listed),
        name="tombstones.settled",
        clock=steps.tombstones.clock,
        shown=lambda record: record.tombstone_id,
        checkpoint=checkpoint,
        in_a_row=None,
    ):
        if settled.error is not None:
            troubled[settled.item.tombstone_id] = settled.error
        elif settled.result is not None:
            states[settled.result] += 1
    for _ in each_item(
        troubled.items(),
        lambda failure: _note_trouble(steps, *failure),
        name="tombstones.noted",
        clock=steps.tombstones.clock,
        shown=lambda failure: failure[0],
        in_a_row=None,
    ):
        pass
    open_ones = steps.store.due(steps.tombstones.clock() + LONGEST_BACKOFF, _COUNTED)
    stuck = sum(record.is_stuck for record in open_ones.tombstones) + open_ones.unreadable
    steps.tombstones.stuck(stuck)
    return UpkeepReport(states=dict(states), troubled=len(troubled), stuck=stuck)


def _note_trouble(steps: DropSteps, tombstone_id: str, error: Exception) -> None:
    """Delay a tombstone's next check unless another process changed it."""
    try:
        record = steps.tombstones.get(tombstone_id)
        steps.tombstones.changed(record, lambda now, tombstone: records.troubled(tombstone, now, reason_of(error)))
    except DropError as unnoted:
        logger.warning(
            "the tombstone's problem could not be recorded: %s", unnoted, extra={"tombstone_id": tombstone_id}
        )


def _settled(steps: DropSteps, listed: Tombstone) -> str:
    """Settle a tombstone as it is now; the list may be out of date."""
    record = steps.tombstones.get(listed.tombstone_id)
    if record.check_at is None or record.check_at > steps.tombstones.clock():
        return str(record.state)
    return str(steps.settle(record).state)


def ensure_submitted(tasks: TaskService, behavior: Behavior[TombstoneUpkeep, UpkeepReport]) -> bool:
    """Submit the task unless it exists, usually with one read; return whether this call did. A failed or cancelled one
    is submitted again an interval later."""
    parameters = TombstoneUpkeep()
    if not is_wanted(tasks.reads.find(behavior.task_id(parameters)), behavior.every, tasks.clock()):
        return False
    return Tasks(tasks).submit(behavior, parameters).is_new


class UpkeepBegun:
    """Submits the recurring task, checked once an interval. A drop for which that fails is not performed."""

    def __init__(self, tasks: TaskService, behavior: Behavior[TombstoneUpkeep, UpkeepReport]) -> None:
        self._tasks = tasks
        self._behavior = behavior
        self._looked: datetime | None = None

    def __call__(self) -> None:
        now, every = self._tasks.clock(), self._behavior.every
        if self._looked is None or (every is not None and now - self._looked >= every):
            ensure_submitted(self._tasks, self._behavior)
            self._looked = now
