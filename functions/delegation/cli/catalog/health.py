"""`delegation health`: the tables of a catalog that need maintenance most, and what each costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from rich.console import RenderableType

from delegation.cli.calls import Call, argument, command, defaulted
from delegation.cli.catalog.references import document_of as lost_document
from delegation.cli.catalog.references import kept_now, summary_of
from delegation.cli.connection import Connection
from delegation.cli.deployment.costs import BUNDLED, document_of, place_of
from delegation.cli.errors import CommandError
from delegation.cli.screens import LabelledLines, Rows, between_text, plain, size_text
from delegation.identifiers import TableIdentifier, split_name
from delegation.references.model import LostRefs
from delegation.removal.choice import Prices
from delegation.timestamps import isoformat, utc_now
from delegation.upkeep.health.model import LastRun, PastRun, TableHealth
from polaris_common.errors import counted, printable

if TYPE_CHECKING:
    from delegation.upkeep.health.store import HealthStore

GIB: Final = 1024**3
"""S3 bills GB-months of 2³⁰ bytes (Amazon S3 pricing)."""
_LEAST_OF_A_TABLE: Final = 3
"""Parts of a table's name: catalog, namespace, table."""


_MEASURED: Final = {
    "metadata_location": "metadata_location",
    "snapshots": "snapshots",
    "refs": "refs",
    "expirable_snapshots": "expirable",
    **{name: name for name in ("files", "bytes", "small_files", "small_bytes", "oversized_files", "oversized_bytes")},
    **{name: name for name in ("delete_files", "deletion_vectors", "manifests", "manifest_bytes", "metadata_bytes")},
}
"""Members of the document, in its order, with the attributes of a health."""


class StoragePrices(Prices):
    """`prices.json` with the price of a GB-month of S3 Standard."""

    s3_gb_month: float


@dataclass(frozen=True, slots=True)
class HealthRow:
    """A table's health with the monthly cost of its live files, and the least and most that an expiry would save."""

    health: TableHealth
    cost: float
    saves_least: float
    saves_most: float | None

    @classmethod
    def of(cls, health: TableHealth, prices: StoragePrices) -> "HealthRow":
        price, freed = prices.s3_gb_month / GIB, health.freed
        most = None if freed.upper is None else freed.upper * price
        return cls(health, health.bytes * price, freed.lower * price, most)

    @property
    def badness(self) -> tuple[float, int, int, int]:
        """The sort key of tables: the money that maintenance saves, then what it would tidy up."""
        health = self.health
        saves = self.saves_least if self.saves_most is None else self.saves_most
        return saves, health.small_files, health.delete_files + health.deletion_vectors, health.expirable or 0

    def document(self) -> dict[str, Any]:
        health = self.health
        return {
            "table": str(health.identifier),
            "namespace": list(health.identifier.namespace),
            "name": health.identifier.name,
            "as_of": isoformat(health.as_of),
            **{name: getattr(health, attribute) for name, attribute in _MEASURED.items()},
            "freed_bytes": {"at_least": health.freed.lower, "at_most": health.freed.upper},
            "cost_month": round(self.cost, 4),
            "saved_month": {
                "at_least": round(self.saves_least, 4),
                "at_most": None if self.saves_most is None else round(self.saves_most, 4),
            },
            "problem": health.problem,
            "protected": health.protection,
            "set_aside": [
                {
                    "work": key,
                    "error": aside.error,
                    "since": isoformat(aside.since),
                    "failures": aside.failures,
                    "next_try": isoformat(aside.next_try),
                }
                for key, aside in sorted(health.asides.items())
            ],
            "runs": [_run_document(run) for run in health.runs.values()],
        }


def _begun(run: LastRun | PastRun) -> dict[str, Any]:
    return {
        "task_type": run.task_type,
        "task_id": run.task_id,
        "policy": run.policy,
        "began": isoformat(run.began),
    }


def _run_document(run: LastRun) -> dict[str, Any]:
    return {
        **_begun(run),
        "ended": None if run.ended is None else isoformat(run.ended),
        "outcome": run.outcome,
        "failures": run.failures,
        **({"waiting_plan": run.waiting} if run.waiting else {}),
    }


def rows_of(healths: Sequence[TableHealth], prices: StoragePrices) -> list[HealthRow]:
    rows = [HealthRow.of(health, prices) for health in healths]
    return sorted(rows, key=lambda row: (*(-each for each in row.badness), str(row.health.identifier)))


def storage_prices() -> StoragePrices:
    return StoragePrices.model_validate(document_of(BUNDLED))


def named(name: str) -> str | TableIdentifier:
    """Return the catalog or the table of a name. Raises CommandError (NAME_INVALID) if it is neither."""
    parts = split_name(name)
    if len(parts) < _LEAST_OF_A_TABLE:
        return parts[0] if len(parts) == 1 else name
    try:
        return TableIdentifier(parts[0], tuple(parts[1:-1]), parts[-1])
    except ValueError as error:
        raise CommandError(
            f"{printable(name)} is not the name of a table: {error}",
            "Write CATALOG or CATALOG.NAMESPACE.TABLE.",
            code="NAME_INVALID",
        ) from None


def health_of(store: "HealthStore", identifier: TableIdentifier) -> TableHealth:
    """Return what is stored of a table. Raises CommandError if nothing is, and the store's errors."""
    health = store.health(identifier)
    if health is None:
        raise CommandError(
            f"the health of {identifier} is not known",
            "Check the name. The health of a table is known once a pass of the reference index has read the table.",
            code="HEALTH_UNKNOWN",
        )
    return health


def history_document(health: TableHealth) -> dict[str, Any]:
    """Return the upkeep of one table as JSON: the runs that have not ended, and those that have."""
    return {
        "under_way": [_begun(run) for run in health.runs.values() if run.ended is None],
        "waiting_plans": [run.waiting for run in health.runs.values() if run.waiting],
        "past": [
            {
                **_begun(run),
                "task_id": run.task_id or None,
                "ended": isoformat(run.ended),
                "outcome": run.outcome,
                "snapshots_removed": run.snapshots,
                "files_deleted": run.files,
                "bytes_deleted": run.bytes,
            }
            for run in health.past
        ],
    }


def catalog_document(
    catalog: str, rows: Sequence[HealthRow], lost: Sequence[LostRefs], prices: StoragePrices
) -> dict[str, Any]:
    """Return the health of a catalog's tables, in the order of `rows`, with the lost refs that are kept."""
    tables = [row.document() for row in rows]
    return {
        "catalog": catalog,
        **place_of(prices),
        "tables": tables,
        "lost_refs": [lost_document(refs) for refs in lost],
    }


def table_document(health: TableHealth, prices: StoragePrices) -> dict[str, Any]:
    """Return the health of one table with its upkeep: the runs that have not ended, and those that have."""
    return {**place_of(prices), **HealthRow.of(health, prices).document(), **history_document(health)}


def upkeep_of(connection: Connection, name: str) -> Mapping[str, Any]:
    """Return what `delegation health NAME --json` prints. Raises CommandError and the errors of the stores."""
    wanted, prices = named(name), storage_prices()
    store = connection.health_store(None)
    if isinstance(wanted, TableIdentifier):
        return table_document(health_of(store, wanted), prices)
    lost = kept_now(connection.reference_store(None).lost_refs(wanted), utc_now())
    return catalog_document(wanted, rows_of(list(store.healths(wanted)), prices), lost, prices)


def _minute(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%MZ")


def health_screens(health: TableHealth, costs: str) -> Iterator[RenderableType]:
    expirable = "no rule" if health.expirable is None else f"{health.expirable:,} expirable"
    lines = [
        ("Table", plain(str(health.identifier))),
        ("As of", isoformat(health.as_of)),
        ("Files", f"{health.files:,}, {size_text(health.bytes)}; {health.small_files:,} small"),
        (
            "Deletes",
            f"{counted(health.delete_files, 'delete file')}, {counted(health.deletion_vectors, 'deletion vector')}",
        ),
        ("Snapshots", f"{health.snapshots:,}, {expirable}"),
        ("Costs", costs),
    ]
    if health.problem is not None:
        lines.append(("Problem", plain(health.problem)))
    protection = health.protection
    if protection is not None:
        lines.append(("Protected", f"{protection}: no policy expires the table's snapshots"))
    for key, aside in sorted(health.asides.items()):
        lines.append(("Set aside", f"{plain(key)} until {aside.next_try:%Y-%m-%d %H:%M}Z: {plain(aside.error)}"))
    # A table has one task of each kind.
    tasks = {run.task_type: run.task_id for run in reversed(health.past) if run.task_id}
    tasks |= {run.task_type: run.task_id for run in health.runs.values() if run.task_id}
    lines.extend((f"Task of {task_type}", task_id) for task_type, task_id in sorted(tasks.items()))
    yield LabelledLines(lines)
    for plan in (run.waiting for run in health.runs.values() if run.waiting):
        yield f"A plan waits for approval: delegation orphans approve {plain(plan)}"
    under_way = [run for run in health.runs.values() if run.ended is None]
    if not under_way and not health.past:
        yield "\nNo policy has run on this table yet."
        return
    numbers = ("snapshots", "files", "bytes")
    table = Rows("began", "what", "outcome", *numbers, "policy", right=numbers)
    for run in under_way:
        table.add(_minute(run.began), run.task_type, "under way", "", "", "", plain(run.policy))
    for past in health.past:
        table.add(
            _minute(past.began),
            past.task_type,
            past.outcome,
            "–" if past.snapshots is None else f"{past.snapshots:,}",
            f"{past.files:,}",
            size_text(past.bytes),
            plain(past.policy),
        )
    yield ""
    yield table


MOST_SHOWN: Final = 20


@command(takes="index_table stack")
def health_command(
    call: Call,
    name: Annotated[str, argument("CATALOG|TABLE", "A catalog, or CATALOG.NAMESPACE.TABLE.")],
    *,
    most: int = defaulted("--limit", "The number of tables to print; --json prints all.", MOST_SHOWN, min=1),
) -> None:
    """List the tables that most need maintenance, with their monthly storage cost.

    For one table, also show its last maintenance runs.
    """
    store, prices, wanted = call.connection.health_store(call.index_table), storage_prices(), named(name)
    if isinstance(wanted, TableIdentifier):
        health = health_of(store, wanted)
        row = HealthRow.of(health, prices)
        saved = "" if health.expirable is None else f"; an expiry saves {_between(row)}"
        costs = f"{row.cost:,.2f} {prices.currency} a month{saved}"
        call.output.result(table_document(health, prices), health_screens(health, costs))
        return
    lost = kept_now(call.connection.reference_store(call.index_table).lost_refs(wanted), utc_now())
    rows = rows_of(list(store.healths(wanted)), prices)
    screens = (healths_screens(wanted, rows, prices, most), map(summary_of, lost[:most]))
    call.output.result(catalog_document(wanted, rows, lost, prices), *screens)


def healths_screens(
    catalog: str, rows: Sequence[HealthRow], prices: StoragePrices, most: int
) -> Iterator[RenderableType]:
    if not rows:
        yield (
            f"The health of tables in {plain(catalog)} is not known yet. The first pass of the reference index reads "
            "the tables. A purge in the catalog starts this pass."
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
    yield table
    if len(rows) > most:
        yield f"{counted(len(rows) - most, 'more table')}; --limit and --json list them."
    healths = [row.health for row in rows]
    for texts in zip(*map(_states, healths), strict=True):
        yield from [text for text in texts if text][:most]
    total = sum(row.cost for row in rows)
    yield (
        f"\n{counted(len(rows), 'table')}, {total:,.2f} {prices.currency} a month for the files of their current "
        f"snapshots in S3 Standard; prices of {prices.region}, {prices.as_of}. As of {_ages(healths)}."
    )


def _ages(healths: Sequence[TableHealth]) -> str:
    oldest, newest = (
        f"{pick(health.as_of for health in healths).astimezone():%Y-%m-%d %H:%M:%S %Z}" for pick in (min, max)
    )
    return newest if oldest == newest else f"{newest}; the oldest value is from {oldest}"


def _states(health: TableHealth) -> tuple[str, ...]:
    """Return what holds a table back, in the order in which such lines are printed; "" for each that does not."""
    name, protection = plain(str(health.identifier)), health.protection
    plans = [run.waiting for run in health.runs.values() if run.waiting]
    reasons = "; ".join(plain(aside.error) for _, aside in sorted(health.asides.items()))
    return (
        f"{name} could not be read: {plain(health.problem)}" if health.problem is not None else "",
        f"{name} is set aside from upkeep: {reasons}" if reasons else "",
        f"{name} is protected ({protection}): no policy expires its snapshots" if protection else "",
        "\n".join(f"A plan of {name} waits for approval: delegation orphans approve {plain(plan)}" for plan in plans),
    )


def _with_size(files: int | None, size: int | None) -> str:
    """Return a number of files with their bytes; a former release did not store every value."""
    if files is None:
        return "–"
    return f"{files:,} ({size_text(size)})" if files and size is not None else f"{files:,}"


def _between(row: HealthRow) -> str:
    if row.health.expirable is None:
        return "–"
    return between_text(row.saves_least, row.saves_most, "{:,.2f}".format)
