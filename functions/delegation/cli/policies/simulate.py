"""The options of `delegation policy simulate`; what it needs beyond the client is imported when it runs."""

from pathlib import Path
from typing import Annotated, Final

import typer

from delegation.cli.calls import IndexTableOption, JsonOption, StackOption
from delegation.cli.policies.limits import InsteadOption, StageFileOption

_MOST_SHOWN: Final = 50


def simulate_command(
    ctx: typer.Context,
    catalog: Annotated[str, typer.Argument(metavar="CATALOG", show_default=False, help="The catalog's name.")],
    *,
    days: Annotated[int, typer.Option("--days", min=1, max=60, help="How many days are simulated.")] = 7,
    most: Annotated[int, typer.Option("--limit", min=1, help="Print so many; --json prints all.")] = _MOST_SHOWN,
    policy_file: Annotated[
        Path | None,
        typer.Option("--policy-file", metavar="FILE", show_default=False, help="The deployment's policy file."),
    ] = None,
    index_table: IndexTableOption = None,
    cdk: InsteadOption = None,
    stage_file: StageFileOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the policies of a catalog would run when, what that costs and frees; nothing is run.

    By the tables' healths, as `delegation health` reads them, and the policies of now. Needs CATALOG_READ_PROPERTIES
    and NAMESPACE_READ_PROPERTIES.
    """
    from delegation.cli.policies.simulating import show_simulation  # noqa: PLC0415 - it needs the extra `service`

    show_simulation(
        ctx,
        catalog,
        days=days,
        most=most,
        policy_file=policy_file,
        index_table=index_table,
        cdk=cdk,
        stage_file=stage_file,
        stack=stack,
        as_json=as_json,
    )
