"""`delegation policy simulate`: what the service would run when, what that costs and what it frees; nothing is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rich.console import RenderableType

from delegation.cli.calls import Call
from delegation.cli.deployment.limits import known_limits
from delegation.cli.screens import Rows
from delegation.items import each_item, reason_of
from delegation.polaris.policies import PolicyClient
from delegation.timestamps import isoformat, utc_now
from delegation.upkeep.execution.asked import EXPIRY, AskedExpiryRule, CatalogPolicies, rule_of
from delegation.upkeep.execution.expiries import can_be_decided, is_outdated, need_of, with_need
from delegation.upkeep.execution.passes import runs_of
from delegation.upkeep.health.model import TableHealth
from delegation.upkeep.health.reading import document_of
from delegation.upkeep.health.store import HealthStore
from delegation.upkeep.policy_file import DeployedPolicies, PolicySource, StoredPolicyFile
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.schedule import MICROS, Simulation, UpkeepNeed, simulate
from polaris_common.errors import ErrorScope, counted, printable

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulation with its healths, tables whose needs are unknown, and each reason why policies are unreadable."""

    simulation: Simulation
    healths: dict[str, TableHealth]
    unknown: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    def document(self, need: UpkeepNeed) -> dict[str, Any]:
        health = self.healths[str(need.table)]
        return {
            "table": str(need.table),
            "task_type": need.task_type,
            "policy": need.policy,
            "expirable_snapshots": health.expirable,
            "freed_bytes": {"at_least": health.freed.lower, "at_most": health.freed.upper},
            "files": need.cost.files,
            "cost": round(need.cost.micros / MICROS, 6),
            "saved_month": round(need.score / MICROS, 6),
        }


def show_simulation(
    call: Call,
    catalog: str,
    *,
    days: int,
    most: int,
    policy_file: Path | None,
    index_table: str | None,
    cdk: Path | None,
    stage_file: Path | None,
) -> None:
    connection = call.connection
    known = known_limits(connection, cdk, stage_file)
    known.require_file_for(catalog, policy_file)
    settings = UpkeepSettings.from_properties(known.properties)
    store = connection.health_store(index_table)
    now = utc_now()
    file = None if policy_file is None else StoredPolicyFile(policy_file)
    policies = DeployedPolicies(PolicyClient(connection.catalog().requests), file)
    result = simulated(store, policies, catalog, limits=known.limits, settings=settings, now=now, days=days)
    runs = [{"begins": isoformat(run.begins), **result.document(run.need)} for run in result.simulation.runs]
    document = {
        "catalog": catalog,
        "days": days,
        "limits_from": known.source,
        "currency": "USD",
        "runs": runs,
        "waiting": [{"why": why.value, **result.document(need)} for need, why in result.simulation.waiting],
        "unknown": list(result.unknown),
        "unreadable": list(result.unreadable),
    }
    call.output.result(document, _screens(result, catalog, days, most, known.note))


def simulated(
    store: HealthStore,
    policies: PolicySource,
    catalog: str,
    *,
    limits: UpkeepLimits,
    settings: UpkeepSettings,
    now: datetime,
    days: int,
) -> Simulated:
    """Return what the service would do; a table whose stored data does not show its need is only named."""
    reader = CatalogPolicies(lambda target: policies.applicable(target, EXPIRY.value))
    healths: list[TableHealth] = []
    asked: dict[str, AskedExpiryRule] = {}
    unknown: list[str] = []
    unreadable: dict[str, None] = {}

    def computed(health: TableHealth) -> tuple[TableHealth | None, AskedExpiryRule | None]:
        rule = rule_of(health.identifier, reader.applying(health.identifier, health.own), health.properties, limits)
        return _computed(store, health, rule.asked, now), rule.asked

    for attempt in each_item(
        store.healths(catalog),
        computed,
        name="policies.simulated",
        stops=ErrorScope.CATALOG,
        shown=lambda health: str(health.identifier),
        most_wasted=timedelta.max,
    ):
        if attempt.error is not None:
            unreadable[reason_of(attempt.error)] = None
        health, rule = attempt.result or (None, None)
        if health is None or not can_be_decided(health):
            unknown.append(str(attempt.item.identifier))
            continue
        healths.append(health)
        if rule is not None:
            asked[str(health.identifier)] = rule
    needs = [need_of(health, asked[str(health.identifier)]) for health in healths if str(health.identifier) in asked]
    simulation = simulate(
        [need for need in needs if need is not None],
        settings.terms_of({rule.policy for rule in asked.values()}),
        list(runs_of(healths)),
        now,
        until=now + timedelta(days=days),
        every=settings.interval,
        at_once=settings.at_once,
    )
    return Simulated(
        simulation, {str(health.identifier): health for health in healths}, tuple(sorted(unknown)), tuple(unreadable)
    )


def _computed(
    store: HealthStore, health: TableHealth, asked: AskedExpiryRule | None, now: datetime
) -> TableHealth | None:
    """Return the health with its need by the present rule, None if that requires loading the table."""
    if asked is None or not is_outdated(health, asked, now):
        return health
    state = store.read_state(health.identifier)
    history = state.history_of(health)
    return None if history is None else with_need(health, document_of(history), state, asked, now)


def _screens(result: Simulated, catalog: str, days: int, most: int, note: str) -> Iterator[RenderableType]:
    simulation = result.simulation
    numbers = ("policy", "snapshots", "files", "frees", "costs")
    lists = {
        "begins": [(run.need, f"{run.begins:%Y-%m-%d %H:%M}Z") for run in simulation.runs],
        "waits because": [(need, why.value) for need, why in simulation.waiting],
    }
    for column, listed in lists.items():
        rows = Rows("table", column, *numbers)
        for need, text in listed[:most]:
            rows.add(str(need.table), text, need.policy, *_amounts(result, need))
        if listed:
            yield rows
    hidden = sum(max(len(listed) - most, 0) for listed in lists.values())
    if hidden:
        yield f"{hidden:,} more; --limit and --json list them."
    if result.unknown:
        yield f"Not simulated: {counted(len(result.unknown), 'table')} that could not be read or are too large."
    for reason in result.unreadable[:most]:
        yield f"Unreadable policies start no runs: {printable(reason, 800)}"
    cost = sum(run.need.cost.micros for run in simulation.runs) / MICROS
    saved = sum(run.need.score for run in simulation.runs) / MICROS
    yield (
        f"{catalog}: {counted(len(simulation.runs), 'run')} within {counted(days, 'day')} for about {cost:,.4f} USD, "
        f"which save at most {saved:,.2f} USD of storage a month. Nothing was run."
    )
    yield note


def _amounts(result: Simulated, need: UpkeepNeed) -> Sequence[str]:
    health = result.healths[str(need.table)]
    freed = health.freed
    most = "?" if freed.upper is None else f"{freed.upper / _MIB:,.0f}"
    least = f"{freed.lower / _MIB:,.0f}"
    between = most if least == most else f"{least}–{most}"
    return (f"{health.expirable or 0:,}", f"{need.cost.files:,}", f"{between} MiB", f"{need.cost.micros / MICROS:,.4f}")
