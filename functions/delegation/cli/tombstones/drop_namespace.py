"""`delegation drop-namespace --cascade`: drops a namespace with its tables and their files through the gateway."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.text import Text

from delegation.cli.calls import Call, argument, command, defaulted, optional, switch
from delegation.cli.errors import INTERRUPTED, MISUSE, PARTLY_DONE, CommandError
from delegation.cli.interruption import Interrupted, Interruption
from delegation.cli.output import Output
from delegation.cli.screens import Rows, plain, size_text
from delegation.cli.submit import checked_key, parse_namespace
from delegation.cli.tombstones.cascade import PARALLEL, Cascade, found_in, others_of, shortened
from delegation.cli.tombstones.drop import Dropped, TableDrop
from delegation.cli.tombstones.receipts import CascadeReceipt, ReceiptFile
from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import GENERIC_TABLE, TABLE, VIEW
from polaris_common.errors import DelegationError, counted

_LONGEST_WAIT: Final = 86_400.0
"""For one table. A large one is purged for hours, and the gateway finds its drop by the uuid at any time."""
_LONGEST_KEY: Final = 200
_SHOWN: Final = 200
"""Tables on a screen, and in a summary; the receipt, and a dry run as JSON, have all."""
_NAMED: Final = 20
"""Names in a message."""
_OPTIONS: Final = {VIEW: "--drop-views", GENERIC_TABLE: "--drop-generic-tables"}


def tables_refused(refused: Sequence[str]) -> CommandError:
    tables = counted(len(refused), "table")
    return CommandError(
        f"{tables} must not be purged or cannot be read, so nothing was dropped: "
        f"{'; '.join(shortened(refused, _NAMED))}",
        "Move these tables to another namespace, change the property that the message names, or repair the table.",
        code="TABLES_REFUSED",
        exit_status=3,
    )


def others_refused(others: Mapping[str, Sequence[str]]) -> CommandError:
    names_of = "; ".join(
        f"{len(names):,} {kind if len(names) == 1 else kind + 's'}: {', '.join(shortened(names, _NAMED))}"
        for kind, names in others.items()
    )
    options = " and ".join(_OPTIONS[kind] for kind in others)
    return CommandError(
        f"the namespace also has views or generic tables, so nothing was dropped: {names_of}",
        f"Add {options} to drop them too, or drop them yourself first. The files of generic tables stay.",
        code="OTHERS_REFUSED",
        exit_status=3,
    )


@command(takes="yes stack")
def drop_namespace_command(
    call: Call,
    namespace: Annotated[
        str,
        argument(
            "CATALOG.NAMESPACE",
            "The namespace. Dots separate its levels; `backquotes` enclose a name with a dot.",
        ),
    ],
    *,
    cascade: bool = switch("--cascade", "Also drop the namespace's tables with their files, and its child namespaces."),
    dry_run: bool = switch("--dry-run", "Only show what would change."),
    key: str | None = optional("--key", "The idempotency key. Default: a new UUID."),
    receipt: Path | None = optional(
        "--receipt",
        "The receipt file. An incomplete receipt is resumed. Default: delegation-drop-KEY.json in this directory.",
        "FILE",
    ),
    drop_views: bool = switch("--drop-views", "Also drop the namespace's views."),
    drop_generic_tables: bool = switch(
        "--drop-generic-tables", "Also drop the namespace's generic tables; their files stay."
    ),
    wait: bool = defaulted("--wait/--no-wait", "Wait for each purge, or only until the names are free.", True),
    parallel: int = defaulted("--parallel", "The number of concurrent drops.", PARALLEL, min=1, max=64),
) -> None:
    """Drop a namespace through the gateway, with --cascade also its tables and their files.

    Drops nothing if a guard refuses a table, or if views or generic tables would remain. Exit status 4: something is
    left; the output names it. To resume, rerun the command with --receipt FILE.
    """
    catalog, levels = parse_namespace(namespace)
    used = checked_key(key)
    if len(used) > _LONGEST_KEY:
        raise typer.BadParameter(f"must have at most {_LONGEST_KEY} characters for this command", param_hint="--key")
    path = receipt or Path(f"delegation-drop-{used}.json")
    client = call.connection.catalog_through_gateway()
    file = ReceiptFile.opened(path)
    is_resumed = file is not None
    if file is not None:
        file.check_same(catalog, levels, key)
    if file is None or dry_run:
        with call.output.status(f"Listing {namespace} …"):
            contents = found_in(client, catalog, levels, used)
        if dry_run or not call.as_json:
            call.output.result(_planned(contents), partial(cascade_screen, contents))
        permitted = {VIEW: drop_views, GENERIC_TABLE: drop_generic_tables}
        _refuse(contents, {kind for kind, is_said in permitted.items() if is_said}, cascade=cascade, dry_run=dry_run)
        if dry_run:
            return
        file = ReceiptFile(path, contents)
    left = sum(not table.is_done for table in file.receipt.tables)
    if left:
        call.confirm_deletion(f"of {counted(left, 'table')} in {namespace}")
    done = _dropped(client, file, call.output, wait=wait, parallel=parallel, is_resumed=is_resumed)
    if not done.complete:
        raise CommandError(
            str(done.problem),
            f"Remove the cause, then rerun the same command with --receipt {path} to resume.",
            code="NAMESPACE_NOT_DROPPED",
            exit_status=PARTLY_DONE,
        )


def _dropped(
    client: PolarisClient, file: ReceiptFile, output: Output, *, wait: bool, parallel: int, is_resumed: bool
) -> CascadeReceipt:
    """Drop what the receipt has left, and report; Ctrl-C ends the process with the receipt written."""
    if file.receipt.complete:
        _report(output, file.receipt, file.path)
        return file.receipt
    before = file.begin()
    output.say(
        f"Receipt: {file.path}. To resume after an interruption, run the same command with --receipt {file.path}.",
        dim=True,
    )

    def drop(identifier: TableIdentifier, key: str, table_uuid: str) -> Dropped:
        return TableDrop(client, identifier, key, wait, _LONGEST_WAIT, table_uuid).run()

    def interrupted(error: DelegationError) -> None:
        file.ended(str(error))
        output.problem(error)

    pressed = Interruption(
        f"interrupted; the drops under way continue. To resume, rerun the command with --receipt {file.path}",
        interrupted,
    )
    left = sum(not table.is_done for table in before.tables)
    try:
        with pressed.watched(), output.status(f"Dropping {counted(left, 'table')} …"):
            done = Cascade(client, drop, is_resumed, parallel).run(file)
    except Interrupted:
        pressed.claim()
        interrupted(pressed.error)
        raise typer.Exit(INTERRUPTED) from None
    _report(output, done, file.path)
    return done


def cascade_screen(order: CascadeReceipt) -> Any:
    table = Rows("table", "files", "bytes", "note", right={"files", "bytes"})
    for table_entry in order.tables[:_SHOWN]:
        files = "?" if table_entry.files is None else f"{table_entry.files:,}"
        size = "?" if table_entry.bytes is None else size_text(table_entry.bytes)
        name = plain(".".join((order.catalog, *table_entry.namespace, table_entry.name)))
        note = (
            Text(table_entry.kind, "yellow")
            if table_entry.kind != TABLE
            else Text(table_entry.refused or "", "bold red")
        )
        table.add(name, files, size, note)
    if len(order.tables) > _SHOWN:
        table.add(f"and {len(order.tables) - _SHOWN:,} more", "", "", "")
    places = [plain(".".join((order.catalog, *levels))) for levels in order.namespaces]
    names = ", ".join(shortened(places, _NAMED))
    tables = sum(entry.kind == TABLE for entry in order.tables)
    total = sum(entry.files or 0 for entry in order.tables)
    weight = size_text(sum(entry.bytes or 0 for entry in order.tables))
    caption = Text(
        f"{counted(tables, 'table')} with about {counted(total, 'file')} in the current snapshots, {weight}; then the "
        f"{'namespace' if len(order.namespaces) == 1 else 'namespaces'} {names}",
        "italic dim",
    )
    return Group(table, caption)


def _planned(order: CascadeReceipt) -> dict[str, Any]:
    shown = {"kind", "namespace", "table", "name", "table_uuid", "files", "bytes", "refused"}
    return {
        "dry_run": True,
        **order.model_dump(mode="json", include={"catalog": True, "namespaces": True, "tables": {"__all__": shown}}),
    }


def _refuse(order: CascadeReceipt, permitted: Collection[str], *, cascade: bool, dry_run: bool) -> None:
    refused = [
        f"{'.'.join((*table.namespace, table.name))} ({table.refused})" for table in order.tables if table.refused
    ]
    if refused:
        raise tables_refused(refused)
    others = {kind: names for kind, names in others_of(order).items() if kind not in permitted}
    if others:
        raise others_refused(others)
    if not (cascade or dry_run) and (order.tables or len(order.namespaces) > 1):
        raise CommandError(
            f"the namespace has {counted(len(order.tables), 'table')} and "
            f"{counted(len(order.namespaces) - 1, 'namespace')} below it; nothing was dropped",
            "Add --cascade to drop all of them with their files; --dry-run shows them.",
            code="CASCADE_MISSING",
            exit_status=MISUSE,
        )


def _report(output: Output, done: CascadeReceipt, file: Path) -> None:
    """Print one summary: numbers, and the first tables that are left; the receipt has them all."""
    left = [entry for entry in done.tables if not entry.is_done]
    about = done.model_dump(mode="json", exclude={"tables"})
    numbers = Counter(entry.outcome for entry in done.tables)
    first = [entry.model_dump(mode="json") for entry in left[:_SHOWN]]
    say = output.say
    output.result({**about, "receipt": str(file), "tables": dict(sorted(numbers.items())), "left": first})
    for entry in left[:_NAMED]:
        say(f"kept: {plain(entry.table)}: {plain(entry.problem or 'not tried')}")
    if len(left) > _NAMED:
        say(f"and {len(left) - _NAMED:,} more in the receipt.")
    say(f"Dropped {len(done.tables) - len(left):,} of {counted(len(done.tables), 'table')} and "
        f"{len(done.namespaces_dropped):,} of {counted(len(done.namespaces), 'namespace')}; "
        f"the receipt is {file}.")  # fmt: skip
    later = [entry for entry in done.tables if entry.state == "RENAMED" and entry.purge_after is not None]
    if later:
        say(
            f"The files of {counted(len(later), 'table')} will be deleted after a grace period. "
            "`delegation tombstones list` shows when."
        )
