"""What the commands of `delegation tasks` work with; loaded when one runs, because their `--help` needs none of it."""

from collections.abc import Sequence
from pathlib import Path

import typer

from delegation.cli.connection import Connection, dynamodb_client
from delegation.cli.output import open_output
from delegation.cli.pausing.source import open_pauses
from delegation.cli.tasks.bulk import change_each
from delegation.cli.tasks.follow import watch
from delegation.cli.tasks.source import ApiTasks, TaskSource
from delegation.cli.tasks.why import explain
from delegation.client.errors import NotFound
from delegation.timestamps import utc_now
from delegation.wire.pauses import ShownPause

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
        return open_pauses(ctx, stack, direct=direct, table=table).shown().pauses
    except NotFound:
        return ()
