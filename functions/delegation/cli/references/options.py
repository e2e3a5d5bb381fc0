"""The option of commands that read the table of the reference index."""

from typing import Annotated

import typer

IndexTableOption = Annotated[
    str | None,
    typer.Option(
        "--index-table",
        show_default=False,
        help="The table of the reference index. Default: DELEGATION_REFERENCES_TABLE, else that of the local stack.",
    ),
]
