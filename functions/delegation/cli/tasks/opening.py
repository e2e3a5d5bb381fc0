"""What the commands of `delegation tasks` work with; loaded when one runs, because their `--help` needs none of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import typer

from delegation.cli.connection import Connection
from delegation.cli.tasks.source import ApiTasks
from delegation.cli.tasks.why import Why, explain
from delegation.client.client import DelegationClient
from delegation.client.errors import NotFound
from delegation.tasks.life.model import Caller
from delegation.tasks.pauses import PauseControl, PauseMode, PauseRecord, PauseScope
from delegation.timestamps import utc_now
from delegation.wire.pauses import PauseList, PauseRequest, ResumeRequest

if TYPE_CHECKING:
    from delegation.cli.tasks.direct import DirectTasks

TaskSource: TypeAlias = "ApiTasks | DirectTasks"


def open_tasks(connection: Connection, *, direct: bool, table: str | None) -> TaskSource:
    """Return the service's tasks, or those of the task table; naming a task table means the latter."""
    if not direct and table is None:
        return ApiTasks(connection.operator_client())
    from delegation.cli.tasks.direct import DirectTasks  # noqa: PLC0415 - loads the task store
    from delegation.wiring.settings import SWEEPS, BehaviorSettings  # noqa: PLC0415

    added = BehaviorSettings.read().behaviors
    if table is None and connection.uses_persistence():
        added = (*added, SWEEPS)
    return DirectTasks(connection.task_store(table), lambda: connection.operator(table), added)


def why_of(tasks: TaskSource, task_id: str, opened: "Callable[[], PauseSource]") -> Why:
    """Explain a task; a service of a former release pauses nothing."""
    task = tasks.get(task_id)
    if task.is_terminal:
        return explain(task, utc_now(), executed_by=tasks.executed_by(task))
    try:
        pauses = opened().pauses().pauses
    except NotFound:
        pauses = ()
    return explain(task, utc_now(), pauses, tasks.waiting(task))


@dataclass(frozen=True, slots=True)
class DirectPauses:
    """The pauses of a task table; `operator` returns who pauses, `realm` for which realm."""

    control: PauseControl
    operator: Callable[[], str]
    realm: Callable[[], str | None]

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
                "set realm (DELEGATION_REALM): the task table does not name it", param_hint="--realm"
            )
        return PauseScope(realm=realm, table=wanted.table)


PauseSource = DelegationClient | DirectPauses


def open_pauses(connection: Connection, *, direct: bool, table: str | None) -> PauseSource:
    """Return the service's pauses, or those of the task table; naming a task table means the latter."""
    if not direct and table is None:
        return connection.operator_client()
    control = PauseControl(connection.pause_store(table), utc_now)
    return DirectPauses(control, lambda: connection.operator(table), lambda: _realm_of(connection))


def _realm_of(connection: Connection) -> str | None:
    found = connection.settings.get("realm")
    return found or (connection.stack().realm if connection.uses_stack() else None)


def _listed(record: PauseRecord) -> PauseList:
    return PauseList.model_validate({"pauses": [one.document() for one in record.pauses]})
