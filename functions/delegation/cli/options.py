"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from delegation.configuration.settings import DEFAULT_STACK

StackOption = Annotated[
    Path | None,
    typer.Option(
        "--stack",
        envvar="DELEGATION_STACK",
        show_default=False,
        help=f"The stack.json of a local stack. Default: the settings (`config show`), else {DEFAULT_STACK}.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
TasksTableOption = Annotated[
    str | None,
    typer.Option(
        "--tasks-table",
        show_default=False,
        help="The name of the task table, for --direct. Default: DELEGATION_TASKS_TABLE, else that of the local stack.",
    ),
]
DirectOption = Annotated[
    bool,
    typer.Option("--direct", help="Use the task table with your own AWS credentials instead of the service."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TaskId = Annotated[str, typer.Argument(metavar="TASK_ID", help="The task's id.", show_default=False)]


def at_a_terminal() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin.isatty()


def confirm_deletion(scope: str) -> None:
    """Ask at a terminal whether to delete every file in `scope`; raises Abort unless the answer is yes."""
    if at_a_terminal():
        typer.confirm(f"This permanently deletes every file {scope}. Continue?", abort=True, err=True)


def confirm_change(effect: str) -> None:
    """Ask at a terminal whether to have an effect that deletes no file; raises Abort unless the answer is yes."""
    if at_a_terminal():
        typer.confirm(f"{effect}. Continue?", abort=True, err=True)


IndexTableOption = Annotated[
    str | None,
    typer.Option(
        "--index-table",
        show_default=False,
        help="The table of the reference index. Default: DELEGATION_REFERENCES_TABLE, else that of the local stack.",
    ),
]
