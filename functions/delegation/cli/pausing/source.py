"""Where the commands show and change what is paused: the service, or with `--direct` the task table."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import typer

from delegation.cli.connection import Connection
from delegation.client.client import DelegationClient
from delegation.tasks.life.model import Caller
from delegation.tasks.pauses.control import PauseControl
from delegation.tasks.pauses.model import PauseMode, PauseRecord, PauseScope
from delegation.timestamps import utc_now
from delegation.wire.pauses import PauseList, PauseRequest, ResumeRequest


class PauseSource(Protocol):
    """Shows and changes pauses; raises the errors of the service or of the store."""

    def shown(self) -> PauseList:
        """Return everything that is paused."""

    def pause(self, wanted: PauseRequest) -> PauseList:
        """Pause a scope."""

    def resume(self, wanted: ResumeRequest) -> PauseList:
        """End the pause of a scope."""


@dataclass(frozen=True, slots=True)
class ApiPauses:
    """The pauses of the service."""

    client: DelegationClient

    def shown(self) -> PauseList:
        """See PauseSource.shown."""
        return self.client.pauses()

    def pause(self, wanted: PauseRequest) -> PauseList:
        """See PauseSource.pause."""
        return self.client.pause(wanted)

    def resume(self, wanted: ResumeRequest) -> PauseList:
        """See PauseSource.resume."""
        return self.client.resume(wanted)


@dataclass(frozen=True, slots=True)
class DirectPauses:
    """The pauses of a task table; `operator` returns who pauses, `realm` for which realm."""

    control: PauseControl
    operator: Callable[[], str]
    realm: Callable[[], str | None]

    def shown(self) -> PauseList:
        """See PauseSource.shown."""
        return _listed(self.control.shown())

    def pause(self, wanted: PauseRequest) -> PauseList:
        """See PauseSource.pause."""
        by = Caller(client_id="aws", subject=self.operator())
        mode = PauseMode(wanted.mode)
        return _listed(self.control.pause(self._scope(wanted), by=by, reason=wanted.reason, mode=mode))

    def resume(self, wanted: ResumeRequest) -> PauseList:
        """See PauseSource.resume."""
        return _listed(self.control.resume(self._scope(wanted)))

    def _scope(self, wanted: ResumeRequest) -> PauseScope:
        realm = self.realm() if wanted.scope == "realm" else None
        if wanted.scope == "realm" and realm is None:
            raise typer.BadParameter(
                "set realm (DELEGATION_REALM): the task table does not name it", param_hint="--realm"
            )
        return PauseScope(realm=realm, table=wanted.table)


def open_pauses(ctx: typer.Context, stack: Path | None, *, direct: bool, table: str | None) -> PauseSource:
    """Return the service's pauses, or those of the task table; naming a task table means the latter."""
    connection = Connection.of(ctx, stack)
    if not direct and table is None:
        return ApiPauses(connection.operator_client())
    control = PauseControl(connection.pause_store(table), utc_now)
    return DirectPauses(control, lambda: connection.operator(table), lambda: realm_of(connection))


def realm_of(connection: Connection) -> str | None:
    """Return the realm of the settings, else that of the local stack."""
    found = connection.settings.get("realm")
    return found or (connection.stack().realm if connection.uses_stack() else None)


def _listed(record: PauseRecord) -> PauseList:
    return PauseList.model_validate({"pauses": [one.document() for one in record.pauses]})
