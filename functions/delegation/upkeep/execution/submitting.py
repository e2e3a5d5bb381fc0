"""The tasks of upkeep: submitted once for each reserved run, and read again after their end."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from delegation.removal.behaviors import purge_under_way
from delegation.removal.expiry.names import TASK_TYPE, ExpiryDetails
from delegation.removal.expiry.requests import TableExpiry, obstacle, resumes
from delegation.removal.expiry.retention import POLICY_WITHDRAWN
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.service import TaskService
from delegation.timestamps import isoformat
from delegation.upkeep.errors import UpkeepError
from delegation.upkeep.health.model import REVIEW_EVERY, FreedBytes, LastRun, TableHealth
from delegation.upkeep.schedule.amounts import NOTHING, Amount

STOPPED: Final = "STOPPED"
"""The outcome of a run whose policy was withdrawn."""


@dataclass(frozen=True, slots=True)
class UpkeepTasks:
    """Submits expiries by policy. Raises the errors of the task store."""

    tasks: TaskService

    def is_under_way(self, realm: str, health: TableHealth) -> bool:
        """Return whether a caller's expiry or a purge of a table is in progress; asked before the table is loaded."""
        identifier = health.identifier
        if purge_under_way(self.tasks.reads, realm, identifier, health.table_uuid) is not None:
            return True
        stored = self.tasks.reads.find(TableExpiry.id_of(realm, identifier.catalog, health.table_uuid))
        return stored is not None and not stored.is_terminal

    def wanted(self, expiry: TableExpiry) -> TableExpiry | None:
        """Return the expiry to submit, None while another one of the table is in progress. One that failed after its
        commit is resumed unchanged: only its plan knows the files to delete. Raises UpkeepError (EXPIRY_UNFINISHED) for
        a caller's."""
        stored = self.tasks.reads.find(expiry.task_id)
        if stored is None or obstacle(stored, expiry) is None:
            return expiry
        if not stored.is_terminal:
            return None
        former = TableExpiry.readable(stored)
        if former is not None and former.policy is not None and resumes(stored, expiry):
            return former
        raise UpkeepError(
            f"the expiry of {expiry.identifier} that a caller asked for failed after its commit ({stored.error_code}): "
            f"retry it, `delegation tasks retry {stored.task_id}`; until it ends no policy expires snapshots there",
            code="EXPIRY_UNFINISHED",
        )

    def submit(self, expiry: TableExpiry) -> tuple[Task, bool]:
        """Store the task or attach to the running one; return it, and whether this call submitted it."""
        stored = self.tasks.reads.find(expiry.task_id)
        first = self.tasks.submission.first(
            task_id=expiry.task_id,
            task_type=expiry.task_type,
            payload=expiry.to_payload(),
            payload_version=expiry.payload_version,
        )
        kept = stored is not None and stored.is_terminal and resumes(stored, expiry)
        return self.tasks.submission.create(first, resumes=kept, rerun=True)

    def settled(self, health: TableHealth, now: datetime) -> TableHealth:
        """Return the health with the end of its last run, or without a run that never began. A process that died
        between reserving a run and submitting its task began none."""
        run = health.runs.get(TASK_TYPE)
        if run is None or run.ended is not None:
            return health
        task = self.tasks.reads.find(run.task_id)
        if task is None or (task.is_terminal and task.last_status_change_ts < run.began):
            return replace(health, runs={name: one for name, one in health.runs.items() if name != TASK_TYPE})
        if not task.is_terminal:
            return health
        return _ended(health, run, task, now)


def _ended(health: TableHealth, run: LastRun, task: Task, now: datetime) -> TableHealth:
    succeeded = task.status is Status.SUCCESS
    used, codes, snapshots = _details(task)
    outcome = (task.error_code or str(task.status)) if not succeeded else str(task.status)
    if succeeded and POLICY_WITHDRAWN in codes:
        outcome = STOPPED
    ended = replace(
        run,
        ended=max(task.last_status_change_ts, run.began),
        outcome=outcome,
        used=used,
        failures=0 if succeeded else run.failures + 1,
    )
    noted = health.with_run(ended, snapshots=snapshots)
    if outcome == STOPPED:
        # What asks for it now is computed anew.
        return replace(noted, rule="", expirable=None)
    if succeeded and task.task_type == TASK_TYPE:
        # Until the next look at the table, which has changed, nothing is known to be left.
        again = now + REVIEW_EVERY
        return replace(noted, expirable=0, freed=FreedBytes(), since=None, again_at=again)
    return noted


def _details(task: Task) -> tuple[Amount, frozenset[str], int | None]:
    try:
        details = ExpiryDetails.of(task)
    except MalformedRecord:
        return NOTHING, frozenset(), None
    codes = frozenset(one.code for one in details.findings)
    return Amount(details.files_deleted, details.bytes_deleted), codes, details.snapshots_expired


def reserved(health: TableHealth, task_id: str, policy: str, cost: Amount, now: datetime) -> TableHealth:
    """Return the health with a run about to be submitted; its budget is reserved."""
    before = health.runs.get(TASK_TYPE)
    # Stored with the resolution of timestamps, so that a task of the same moment is not taken for an earlier one.
    began = datetime.fromisoformat(isoformat(now))
    run = LastRun(TASK_TYPE, task_id, policy, began, cost, failures=0 if before is None else before.failures)
    return health.with_run(run)


def refused(health: TableHealth, policy: str, outcome: str, now: datetime) -> TableHealth:
    """Return the health with a run that was refused, so that not every pass tries it."""
    before = health.runs.get(TASK_TYPE)
    failures = 1 if before is None else before.failures + 1
    run = LastRun(TASK_TYPE, "", policy, now, NOTHING, ended=now, outcome=outcome, failures=failures)
    return health.with_run(run)
