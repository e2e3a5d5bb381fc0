"""`delegation pause`, `resume`, `pauses` and `drain`: in the service, or with `--direct` in the task table."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.console import Console

from delegation.cli.calls import Call, command, defaulted, option, switch
from delegation.cli.errors import CommandError
from delegation.cli.screens import Rows, local_text, plain
from delegation.cli.tasks.filters import StatusName, TaskFilter
from delegation.wire.operators import PauseList, PauseRequest, ResumeRequest
from delegation.wire.tasks import TaskRecord
from polaris_common.errors import counted

if TYPE_CHECKING:
    from delegation.cli.tasks.direct import PauseSource, TaskSource

_POLL_SECONDS: Final = 5.0
_SETTLES_SECONDS: Final = 25.0
"""A process reads the pauses every 20 s; until then it may still start an attempt."""
_MOST_SHOWN: Final = 1_000
RealmOption = Annotated[bool, typer.Option("--realm", help="Only tasks of the realm, not the service's maintenance.")]
TableOption = Annotated[str | None, option("--table", "Only tasks of this table.", "CATALOG.NS.TABLE")]
ReasonOption = Annotated[str, option("--reason", "The reason that others see.")]


@command(takes="direct tasks_table stack")
def pause_command(
    call: Call,
    *,
    everything: bool = switch("--all", "All work, including the service's own tasks."),
    realm: RealmOption = False,
    table: TableOption = None,
    reason: ReasonOption = "",
) -> None:
    """Stop all work or a part of it within a minute; running attempts are handed over.

    `delegation resume` continues the work. A pause outlasts deployments and raises an alarm.
    """
    if everything + realm + (table is not None) != 1:
        raise typer.BadParameter("choose what to pause: --all, --realm or --table", param_hint="--all")
    if not reason.strip():
        raise typer.BadParameter("give a reason", param_hint="--reason")
    wanted = PauseRequest(scope=_scope(realm=realm, table=table), table=table, reason=reason)
    show(call, call.pauses().pause(wanted))


@command(takes="direct tasks_table stack")
def resume_command(call: Call, *, realm: RealmOption = False, table: TableOption = None) -> None:
    """End a pause or drain of all work, the realm or a table; tasks continue within two minutes."""
    wanted = ResumeRequest(scope=_scope(realm=realm, table=table), table=table)
    show(call, call.pauses().resume(wanted))


@command(takes="direct tasks_table stack")
def pauses_command(call: Call) -> None:
    """Show what is paused, by whom, when and why."""
    show(call, call.pauses().pauses())


@command(takes="direct tasks_table stack")
def drain_command(
    call: Call,
    *,
    reason: ReasonOption = "",
    timeout: float = defaulted("--timeout", "Stop waiting after N seconds, with exit status 1.", 3_600.0, min=0.0),
) -> None:
    """Start nothing new, and wait until nothing runs.

    New requests are accepted and wait. End the drain with `delegation resume`.
    """
    report = None if call.as_json else report_running
    show(call, drain(call.pauses(), call.tasks(), reason=reason, timeout_seconds=timeout, report=report))


def drain(
    pauses: "PauseSource",
    tasks: "TaskSource",
    *,
    reason: str,
    timeout_seconds: float,
    report: Callable[[list[TaskRecord]], object] | None,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Any] = time.sleep,
) -> PauseList:
    """Keep attempts from starting until none runs and every process knows the pause. Raises CommandError (time-out)."""
    paused = pauses.pause(PauseRequest(reason=reason, mode="drain"))
    began, quiet_since = now(), None
    while True:
        held = running(tasks)
        if held:
            quiet_since = None
        elif quiet_since is None:
            quiet_since = now()
        if not held and now() - max(quiet_since or began, began) >= _SETTLES_SECONDS:
            return paused
        if now() - began >= timeout_seconds:
            left = f"{counted(len(held), 'task')} still {'runs' if len(held) == 1 else 'run'}"
            raise CommandError(
                f"the drain is not complete: {left if held else 'processes may not know of it yet'}; no task starts",
                "Run `delegation drain` again to wait longer, `delegation pause` to hand the tasks over, or "
                "`delegation resume`.",
                code="TASKS_STILL_RUN",
            )
        if report is not None:
            report(held)
        sleep(_POLL_SECONDS)


def running(tasks: "TaskSource") -> list[TaskRecord]:
    held = TaskFilter(frozenset({StatusName.ACQUIRING_RESOURCES, StatusName.RUNNING}))
    return list(tasks.found(held, limit=_MOST_SHOWN).tasks)


def report_running(held: list[TaskRecord]) -> None:
    names = ", ".join(plain(task.table or task.task_type) for task in held[:5])
    more = f" and {len(held) - 5:,} more" if len(held) > 5 else ""
    text = (
        f"{counted(len(held), 'task')} still running: {names}{more}"
        if held
        else "nothing runs; waiting until every process knows of the drain"
    )
    Console(stderr=True, highlight=False, markup=False).print(text, style="dim")


def show(call: Call, pauses: PauseList) -> None:
    table = Rows("paused", "mode", "since", "by", "reason")
    for pause in pauses.pauses:
        other = pause.by.subject if pause.by.subject not in {None, "", pause.by.client_id} else None
        by = f"{pause.by.client_id} ({other})" if other else pause.by.client_id
        table.add(*(plain(text) for text in (pause.what, pause.mode, local_text(pause.since), by, pause.reason)))
    call.output.result(pauses.model_dump(mode="json"), table if pauses.pauses else "Nothing is paused.")


def _scope(*, realm: bool, table: str | None) -> Literal["all", "realm", "table"]:
    if realm and table is not None:
        raise typer.BadParameter("give either --realm or --table", param_hint="--realm")
    return "table" if table is not None else "realm" if realm else "all"
