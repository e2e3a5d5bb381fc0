"""What the commands of `delegation tasks` work with; loaded when one runs, because their `--help` needs none of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from delegation.cli.connection import Connection, dynamodb_client
from delegation.cli.output import open_output, watch
from delegation.cli.tasks.source import ApiTasks, TaskSource, change_each
from delegation.cli.tasks.why import explain
from delegation.client.client import DelegationClient
from delegation.client.errors import NotFound
from delegation.tasks.life.model import Caller
from delegation.tasks.pauses.control import PauseControl
from delegation.tasks.pauses.model import PauseMode, PauseRecord, PauseScope
from delegation.timestamps import utc_now
from delegation.wire.pauses import PauseList, PauseRequest, ResumeRequest, ShownPause

__all__ = [
    "Connection",
    "change_each",
    "dynamodb_client",
    "explain",
    "known_pauses",
    "open_output",
    "open_tasks",
    "utc_now",
    "watch",
]


def open_tasks(ctx: typer.Context, stack: Path | None, *, direct: bool, table: str | None) -> TaskSource:
    """Return the service's tasks, or those of the task table; naming a task table means the latter."""
    connection = Connection.of(ctx, stack)
    if not direct and table is None:
        return ApiTasks(connection.operator_client())
    from delegation.cli.tasks.direct import DirectTasks  # noqa: PLC0415 - loads the task store
    from delegation.wiring.settings import SWEEPS, BehaviorSettings  # noqa: PLC0415

    added = BehaviorSettings.read().behaviors
    if table is None and connection.uses_persistence():
        added = (*added, SWEEPS)
    return DirectTasks(connection.task_store(table), lambda: connection.operator(table), added)


def known_pauses(ctx: typer.Context, stack: Path | None, direct: bool, table: str | None) -> Sequence[ShownPause]:
    """Return what is paused; nothing from a service of a former release, which pauses nothing."""
    try:
        return open_pauses(ctx, stack, direct=direct, table=table).pauses().pauses
    except NotFound:
        return ()


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


def open_pauses(ctx: typer.Context, stack: Path | None, *, direct: bool, table: str | None) -> PauseSource:
    """Return the service's pauses, or those of the task table; naming a task table means the latter."""
    connection = Connection.of(ctx, stack)
    if not direct and table is None:
        return connection.operator_client()
    control = PauseControl(connection.pause_store(table), utc_now)
    return DirectPauses(control, lambda: connection.operator(table), lambda: _realm_of(connection))


def _realm_of(connection: Connection) -> str | None:
    """Return the realm of the settings, else that of the local stack."""
    found = connection.settings.get("realm")
    return found or (connection.stack().realm if connection.uses_stack() else None)


def _listed(record: PauseRecord) -> PauseList:
    return PauseList.model_validate({"pauses": [one.document() for one in record.pauses]})
