"""`delegation health`: the tables of a catalog, those that need maintenance most first, and what each costs a month.

It reads what the service's recurring task stored, with the operator's own AWS credentials, and asks no catalog.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import Console

from delegation.cli.connection import Connection
from delegation.cli.health.documents import (
    GIB,
    HealthRow,
    StoragePrices,
    catalog_document,
    health_of,
    named,
    rows_of,
    storage_prices,
    table_document,
)
from delegation.cli.health.one_table import print_health
from delegation.cli.options import JsonOption, StackOption
from delegation.cli.output import open_output, print_json
from delegation.cli.references.lost import kept_now, summary_of
from delegation.cli.references.options import IndexTableOption
from delegation.cli.screens.layout import Rows, Whole
from delegation.cli.screens.watching import plain, size_text
from delegation.identifiers import TableIdentifier
from delegation.timestamps import utc_now
from delegation.upkeep.health.model import TableHealth
from polaris_common.errors import counted

MOST_SHOWN: Final = 20


def health_command(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="CATALOG|TABLE", show_default=False, help="A catalog, or CATALOG.NAMESPACE.TABLE."),
    ],
    *,
    most: Annotated[int, typer.Option("--limit", min=1, help="Print so many tables; --json prints all.")] = MOST_SHOWN,
    index_table: IndexTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of a catalog, those that need maintenance most first, and what each costs a month in storage.

    Of one table also the runs of maintenance that ended are shown: when, because of which policy, and what they did.
    """
    open_output(ctx, as_json=as_json)
    connection = Connection.of(ctx, stack)
    store, prices, wanted = connection.health_store(index_table), storage_prices(), named(name)
    if isinstance(wanted, TableIdentifier):
        _one_table(health_of(store, wanted), prices, as_json=as_json)
        return
    lost = kept_now(connection.reference_store(index_table).lost_refs(wanted), utc_now())
    rows = rows_of(list(store.healths(wanted)), prices)
    if as_json:
        print_json(catalog_document(wanted, rows, lost, prices))
    else:
        print_healths(wanted, rows, prices, most)
        for one in lost[:most]:
            Console(highlight=False).print(Whole(summary_of(one)), crop=False)


def _one_table(health: TableHealth, prices: StoragePrices, *, as_json: bool) -> None:
    if as_json:
        print_json(table_document(health, prices))
        return
    row = HealthRow.of(health, prices)
    saved = "" if health.expirable is None else f"; an expiry saves {_between(row)}"
    print_health(health, f"{row.cost:,.2f} {prices.currency} a month{saved}")


def print_healths(catalog: str, rows: Sequence[HealthRow], prices: StoragePrices, most: int) -> None:
    """Print the worst tables, and what could not be read."""
    console = Console(highlight=False)
    if not rows:
        text = (
            f"Nothing is known of the tables of {plain(catalog)} yet: their health is read after the first pass of the "
            "reference index, which a purge in the catalog starts."
        )
        console.print(Whole(text), crop=False)
        return
    numbers = ("files", "small", "oversized", "deletes", "snapshots", "expirable", "GB", "a month", "expiry saves")
    table = Rows("table", *numbers, right=numbers)
    for row in rows[:most]:
        health = row.health
        table.add(
            plain(".".join((*health.identifier.namespace, health.identifier.name))),
            f"{health.files:,}",
            _with_size(health.small_files, health.small_bytes),
            _with_size(health.oversized_files, health.oversized_bytes),
            f"{health.delete_files + health.deletion_vectors:,}",
            f"{health.snapshots:,}",
            "no rule" if health.expirable is None else f"{health.expirable:,}",
            f"{health.bytes / GIB:,.1f}",
            f"{row.cost:,.2f}",
            _between(row),
        )
    console.print(table, crop=False)
    if len(rows) > most:
        console.print(f"{len(rows) - most:,} more; --limit and --json list them.")
    found = [row.health for row in rows]
    for texts in zip(*(_states(one) for one in found), strict=True) if found else ():
        for text in [one for one in texts if one][:most]:
            console.print(Whole(text), crop=False)
    total = sum(row.cost for row in rows)
    text = (
        f"\n{counted(len(rows), 'table')}, {total:,.2f} {prices.currency} a month for the files of their current "
        f"snapshots in S3 Standard; prices of {prices.region}, {prices.as_of}. As of {_ages(found)}."
    )
    console.print(Whole(text), crop=False)


def _ages(found: Sequence[TableHealth]) -> str:
    """Return when the tables were read, from the oldest to the newest."""
    oldest, newest = (f"{pick(one.as_of for one in found).astimezone():%Y-%m-%d %H:%M:%S %Z}" for pick in (min, max))
    return newest if oldest == newest else f"{newest}, of the table read longest ago {oldest}"


def _states(health: TableHealth) -> tuple[str, ...]:
    """Return what holds a table back, in the order in which such lines are printed; "" for what does not."""
    name, protection = plain(str(health.identifier)), health.protection
    plans = [one.waiting for one in health.runs.values() if one.waiting]
    reasons = "; ".join(plain(one.error) for _, one in sorted(health.asides.items()))
    return (
        f"{name} could not be read: {plain(health.problem)}" if health.problem is not None else "",
        f"{name} is set aside: {reasons}" if reasons else "",
        f"{name} is protected ({protection}): no policy expires its snapshots" if protection else "",
        "\n".join(f"{name} waits for approval: delegation orphans approve {plain(plan)}" for plan in plans),
    )


def _with_size(files: int | None, size: int | None) -> str:
    """Return a number of files with their bytes; not all is known of a table that a former release read."""
    if files is None:
        return "–"
    return f"{files:,} ({size_text(size)})" if files and size is not None else f"{files:,}"


def _between(row: HealthRow) -> str:
    if row.health.expirable is None:
        return "–"
    if row.saves_most is None:
        return f"{row.saves_least:,.2f} or more"
    least, most = f"{row.saves_least:,.2f}", f"{row.saves_most:,.2f}"
    return most if least == most else f"{least}–{most}"
