"""`delegation health`: the tables of a catalog, those that need maintenance most first, and what each costs a month.

It reads what the service's recurring task stored, with the operator's own AWS credentials, and asks no catalog.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from delegation.cli.connection import Connection
from delegation.cli.costs.commands import BUNDLED, document_of
from delegation.cli.health.one_table import health_of, history_document, print_health
from delegation.cli.options import JsonOption, StackOption
from delegation.cli.output import open_output, print_json
from delegation.cli.references.lost import document_of as lost_document
from delegation.cli.references.lost import kept_now, summary_of
from delegation.cli.references.options import IndexTableOption
from delegation.cli.screens.layout import Rows, Whole
from delegation.cli.screens.watching import plain, size_text
from delegation.cli.submit import parse_table
from delegation.errors import counted
from delegation.identifiers import split_name
from delegation.timestamps import isoformat, utc_now
from delegation.upkeep.health.model import LastRun, TableHealth
from delegation.worksets.forecast import Prices

GIB: Final = 1024**3
"""S3 bills GB-months of 2³⁰ bytes (Amazon S3 pricing)."""
MOST_SHOWN: Final = 20
_LEAST_OF_A_TABLE: Final = 3
"""Parts of a table's name: catalog, namespace, table."""


class StoragePrices(Prices):
    """`prices.json` with the price of a GB-month of S3 Standard."""

    s3_gb_month: float


@dataclass(frozen=True, slots=True)
class HealthRow:
    """A table's health with what its live files cost a month, and at least and at most what an expiry would save."""

    health: TableHealth
    cost: float
    saves_least: float
    saves_most: float | None

    @classmethod
    def of(cls, health: TableHealth, prices: StoragePrices) -> "HealthRow":
        """Return the row of a health."""
        price, freed = prices.s3_gb_month / GIB, health.freed
        most = None if freed.upper is None else freed.upper * price
        return cls(health, health.bytes * price, freed.lower * price, most)

    @property
    def badness(self) -> tuple[float, int, int, int]:
        """What orders tables: the money that maintenance saves, then what it would tidy up."""
        health = self.health
        saves = self.saves_least if self.saves_most is None else self.saves_most
        return saves, health.small_files, health.delete_files + health.deletion_vectors, health.expirable or 0

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        health = self.health
        return {
            "namespace": list(health.identifier.namespace),
            "name": health.identifier.name,
            "as_of": isoformat(health.as_of),
            "metadata_location": health.metadata_location,
            "snapshots": health.snapshots,
            "refs": health.refs,
            "expirable_snapshots": health.expirable,
            "files": health.files,
            "bytes": health.bytes,
            "small_files": health.small_files,
            "small_bytes": health.small_bytes,
            "oversized_files": health.oversized_files,
            "oversized_bytes": health.oversized_bytes,
            "delete_files": health.delete_files,
            "deletion_vectors": health.deletion_vectors,
            "manifests": health.manifests,
            "manifest_bytes": health.manifest_bytes,
            "metadata_bytes": health.metadata_bytes,
            "freed_bytes": {"at_least": health.freed.lower, "at_most": health.freed.upper},
            "cost_month": round(self.cost, 4),
            "saved_month": {
                "at_least": round(self.saves_least, 4),
                "at_most": None if self.saves_most is None else round(self.saves_most, 4),
            },
            "problem": health.problem,
            "runs": [_run_document(one) for one in health.runs.values()],
        }


def _run_document(run: LastRun) -> dict[str, Any]:
    return {
        "kind": run.kind,
        "task_id": run.task_id,
        "policy": run.policy,
        "began": isoformat(run.began),
        "ended": None if run.ended is None else isoformat(run.ended),
        "outcome": run.outcome,
        "failures": run.failures,
    }


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
    store = connection.health_store(index_table)
    prices = StoragePrices.model_validate(document_of(BUNDLED))
    parts = split_name(name)
    if len(parts) >= _LEAST_OF_A_TABLE:
        _one_table(health_of(store, parse_table(name)), prices, as_json=as_json)
        return
    catalog = parts[0] if len(parts) == 1 else name
    lost = kept_now(connection.reference_store(index_table).lost_refs(catalog), utc_now())
    rows = rows_of(list(store.healths(catalog)), prices)
    if as_json:
        place = {"prices_region": prices.region, "prices_as_of": prices.as_of, "currency": prices.currency}
        tables, kept = [one.document() for one in rows], [lost_document(one) for one in lost]
        print_json({"catalog": catalog, **place, "tables": tables, "lost_refs": kept})
    else:
        print_healths(catalog, rows, prices, most)
        for one in lost[:most]:
            Console(highlight=False).print(Whole(summary_of(one)), crop=False)


def _one_table(health: TableHealth, prices: StoragePrices, *, as_json: bool) -> None:
    row = HealthRow.of(health, prices)
    if as_json:
        place = {"prices_region": prices.region, "prices_as_of": prices.as_of, "currency": prices.currency}
        print_json({**place, **row.document(), **history_document(health)})
        return
    saved = "" if health.expirable is None else f"; an expiry saves {_between(row)}"
    print_health(health, f"{row.cost:,.2f} {prices.currency} a month{saved}")


def rows_of(healths: Sequence[TableHealth], prices: StoragePrices) -> list[HealthRow]:
    """Return the rows, the worst table first."""
    rows = [HealthRow.of(one, prices) for one in healths]
    return sorted(rows, key=lambda one: (*(-each for each in one.badness), str(one.health.identifier)))


def print_healths(catalog: str, rows: Sequence[HealthRow], prices: StoragePrices, most: int) -> None:
    """Print the worst tables, and what could not be read."""
    console = Console(highlight=False)
    if not rows:
        console.print(
            f"Nothing is known of the tables of {plain(catalog)} yet: their health is read after the first pass of the "
            "reference index, which a purge in the catalog starts.",
            soft_wrap=True,
        )
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
    unread = [row.health for row in rows if row.health.problem is not None]
    for health in unread[:most]:
        text = f"{plain(str(health.identifier))} could not be read: {plain(health.problem or '')}"
        console.print(Whole(text), crop=False)
    total = sum(row.cost for row in rows)
    console.print(
        f"\n{counted(len(rows), 'table')}, {total:,.2f} {prices.currency} a month for the files of their current "
        f"snapshots in S3 Standard; prices of {prices.region}, {prices.as_of}.",
        soft_wrap=True,
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
