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

from delegation.cli.calls import JsonOption, StackOption
from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError
from delegation.cli.output import open_output, print_json
from delegation.cli.screens import size_text
from delegation.cli.submit import TableArgument, parse_properties, parse_table
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable, TableMetadataMissing
from delegation.polaris.client import PolarisClient
from delegation.timestamps import parse_duration
from infra.local.errors import LocalStackError, PolarisUnusable
from infra.local.options import StackOptions
from polaris_common.errors import counted

if TYPE_CHECKING:
    from infra.local.demo.tables import PlantedFile, SampleState
    from infra.local.supervisor import LocalStack, Part


AgeOption = Annotated[str, typer.Option(metavar="AGE", help="The files' age by the store's clock, such as 4d or 36h.")]


def tables_command(ctx: typer.Context, stack: StackOption = None, as_json: JsonOption = False) -> None:
    """Write the demo's tables to the running stack: shop.orders, shop.events, shop.customers.

    Keeps existing tables, writes purged tables again, and counts rows, snapshots and objects.
    """
    from infra.local.demo import tables as sample  # noqa: PLC0415  loads pyiceberg and pyarrow

    open_output(ctx, as_json=as_json)
    connection = Connection.of(ctx, stack)
    running, polaris = connection.stack(), connection.catalog()
    catalog = sample.connect(running)
    catalog.create_namespace_if_not_exists(sample.NAMESPACE)
    written: list[str] = []
    states: dict[str, SampleState] = {}
    for recipe in sample.RECIPES:
        table = TableIdentifier(running.warehouse, (sample.NAMESPACE,), recipe.name)
        if not _is_whole(polaris, table):
            with Console(stderr=True, highlight=False).status(f"Writing {table} …"):
                sample.create(catalog, recipe, lambda _step: None)
            written.append(str(table))
        with Console(stderr=True, highlight=False).status(f"Reading {table} …"):
            states[str(table)] = sample.state_of(catalog, sample.Bucket(running), recipe.name)
    kept = [name for name in states if name not in written]
    if as_json:
        print_json(
            {"written": written, "kept": kept, "tables": {name: asdict(state) for name, state in states.items()}}
        )
        return
    Console(highlight=False).print(_states_table(states, written))
    sys.stdout.write(f"Purge a table: delegation submit {(written or kept)[0]} --wait\n")


def plant_orphans_command(
    ctx: typer.Context,
    table: TableArgument,
    age: AgeOption = "4d",
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write orphan files to a table's location.

    Writes data files, a manifest and a manifest list, like a job that did not commit. Moves the times of all objects in
    the local store back by --age, so that a scan accepts the files as old enough.
    """
    from infra.local.demo import tables as sample  # noqa: PLC0415  loads pyiceberg and pyarrow
    from infra.local.demo.tables import RemoteAges, plant  # noqa: PLC0415  loads moto too

    open_output(ctx, as_json=as_json)
    identifier = parse_table(table)
    try:
        by = parse_duration(age)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--age") from None
    connection = Connection.of(ctx, stack)
    running = connection.stack()
    ages = RemoteAges(running)
    ages.check()  # Nothing is written where it would stay young.
    # Loaded as the owner, which reports a table that the catalog does not have in one line.
    connection.catalog().load_table(identifier)
    planted = plant(sample.connect(running), identifier)
    if not planted:
        raise typer.BadParameter(f"{identifier} has no snapshot yet", param_hint="CATALOG.NAMESPACE.TABLE")
    older = ages.add(by)
    if as_json:
        files = [{"uri": file.uri, "bytes": file.size} for file in planted]
        print_json({"table": str(identifier), "files": files, "older_seconds": older.total_seconds()})
        return
    _show(identifier, planted, age)


def _show(identifier: TableIdentifier, planted: "Sequence[PlantedFile]", age: str) -> None:
    size = size_text(sum(file.size for file in planted))
    sys.stdout.write(f"{counted(len(planted), 'file')}, {size}, written by a job that ended before its commit:\n")
    for file in planted:
        sys.stdout.write(f"  {file.uri}\n")
    sys.stdout.write(
        f"By the store's clock, they are {age} old. All other objects in the store have aged by the same time.\n"
    )
    sys.stdout.write(f"Find these files: delegation orphans scan {identifier} --wait\n")


def _states_table(states: "dict[str, SampleState]", written: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("table", ""):
        table.add_column(title)
    for title in ("rows", "snapshots", "objects"):
        table.add_column(title, justify="right")
    table.add_column("rows' checksum")
    for name, state in states.items():
        what = "written" if name in written else "existed"
        table.add_row(name, what, f"{state.rows:,}", f"{state.snapshots}", f"{state.objects:,}", state.checksum)
    return table


def _is_whole(polaris: PolarisClient, table: TableIdentifier) -> bool:
    """Return whether a table exists; drop the entry of one whose files were purged."""
    try:
        polaris.load_table(table)
    except NoSuchTable:
        return False
    except TableMetadataMissing:
        polaris.drop_table(table)
        return False
    return True


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
    """Run the whole system until Ctrl-C or SIGTERM. Writes stack.json when the system is ready."""
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
