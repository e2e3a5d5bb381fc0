"""`delegation local tables` and `delegation local plant-orphans`: what commands can be tried on in a running stack."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from delegation.cli.calls import JsonOption, StackOption
from delegation.cli.connection import Connection
from delegation.cli.output import open_output, print_json
from delegation.cli.screens import size_text
from delegation.cli.submit import TableArgument, parse_table
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable, TableMetadataMissing
from delegation.polaris.client import PolarisClient
from delegation.timestamps import parse_duration
from polaris_common.errors import counted

if TYPE_CHECKING:
    from infra.local.demo.tables import PlantedFile, SampleState

AgeOption = Annotated[str, typer.Option(metavar="AGE", help="The files' age by the store's clock: 4d, 36h.")]


def tables_command(ctx: typer.Context, stack: StackOption = None, as_json: JsonOption = False) -> None:
    """Write the demo's tables to the running stack: shop.orders, shop.events, shop.customers.

    Keeps existing tables, writes purged ones again, and counts rows, snapshots and objects.
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
    sys.stdout.write(f"Purge one: delegation submit {(written or kept)[0]} --wait\n")


def plant_orphans_command(
    ctx: typer.Context,
    table: TableArgument,
    age: AgeOption = "4d",
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write orphan files to a table's location.

    Writes data files, a manifest and a manifest list, as of a job without a commit. Makes all objects of the store
    older.
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
    sys.stdout.write(f"{counted(len(planted), 'file')}, {size}, of a job that ended before its commit:\n")
    for file in planted:
        sys.stdout.write(f"  {file.uri}\n")
    sys.stdout.write(f"They are {age} old by the times of their store, and all other objects there are older too.\n")
    sys.stdout.write(f"Find them: delegation orphans scan {identifier} --wait\n")


def _states_table(states: "dict[str, SampleState]", written: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("table", ""):
        table.add_column(title)
    for title in ("rows", "snapshots", "objects"):
        table.add_column(title, justify="right")
    table.add_column("rows' checksum")
    for name, state in states.items():
        what = "written" if name in written else "is there already"
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
