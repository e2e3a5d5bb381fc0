"""The task table, read and written with the operator's own AWS credentials, for use while the service is down."""

import os
import re
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Self

import typer

from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError, task_stays, task_unknown
from delegation.cli.tasks.filters import TaskFilter
from delegation.cli.tasks.source import ENDED_ADVICE, RETRY_ADVICE, ApiTasks, TaskPage
from delegation.client.client import DelegationClient
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.policy import Policies, RetryPolicy
from delegation.tasks.life.transitions import CANCELLED
from delegation.tasks.pauses import PauseControl, PauseMode, PauseRecord, PauseScope
from delegation.tasks.stores.admission import QueuePlace, waiting_of
from delegation.tasks.stores.base import TaskStore, Unreadable
from delegation.tasks.work.hooks import NoDispatchQueue, TaskHooks
from delegation.tasks.work.plugins import load
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wire.operators import PauseList, PauseRequest, ResumeRequest
from delegation.wire.tasks import TaskRecord
from delegation.wiring.settings import SWEEPS, BehaviorSettings, LimitSettings
from delegation.wiring.types import TYPES

if TYPE_CHECKING:
    from delegation.wiring.tasks import StoredTasks

_PAGE = 100


def service_of(
    store: TaskStore, policies: Policies | None = None, clock: Callable[[], datetime] = utc_now
) -> TaskService:
    """Return the service that may change tasks of any type; a sweeper or a worker finds them afterwards."""
    known = policies or Policies(RetryPolicy(), {})
    return TaskService(store, known, NoDispatchQueue(), clock=clock, hooks=TaskHooks(types=TYPES))


def _task_of(store: TaskStore, task_id: str) -> Task:
    try:
        return service_of(store).reads.get(task_id)
    except TaskNotFound as error:
        raise task_unknown(task_id) from error


@dataclass(frozen=True, slots=True)
class DirectTasks:
    """The tasks of a task table; `operator` returns who changes one, `added` are DELEGATION_BEHAVIORS."""

    store: "StoredTasks"
    operator: Callable[[], str]
    added: tuple[str, ...] = ()

    @classmethod
    def of(cls, connection: Connection, table: str | None) -> Self:
        added = BehaviorSettings.read().behaviors
        if table is None and connection.uses_persistence():
            added = (*added, SWEEPS)
        return cls(connection.task_store(table), lambda: connection.operator(table), added)

    def found(self, wanted: TaskFilter, *, limit: int, cursor: str | None = None) -> TaskPage:
        """Return up to `limit` of the wanted tasks. Raises BadPlugin."""
        built_in = frozenset(TYPES)
        known = built_in | load(self.added, service_of(self.store), existing=built_in).task_types
        return collect(self.store, wanted, limit=limit, cursor=cursor, known=known)

    def get(self, task_id: str) -> TaskRecord:
        """Return a task with its lease holder, which the service does not show."""
        task = _task_of(self.store, task_id)
        holder = {} if task.lease.owner is None else {"lease_owner": task.lease.owner}
        step = TYPES.of(task).next_step(task)
        outlook = {} if step is None else {"outlook": {"as_of": utc_now(), "next_step": step}}
        return TaskRecord.of({**task.public(), **holder, **outlook})

    def waiting(self, task: TaskRecord) -> QueuePlace | None:
        """Return what a task waits for; DELEGATION_PROPERTIES has the caps."""
        return waiting_of(self.store, _task_of(self.store, task.task_id), LimitSettings.read().limits(), utc_now())

    def executed_by(self, task: TaskRecord) -> None: ...

    def versions(self, task_id: str) -> list[TaskRecord]:
        return versions_of(self.store, task_id)

    def cancel(self, task_id: str) -> TaskRecord:
        task = _task_of(self.store, task_id)
        if task.is_terminal and task.error_code != CANCELLED:
            raise task_stays(task_id, f"has ended as {task.status}", ENDED_ADVICE)
        if task.is_terminal:
            return TaskRecord.of(task.public())
        by = Caller(client_id="aws", subject=self.operator())
        return TaskRecord.of(service_of(self.store).operators.cancel(task_id, by=by).public())

    def retry(self, task_id: str) -> TaskRecord:
        task = _task_of(self.store, task_id)
        if task.status is not Status.FAILURE:
            raise task_stays(task_id, f"is {task.status}", RETRY_ADVICE)
        return TaskRecord.of(service_of(self.store).operators.retry(task_id).public())


@dataclass(frozen=True, slots=True)
class DirectPauses:
    """The pauses of a task table; `operator` returns who pauses, `realm` is the realm."""

    control: PauseControl
    operator: Callable[[], str]
    realm: Callable[[], str | None]

    @classmethod
    def of(cls, connection: Connection, table: str | None) -> Self:
        control = PauseControl(connection.pause_store(table), utc_now)
        return cls(control, lambda: connection.operator(table), lambda: _realm_of(connection))

    def pauses(self) -> PauseList:
        return _listed(self.control.shown())

    def pause(self, wanted: PauseRequest) -> PauseList:
        by = Caller(client_id="aws", subject=self.operator())
        mode = PauseMode(wanted.mode)
        return _listed(self.control.pause(self._scope(wanted), by=by, reason=wanted.reason, mode=mode))

    def resume(self, wanted: ResumeRequest) -> PauseList:
        return _listed(self.control.resume(self._scope(wanted)))

    def _scope(self, wanted: ResumeRequest) -> PauseScope:
        realm = self.realm() if wanted.scope == "realm" else None
        if wanted.scope == "realm" and realm is None:
            raise typer.BadParameter(
                "needs the setting realm (DELEGATION_REALM), because the task table does not record the realm",
                param_hint="--realm",
            )
        return PauseScope(realm=realm, table=wanted.table)


TaskSource = ApiTasks | DirectTasks
PauseSource = DelegationClient | DirectPauses


def _realm_of(connection: Connection) -> str | None:
    realm = connection.settings.get("realm")
    return realm or (connection.stack().realm if connection.uses_stack() else None)


def _listed(record: PauseRecord) -> PauseList:
    return PauseList.model_validate({"pauses": [pause.document() for pause in record.pauses]})


def count_types(store: TaskStore) -> tuple[dict[str, dict[str, int]], int]:
    """Return how many tasks of each type have each status, and the number of unreadable records."""
    counts: dict[str, Counter[str]] = {}
    unreadable, cursor = 0, None
    while True:
        page = store.heads(cursor=cursor, limit=_PAGE)
        unreadable += len(page.unreadable)
        for task in page.tasks:
            counts.setdefault(task.task_type, Counter())[task.status.value] += 1
        cursor = page.cursor
        if cursor is None:
            ordered = {task_type: {s.value: counts[task_type][s.value] for s in Status} for task_type in sorted(counts)}
            return {name: {s: n for s, n in statuses.items() if n} for name, statuses in ordered.items()}, unreadable


def collect(
    store: TaskStore, wanted: TaskFilter, *, limit: int, cursor: str | None = None, known: frozenset[str] | None = None
) -> TaskPage:
    """Return up to `limit` of the wanted tasks. An unreadable record may be a wanted one, so it is always listed."""
    tasks: list[TaskRecord] = []
    unreadable: list[Unreadable] = []
    names = frozenset(TYPES) if known is None else known
    while True:
        page = store.heads(cursor=cursor, limit=_PAGE)
        for entry in page.entries:
            if isinstance(entry, Unreadable):
                unreadable.append(entry)
            elif wanted.matches(record := TaskRecord.of(entry.public())):
                tasks.append(record)
            if len(tasks) + len(unreadable) == limit:
                last = None if page.cursor is None and entry is page.entries[-1] else entry.task_id
                return TaskPage(tasks, last is not None, last, names, unreadable)
        cursor = page.cursor
        if cursor is None:
            return TaskPage(tasks, known=names, unreadable=unreadable)


def versions_of(store: TaskStore, task_id: str) -> list[TaskRecord]:
    """Return all versions of a task, oldest first. Raises CommandError (TASK_NOT_FOUND)."""
    versions: list[TaskRecord] = []
    while rows := store.history(task_id, after=versions[-1].version if versions else 0, limit=_PAGE):
        versions += [TaskRecord.of(row.public()) for row in rows]
    if not versions:
        raise task_unknown(task_id)
    return versions


_WORKER: Final = re.compile(r"worker:(?P<host>.+):(?P<pid>\d+):\d+")


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class LeaseRelease:
    """Releases leases in a task table; `is_running` tests whether a process of this machine exists."""

    store: TaskStore
    policies: Policies
    clock: Callable[[], datetime]
    host: str = socket.gethostname()
    is_running: Callable[[int], bool] = process_exists

    def release(self, task_id: str, *, by: str, force: bool) -> TaskRecord:
        """End the attempt of a task as lost and return the task. Raises CommandError."""
        service, task = service_of(self.store, self.policies, self.clock), _task_of(self.store, task_id)
        if not task.is_held:
            raise task_stays(task_id, f"is {task.status} and has no holder", "There is no lease to release.")
        if not force and not self._is_dead(task):
            job = f", with job run {task.job_run_id}" if task.job_run_id else ""
            raise CommandError(
                f"{task.lease.owner}{job} holds task {task.task_id} until "
                f"{task.lease.lost_not_before:%Y-%m-%d %H:%M:%S} UTC, and may be alive. Nothing was changed",
                "Wait until that time. Or end the process and its job run, then repeat the command with --force.",
                code="HOLDER_MAY_LIVE",
            )
        reason = f"the lease of {task.lease.owner} was released by {by}" + (" (--force)" if force else "")
        after = service.holding(task).operators.release(task_id, task.attempt_count, reason)
        return TaskRecord.of(after.public())

    def _is_dead(self, task: Task) -> bool:
        """Return whether a worker of this machine held it and its process is gone; a Spark job outlives its process."""
        match = _WORKER.fullmatch(task.lease.owner or "")
        if match is None or task.job_run_id is not None or task.engine not in {None, "inline"}:
            return False
        return match["host"] == self.host and not self.is_running(int(match["pid"]))
