"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from delegation.cli.connection import DEFAULT_STACK

StackOption = Annotated[
    Path | None,
    typer.Option(
        "--stack",
        envvar="DELEGATION_STACK",
        show_default=False,
        help=f"The stack.json of a local stack. Default: the DELEGATION_* variables if set, else {DEFAULT_STACK}.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table",
        envvar="DELEGATION_TASKS_TABLE",
        show_default=False,
        help="The name of the task table; without --stack, in the account and region of your AWS environment.",
    ),
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
