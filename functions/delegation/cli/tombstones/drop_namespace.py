"""`delegation drop-namespace --cascade`: drop a namespace with its tables and their files through the gateway."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from delegation.cli.connection import Connection
from delegation.cli.errors import INTERRUPTED, MISUSE, PARTLY_DONE, CommandError
from delegation.cli.interruption import Interrupted, Interruption
from delegation.cli.options import JsonOption, StackOption, YesOption, confirm_deletion
from delegation.cli.output import Output, open_output, print_json
from delegation.cli.submit import checked_key, split_name
from delegation.cli.tombstones.cascade import Cascade, found_in
from delegation.cli.tombstones.drop import Dropped, TableDrop
from delegation.cli.tombstones.receipts import CascadeReceipt, ReceiptFile
from delegation.cli.watching import plain, size_text
from delegation.errors import DelegationError
from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient

_HELD_OPEN: Final = 35.0
_LONGEST_WAIT: Final = 86_400.0
"""For one table; a large one is purged for hours, and the gateway knows its drop by the uuid at any time."""
_LONGEST_KEY: Final = 200


class NamespaceStays(CommandError):
    """Something of the namespace is left; the receipt has what became of each table."""

    code = "NAMESPACE_NOT_DROPPED"
    exit_status = PARTLY_DONE

    def __init__(self, receipt: CascadeReceipt, file: Path) -> None:
        super().__init__(
            str(receipt.problem),
            f"Remove the cause, then rerun the same command with --receipt {file} to resume.",
        )


class TablesRefused(CommandError):
    """Some tables of the namespace must not be purged, so nothing of it was dropped."""

    code = "TABLES_REFUSED"
    exit_status = 3

    def __init__(self, refused: Sequence[str]) -> None:
        tables = "1 table" if len(refused) == 1 else f"{len(refused)} tables"
        super().__init__(
            f"{tables} must not be purged, so nothing was dropped: {'; '.join(refused)}",
            "Move these tables to another namespace, or change the property that the message names.",
        )


class CascadeMissing(CommandError):
    """The command drops everything in the namespace, and that is to be said."""

    code = "CASCADE_MISSING"
    exit_status = MISUSE

    def __init__(self, tables: int, namespaces: int) -> None:
        super().__init__(
            f"the namespace has {tables} tables and {namespaces - 1} namespaces below it; nothing was dropped",
            "Add --cascade to drop all of them with their files; --dry-run shows them.",
        )


def drop_namespace_command(
    ctx: typer.Context,
    namespace: Annotated[
        str,
        typer.Argument(
            metavar="CATALOG.NAMESPACE",
            show_default=False,
            help="The namespace. Dots separate its levels; put `backquotes` around a name that contains a dot.",
        ),
    ],
    *,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Drop all tables and namespaces in it too, with the files.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be dropped; change nothing.")] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            show_default=False,
            help="The idempotency key, from which each table's is made. Default: a new UUID.",
        ),
    ] = None,
    receipt: Annotated[
        Path | None,
        typer.Option(
            "--receipt",
            metavar="FILE",
            show_default=False,
            help="The receipt's file; one that is not complete is resumed. Default: delegation-drop-KEY.json here.",
        ),
    ] = None,
    yes: YesOption = False,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drop a namespace, with --cascade also its tables with their files, through the gateway.

    First everything in it is listed and shown. If a table must not be purged
    nothing is dropped. The namespaces are dropped when all tables are; what is
    left otherwise is named, and the exit status is 4. The receipt is written
    before the first drop. Safe to interrupt: rerun the same command with
    --receipt FILE to resume.
    """
    output = open_output(ctx, as_json=as_json)
    catalog, levels = parse_place(namespace)
    used = checked_key(key)
    if len(used) > _LONGEST_KEY:
        raise typer.BadParameter(f"must have at most {_LONGEST_KEY} characters here", param_hint="--key")
    path = receipt or Path(f"delegation-drop-{used}.json")
    client = Connection.of(ctx, stack).catalog_through_gateway(_HELD_OPEN)
    file = ReceiptFile.opened(path)
    if file is not None:
        file.check_same(catalog, levels, key)
    if file is None or dry_run:
        with output.status(f"Listing {namespace} …"):
            found = found_in(client, catalog, levels, used)
        if dry_run or not as_json:
            print_json(_planned(found)) if as_json else output.show(cascade_screen(found))
        _refuse(found, cascade=cascade, dry_run=dry_run)
        if dry_run:
            return
        file = ReceiptFile(path, found)
    left = sum(not table.is_done for table in file.receipt.tables)
    if left and not yes:
        confirm_deletion(f"of {left} tables in {namespace}")
    done = _dropped(client, file, output, as_json=as_json)
    if not done.complete:
        raise NamespaceStays(done, path)


def _dropped(client: PolarisClient, file: ReceiptFile, output: Output, *, as_json: bool) -> CascadeReceipt:
    """Drop what the receipt has left, and report; Ctrl-C ends the process with the receipt written."""
    if file.receipt.complete:
        _report(file.receipt, file.path, as_json=as_json, say=output.say)
        return file.receipt
    before = file.save(problem=None)
    output.say(
        f"Receipt: {file.path}. If this is interrupted, run the same command with --receipt {file.path}.", dim=True
    )

    def drop(identifier: TableIdentifier, key: str, table_uuid: str) -> Dropped:
        return TableDrop(client, identifier, key, True, _LONGEST_WAIT, table_uuid).run()

    def interrupted(error: DelegationError) -> None:
        file.save(problem=str(error))
        output.problem(error)

    pressed = Interruption(
        f"interrupted; drops that were begun continue. To resume, rerun the command with --receipt {file.path}",
        interrupted,
    )
    left = sum(not table.is_done for table in before.tables)
    try:
        with pressed.watched(), output.status(f"Dropping {left} tables …"):
            ended = Cascade(client, drop, file.note).run(before)
    except Interrupted:
        pressed.claim()
        interrupted(pressed.error)
        raise typer.Exit(INTERRUPTED) from None
    for table in ended.tables:
        file.note(table)
    done = file.save(namespaces_dropped=ended.namespaces_dropped, problem=ended.problem)
    _report(done, file.path, as_json=as_json, say=output.say)
    return done


def parse_place(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse `catalog.level.level`; raises BadParameter."""
    parts = split_name(text)
    if len(parts) < 2:
        raise typer.BadParameter(f"{text!r} is not CATALOG.NAMESPACE", param_hint="CATALOG.NAMESPACE")
    return parts[0], tuple(parts[1:])


def cascade_screen(order: CascadeReceipt) -> Any:
    """Return the tables with the files of their current snapshots, and the namespaces."""
    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("table", overflow="fold")
    grid.add_column("files", justify="right", no_wrap=True)
    grid.add_column("bytes", justify="right", no_wrap=True)
    grid.add_column("note", overflow="fold")
    for one in order.tables:
        files = "?" if one.files is None else f"{one.files:,}"
        size = "?" if one.bytes is None else size_text(one.bytes)
        name = plain(".".join((order.catalog, *one.namespace, one.name)))
        grid.add_row(name, files, size, Text(one.refused or "", "bold red"))
    names = ", ".join(plain(".".join((order.catalog, *levels))) for levels in order.namespaces)
    total = sum(one.files or 0 for one in order.tables)
    weight = size_text(sum(one.bytes or 0 for one in order.tables))
    grid.caption = Text(
        f"{len(order.tables):,} tables with about {total:,} files in their current snapshots, {weight}; then the "
        f"namespaces {names}",
    )
    grid.caption_justify = "left"
    return grid


def _planned(order: CascadeReceipt) -> dict[str, Any]:
    shown = {"namespace", "table", "name", "table_uuid", "files", "bytes", "refused"}
    return {
        "dry_run": True,
        **order.model_dump(mode="json", include={"catalog": True, "namespaces": True, "tables": {"__all__": shown}}),
    }


def _refuse(order: CascadeReceipt, *, cascade: bool, dry_run: bool) -> None:
    """Raise CascadeMissing and TablesRefused before anything is changed."""
    refused = [f"{'.'.join((*one.namespace, one.name))} ({one.refused})" for one in order.tables if one.refused]
    if refused:
        raise TablesRefused(refused)
    if not (cascade or dry_run) and (order.tables or len(order.namespaces) > 1):
        raise CascadeMissing(len(order.tables), len(order.namespaces))


def _report(done: CascadeReceipt, file: Path, *, as_json: bool, say: Any) -> None:
    if as_json:
        print_json(done.model_dump(mode="json"))
        return
    for entry in done.tables:
        if not entry.is_done:
            say(f"kept: {plain(entry.table)}: {plain(entry.problem or 'not tried')}")
    dropped = sum(entry.is_done for entry in done.tables)
    say(f"Dropped {dropped:,} of {len(done.tables):,} tables and {len(done.namespaces_dropped):,} of "
        f"{len(done.namespaces):,} namespaces; the receipt is {file}.")  # fmt: skip
    later = [entry for entry in done.tables if entry.state == "RENAMED" and entry.purge_after is not None]
    if later:
        say(f"The files of {len(later):,} tables are deleted after a grace period; see `delegation tombstones list`.")
