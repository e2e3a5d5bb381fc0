"""`delegation estimate`: what the plan of a task deletes, how long that takes and what it costs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from delegation.cli.connection import Connection
from delegation.cli.costs.commands import prices_of, print_monthly
from delegation.cli.costs.monthly import Architecture, EngineName, NetworkChoice, Workload
from delegation.cli.errors import task_unknown
from delegation.cli.options import JsonOption, StackOption
from delegation.cli.output import open_output, print_json
from delegation.cli.screens.layout import LabelledLines
from delegation.cli.screens.watching import duration_text, size_text
from delegation.client.errors import NotFound
from delegation.wire.responses import Estimate
from polaris_common.errors import counted

_NO_TASK = "TASK_NOT_FOUND"


def estimate_command(
    ctx: typer.Context,
    task_id: Annotated[str | None, typer.Argument(metavar="TASK_ID", show_default=False, help="The task's id.")] = None,
    *,
    of_a_month: Annotated[bool, typer.Option("--monthly", help="Show what the service costs in a month.")] = False,
    tables: Annotated[int, typer.Option("--tables", min=0, help="With --monthly: the tables of a month.")] = 100,
    files: Annotated[int, typer.Option("--files", min=0, help="With --monthly: the files of each.")] = 10_000,
    engine: Annotated[EngineName, typer.Option("--engine", help="With --monthly: which engine.")] = EngineName.INLINE,
    network: Annotated[
        NetworkChoice, typer.Option("--network", help="With --monthly: the network profile.")
    ] = NetworkChoice.PRIVATE,
    architecture: Annotated[
        Architecture, typer.Option("--architecture", help="With --monthly: the processor of functions and jobs.")
    ] = Architecture.ARM64,
    nat_gateways: Annotated[
        int, typer.Option("--nat-gateways", min=0, help="With --monthly: the NAT gateways of the private network.")
    ] = 0,
    prices: Annotated[
        Path | None, typer.Option("--prices", metavar="FILE", show_default=False, help="With --monthly: a price file.")
    ] = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the plan of a task deletes, how long that takes, and what it costs; a dry run has a plan too.

    With --monthly instead what the service costs in a month.
    """
    open_output(ctx, as_json=as_json)
    if of_a_month == (task_id is not None):
        raise typer.BadParameter("give a task's id, or --monthly", param_hint="TASK_ID")
    if task_id is None:
        work = Workload(tables, files, engine, network, architecture, nat_gateways)
        print_monthly(work, prices_of(prices), as_json=as_json)
        return
    try:
        found = Connection.of(ctx, stack).operator_client().estimate(task_id)
    except NotFound as error:
        if error.error_code == _NO_TASK:
            raise task_unknown(task_id) from error
        raise
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        Console(highlight=False).print(estimate_screen(found), crop=False)


def estimate_screen(found: Estimate) -> LabelledLines:
    """Return an estimate, a line for each question."""
    kinds = ", ".join(f"{total.files:,} {kind}" for kind, total in found.by_type.items())
    kept = f"; {found.files_kept:,} are kept" if found.files_kept else ""
    rows = {
        "task": f"{found.task_id}, {found.task_status}",
        "files": f"{found.files:,}, {size_text(found.bytes)}{kept}",
        "of these": kinds,
        "time": f"about {duration_text(found.seconds)} with the {found.engine} engine, at {found.keys_per_second:,.0f}"
        " keys a second",
        "left": f"{counted(found.files_left, 'file')}, about {duration_text(found.seconds_left)}",
        "cost": f"about {found.cost:.2f} {found.currency} (prices of {found.prices_region}, {found.prices_as_of})",
    }
    return LabelledLines([(name, value) for name, value in rows.items() if value])
