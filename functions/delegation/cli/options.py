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
        help=f"The stack.json of a running system; by default the DELEGATION_* variables if set, else {DEFAULT_STACK}.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table",
        envvar="DELEGATION_TASKS_TABLE",
        show_default=False,
        help="The task table; without --stack, one in the account and region that the AWS environment names.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TaskId = Annotated[str, typer.Argument(help="The task's id.", show_default=False)]


def at_a_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def confirm_deletion(whose: str) -> None:
    """Ask at a terminal whether to delete every file of something; raises Abort unless the answer is yes."""
    if at_a_terminal():
        typer.confirm(f"This permanently deletes every file {whose}. Continue?", abort=True, err=True)
