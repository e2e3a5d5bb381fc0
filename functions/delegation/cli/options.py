"""Options that several commands share."""

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
TaskId = Annotated[str, typer.Argument(help="The task's id.", show_default=False)]
