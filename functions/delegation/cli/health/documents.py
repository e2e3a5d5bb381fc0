"""The health of tables as JSON has it, for the command and for the status page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delegation.cli.costs.commands import BUNDLED, document_of
from delegation.cli.errors import CommandError
from delegation.cli.references.lost import document_of as lost_document
from delegation.cli.references.lost import kept_now
from delegation.identifiers import TableIdentifier, split_name
from delegation.items import SetAside
from delegation.references.lost import LostRefs
from delegation.timestamps import isoformat, utc_now
from delegation.upkeep.health.model import LastRun, TableHealth
from delegation.upkeep.health.past import PastRun
from delegation.upkeep.health.store import HealthStore
from delegation.worksets.forecast import Prices
from polaris_common.errors import printable

if TYPE_CHECKING:
    from delegation.cli.connection import Connection

GIB: Final = 1024**3
"""S3 bills GB-months of 2³⁰ bytes (Amazon S3 pricing)."""
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
            "table": str(health.identifier),
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
            "protected": health.protection,
            "set_aside": [_aside_document(key, one) for key, one in sorted(health.asides.items())],
            "runs": [_run_document(one) for one in health.runs.values()],
        }


def _aside_document(key: str, aside: SetAside) -> dict[str, Any]:
    return {
        "work": key,
        "error": aside.error,
        "since": isoformat(aside.since),
        "failures": aside.failures,
        "next_try": isoformat(aside.next_try),
    }


def _run_document(run: LastRun) -> dict[str, Any]:
    return {
        "task_type": run.task_type,
        "kind": run.task_type,
        "task_id": run.task_id,
        "policy": run.policy,
        "began": isoformat(run.began),
        "ended": None if run.ended is None else isoformat(run.ended),
        "outcome": run.outcome,
        "failures": run.failures,
        **({"waiting_plan": run.waiting} if run.waiting else {}),
    }


def rows_of(healths: Sequence[TableHealth], prices: StoragePrices) -> list[HealthRow]:
    """Return the rows, the worst table first."""
    rows = [HealthRow.of(one, prices) for one in healths]
    return sorted(rows, key=lambda one: (*(-each for each in one.badness), str(one.health.identifier)))


def storage_prices() -> StoragePrices:
    """Return the prices that the release has."""
    return StoragePrices.model_validate(document_of(BUNDLED))


def named(name: str) -> str | TableIdentifier:
    """Return the catalog or the table of a name; raise CommandError with the code NAME_INVALID if it is neither."""
    parts = split_name(name)
    if len(parts) < _LEAST_OF_A_TABLE:
        return parts[0] if len(parts) == 1 else name
    try:
        return TableIdentifier(parts[0], tuple(parts[1:-1]), parts[-1])
    except ValueError as error:
        raise CommandError(
            f"{printable(name)} names no table: {error}",
            "Write CATALOG or CATALOG.NAMESPACE.TABLE.",
            code="NAME_INVALID",
        ) from None


def health_of(store: HealthStore, identifier: TableIdentifier) -> TableHealth:
    """Return what is stored of a table; raise CommandError if nothing is, and the store's errors."""
    found = store.health(identifier)
    if found is None:
        raise CommandError(
            f"nothing is known of the health of {identifier}",
            "Check the name; a table is read after the first pass of the reference index that sees it.",
            code="HEALTH_UNKNOWN",
        )
    return found


def history_document(health: TableHealth) -> dict[str, Any]:
    """Return the upkeep of one table as JSON has it: the runs that have not ended, and those that have."""
    return {
        "under_way": [
            {
                "task_type": one.task_type,
                "kind": one.task_type,
                "task_id": one.task_id,
                "policy": one.policy,
                "began": isoformat(one.began),
            }
            for one in health.runs.values()
            if one.ended is None
        ],
        "waiting_plans": [one.waiting for one in health.runs.values() if one.waiting],
        "past": [_past_document(one) for one in health.past],
    }


def _past_document(run: PastRun) -> dict[str, Any]:
    return {
        "task_type": run.task_type,
        "kind": run.task_type,
        "task_id": run.task_id or None,
        "policy": run.policy,
        "began": isoformat(run.began),
        "ended": isoformat(run.ended),
        "outcome": run.outcome,
        "snapshots_removed": run.snapshots,
        "files_deleted": run.files,
        "bytes_deleted": run.bytes,
    }


def _place(prices: StoragePrices) -> dict[str, Any]:
    return {"prices_region": prices.region, "prices_as_of": prices.as_of, "currency": prices.currency}


def catalog_document(
    catalog: str, rows: Sequence[HealthRow], lost: Sequence[LostRefs], prices: StoragePrices
) -> dict[str, Any]:
    """Return the health of a catalog's tables, in the order of `rows`, with the refs that are kept for a person."""
    tables = [one.document() for one in rows]
    return {"catalog": catalog, **_place(prices), "tables": tables, "lost_refs": [lost_document(one) for one in lost]}


def table_document(health: TableHealth, prices: StoragePrices) -> dict[str, Any]:
    """Return the health of one table with its upkeep: the runs that have not ended, and those that have."""
    return {**_place(prices), **HealthRow.of(health, prices).document(), **history_document(health)}


def upkeep_of(connection: "Connection", name: str) -> Mapping[str, Any]:
    """Return what `delegation health NAME --json` prints; raise CommandError and the errors of the stores."""
    wanted, prices = named(name), storage_prices()
    store = connection.health_store(None)
    if isinstance(wanted, TableIdentifier):
        return table_document(health_of(store, wanted), prices)
    lost = kept_now(connection.reference_store(None).lost_refs(wanted), utc_now())
    return catalog_document(wanted, rows_of(list(store.healths(wanted)), prices), lost, prices)
