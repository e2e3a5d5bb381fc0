"""The commands `delegation local …`, which run the whole system on this machine."""

import contextlib
import inspect
import json
import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from delegation.cli.calls import JsonOption
from delegation.cli.errors import CommandError
from delegation.cli.output import open_output
from delegation.cli.submit import parse_properties
from infra.local.demo.commands import plant_orphans_command, tables_command
from infra.local.errors import LocalStackError, PolarisUnusable
from infra.local.options import StackOptions

if TYPE_CHECKING:
    from infra.local.supervisor import LocalStack, Part

app = typer.Typer(help="Run the whole system on this machine.", no_args_is_help=True)
_CHECK_SECONDS = 1.0
_WIDE = 120
"""From so many columns on the note of a part is beside its address."""


@app.callback()
def local() -> None:
    """Run the whole system on this machine."""


Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="Set a property of the service."),
]


def up(ctx: typer.Context, *, properties: Properties, as_json: JsonOption, **given: Any) -> None:
    """Run the whole system until Ctrl-C or SIGTERM; stack.json is written when it is ready."""
    open_output(ctx, as_json=as_json)
    overrides = parse_properties(properties or ())
    # Both stop the stack, also during the start and where a shell's `&` made it ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with _reported(given["state_dir"]):
        _run(StackOptions(**given, properties=overrides), as_json=as_json)


def _signature() -> inspect.Signature:
    """Return the signature of `up`: an option for each field of StackOptions."""
    annotations = {**get_type_hints(StackOptions, include_extras=True), "properties": Properties}
    defaults = {each.name: each.default for each in fields(StackOptions)} | {"properties": None}
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotations[name], default=default)
        for name, default in defaults.items()
    ]
    ctx, _, as_json, _ = inspect.signature(up).parameters.values()
    return inspect.Signature([ctx, *options, as_json.replace(default=False)])


up.__signature__ = _signature()  # type: ignore[attr-defined]
app.command()(up)
app.command("tables")(tables_command)
app.command("plant-orphans")(plant_orphans_command)


@contextlib.contextmanager
def _reported(state_dir: Path) -> Iterator[None]:
    """Turn Ctrl-C into a line of output, and a failure of the stack into a command error with a next step."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
    except PolarisUnusable as exc:
        raise CommandError(exc.problem, f"{exc.advice[0].upper()}{exc.advice[1:]}.", code="LOCAL_STACK_FAILED") from exc
    except LocalStackError as exc:
        logs = state_dir / "logs"
        next_step = f"Read the logs in {logs}, then run the same command again."
        if not logs.is_dir():
            next_step = "Name a folder that this user may write: --state-dir."
        raise CommandError(str(exc), next_step, code="LOCAL_STACK_FAILED") from exc


def _run(options: StackOptions, *, as_json: bool) -> None:
    """Start a stack and check it until a signal interrupts; stop it in any case."""
    from infra.local.supervisor import LocalStack  # noqa: PLC0415  loads moto and pyspark, which takes seconds

    stack = LocalStack(options)
    console = Console(stderr=True, highlight=False)
    started = time.monotonic()
    try:
        with console.status("Starting the delegation service on this machine…"):
            stack.start()
            logging.basicConfig(
                filename=stack.logs / "stack.log", format="%(asctime)s %(levelname)s %(name)s %(message)s"
            )
        _print_summary(console, stack, time.monotonic() - started, as_json=as_json)
        while True:
            time.sleep(_CHECK_SECONDS)
            stack.check()
    finally:
        # A second Ctrl-C must not interrupt the stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stack.stop()


def _print_summary(console: Console, stack: "LocalStack", seconds: float, *, as_json: bool) -> None:
    if as_json:
        ready = {"stack_json": str(stack.path), "seconds": round(seconds, 1), "parts": [asdict(p) for p in stack.parts]}
        sys.stdout.write(json.dumps(ready, ensure_ascii=False) + "\n")
        sys.stdout.flush()
        return
    console.print(Text("The delegation service on this machine", "bold"))
    console.print(parts_table(stack.parts, console.width))
    console.print(
        f"Ready after {seconds:.1f} s. Addresses and credentials are in {stack.path}.\n"
        "In another terminal, `delegation local tables` writes tables to purge. Press Ctrl-C here to stop.",
        soft_wrap=True,
    )


def parts_table(parts: Sequence["Part"], width: int) -> Table:
    """Return a table of the parts with their addresses, which are copied and so not broken; notes go where room is."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    wide = width >= _WIDE
    table.add_column(no_wrap=True, min_width=max(len(part.name) for part in parts))
    table.add_column(no_wrap=wide, overflow="fold")
    if wide:
        table.add_column(style="dim", overflow="fold")
    for part in parts:
        table.add_row(part.name, part.where, *([part.note] if wide else []))
        if not wide:
            table.add_row("", Text(part.note, "dim"))
    return table
