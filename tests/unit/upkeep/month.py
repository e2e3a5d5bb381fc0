"""A month of upkeep on a simulated clock: what the choice and the admission make of many tables and a storm of drops.

`make upkeep-month` prints the table. Simulated are the writers, how long a run takes (by its files) and a drop; needs,
estimates of money, choice and admission are the service's own functions.
"""

import argparse
import logging
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.removal.details import table_traits
from delegation.removal.expiry.task_type import TASK_TYPE, UPKEEP
from delegation.tasks.life.lanes import Caps, Lane, Queued, Running, Traits, admitted
from delegation.upkeep.execution.asked import AskedExpiryRule, ExpiryRule
from delegation.upkeep.execution.expiries import need_of
from delegation.upkeep.health.model import FreedBytes, TableHealth
from delegation.upkeep.schedule import MICROS, RUNS_AT_ONCE, Budget, PolicyTerms, UpkeepNeed, UpkeepRun, choose

BEGIN: Final = datetime(2026, 11, 1, tzinfo=UTC)
PASS: Final = timedelta(minutes=15)
MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
POLICY: Final = "lake.gov.keep-a-week"
ASKED: Final = AskedExpiryRule(ExpiryRule(1, 7 * 86_400_000, 2**62, 1, 0, 0, dry_run=False), POLICY, "1")
_PAYLOAD: Final = (
    '{"operation_parameters": {"table_identity": {"catalog_name": "lake"}, "metadata": {"location": "s3://lake/t"}%s}}'
)
EXPIRIES: Final = Lane.of(TASK_TYPE, table_traits(_PAYLOAD % ', "policy": "p"', UPKEEP))
DROPS: Final = Lane.of("TABLE_PURGE", table_traits(_PAYLOAD % "", Traits()))
_DROP_TAKES: Final = timedelta(minutes=2)
_RUN_AT_LEAST: Final = timedelta(minutes=2)
_FILES_A_MINUTE: Final = 20_000


@dataclass(frozen=True)
class Month:
    """What is simulated: tables, days, drops that arrive at once in the middle, and the caps and the budget."""

    tables: int = 10_000
    days: int = 30
    drops: int = 5_000
    upkeep: bool = True
    everything: int | None = 100
    at_once: int = RUNS_AT_ONCE
    budget: Budget = field(default_factory=Budget)
    seed: int = 0


@dataclass
class Outcome:
    """What happened: runs, what they did, how long needs and drops waited."""

    runs: int = 0
    files: int = 0
    bytes: int = 0
    micros: int = 0
    tables_run: set[TableIdentifier] = field(default_factory=set)
    longest_need: timedelta = timedelta(0)
    most_at_once: int = 0
    most_in_a_day: dict[str, int] = field(default_factory=dict)
    drops: list[timedelta] = field(default_factory=list)


@dataclass
class _Table:
    """A table that its writers commit to all day; a commit removes as much as it adds."""

    identifier: TableIdentifier
    commits_a_day: float
    commit_bytes: int
    kept_since: datetime
    since: datetime | None = None

    def expirable(self, now: datetime) -> int:
        """Return how many snapshots are older than the policy's week."""
        return max(int((now - timedelta(days=7) - self.kept_since) / DAY * self.commits_a_day), 0)

    def need(self, now: datetime) -> UpkeepNeed | None:
        found = self.expirable(now)
        if not found:
            return None
        self.since = self.since or now
        size = found * self.commit_bytes
        health = TableHealth(
            self.identifier, "uuid", "s3://lake/m.json", now, files=1_000, bytes=32_000_000_000, manifests=10,
            expirable=found, freed=FreedBytes(size, size), rule=ASKED.version, since=self.since,
        )  # fmt: skip
        return need_of(health, ASKED)


def simulate(month: Month) -> Outcome:
    """Simulate; the same month has the same outcome."""
    chance, found = random.Random(month.seed), Outcome()
    tables = {
        one.identifier: one
        for one in (
            _Table(
                TableIdentifier("lake", ("sales",), f"t{number}"),
                chance.choice([0.2, 1, 1, 4, 24]),
                chance.choice([10**5, 10**7, 10**8]),
                BEGIN - timedelta(days=chance.uniform(7, 30)),
            )
            for number in range(month.tables if month.upkeep else 0)
        )
    }
    terms = {POLICY: PolicyTerms(budget=month.budget)}
    needs: dict[TableIdentifier, UpkeepNeed] = {}
    runs: list[UpkeepRun] = []
    queue = _Queue(Caps(everything=month.everything))
    # A minute after a pass, so that runs of upkeep are under way.
    storm: datetime | None = BEGIN + month.days * DAY / 2 + MINUTE
    now, end = BEGIN, BEGIN + month.days * DAY
    while now < end or queue.has_drops:
        if (now - BEGIN) % DAY == timedelta(0):
            needs = {name: one for name, table in tables.items() if (one := table.need(now)) is not None}
            runs = [run for run in runs if run.ended is None or now - run.began < 2 * DAY]
        if storm is not None and now >= storm:
            storm = None
            queue.add(((f"drop{number}", DROPS, _DROP_TAKES) for number in range(month.drops)), now)
        if (now - BEGIN) % PASS == timedelta(0) and now < end:
            for number, run in enumerate(runs):
                if run.ended is None and run.table.name in queue.ended:
                    runs[number] = replace(run, ended=queue.ended[run.table.name])
            under_way = sum(run.ended is None for run in runs)
            for need in choose(needs.values(), terms, runs, now, at_once=month.at_once).start:
                del needs[need.table]
                table, run = tables[need.table], UpkeepRun(need.table, TASK_TYPE, POLICY, now, need.cost)
                found.longest_need = max(found.longest_need, now - (table.since or now))
                table.kept_since, table.since = now - timedelta(days=7), None
                runs.append(run)
                queue.ended.pop(need.table.name, None)
                takes = max(_RUN_AT_LEAST, MINUTE * (need.cost.files // _FILES_A_MINUTE))
                queue.add([(need.table.name, EXPIRIES, takes)], now)
                _count(found, need, now)
                under_way += 1
            found.most_at_once = max(found.most_at_once, under_way)
        queue.pass_minute(now)
        now += MINUTE if queue.is_busy else PASS - (now - BEGIN) % PASS
    found.drops = sorted(queue.drops)
    return found


class _Queue:
    """The tasks that wait for their admission and those that run, minute by minute."""

    def __init__(self, limits: Caps) -> None:
        self._limits = limits
        self._waiting: dict[str, tuple[Queued, timedelta]] = {}
        self._running: dict[str, tuple[Running, datetime]] = {}
        self.ended: dict[str, datetime] = {}
        self.drops: list[timedelta] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def has_drops(self) -> bool:
        return any(one.lane == DROPS for one, _ in (*self._waiting.values(), *self._running.values()))

    def add(self, tasks: object, now: datetime) -> None:
        for task_id, lane, takes in tasks:  # type: ignore[attr-defined]
            self._waiting[task_id] = Queued(task_id, lane, now), takes

    def pass_minute(self, now: datetime) -> None:
        """End what is over, and start what the admission lets start."""
        for task_id, (_, until) in list(self._running.items()):
            if until <= now:
                del self._running[task_id]
                self.ended[task_id] = now
        if not self._waiting:
            return
        running: Sequence[Running] = [one for one, _ in self._running.values()]
        for one in admitted([queued for queued, _ in self._waiting.values()], running, self._limits):
            _, takes = self._waiting.pop(one.task_id)
            self._running[one.task_id] = Running(one.task_id, one.lane, is_held=True), now + takes
            if one.lane == DROPS:
                self.drops.append(now - one.since)


def _count(found: Outcome, need: UpkeepNeed, now: datetime) -> None:
    found.runs += 1
    found.files += need.cost.files
    found.bytes += need.cost.bytes
    found.micros += need.cost.micros
    found.tables_run.add(need.table)
    day = f"{now:%Y-%m-%d}"
    found.most_in_a_day[day] = found.most_in_a_day.get(day, 0) + need.cost.bytes


def table_of(month: Month, found: Outcome, alone: Outcome, seconds: float) -> str:
    """Return the outcome as lines for people; `alone` is the same storm without upkeep."""

    def waits(one: Outcome) -> str:
        if not one.drops:
            return "none"
        middle, last = one.drops[len(one.drops) // 2], one.drops[-1]
        return f"{len(one.drops):,} started, median {middle}, longest {last}"

    rows = {
        "tables, days": f"{month.tables:,}, {month.days}",
        "runs": f"{found.runs:,} of {len(found.tables_run):,} tables, at most {found.most_at_once} at once",
        "files and bytes deleted": f"{found.files:,}, {found.bytes / 2**40:,.1f} TiB",
        "money for the runs": f"{found.micros / MICROS:,.2f} USD",
        "longest wait of a need": str(found.longest_need),
        "drops beside upkeep": waits(found),
        "drops without upkeep": waits(alone),
        "simulated in": f"{seconds:.0f} s of CPU time",
    }
    return "\n".join(f"{name:26}{value}" for name, value in rows.items())


def beside_bad(given: argparse.Namespace) -> None:
    """Simulate months of real passes with bad tables and without them, and exit with 1 if good tables wait longer."""
    from tests.unit.upkeep.bad_month import PassedMonth, compare

    logging.disable(logging.CRITICAL)
    tables, days = min(given.tables, 200), min(given.days, 10)
    found = []
    for seed in range(given.seeds):
        bad = max(tables * given.bad // 100, 1)
        text, is_short = compare(PassedMonth(tables, days, max(tables // 100, 1), bad, seed))
        print(text, flush=True)  # noqa: T201
        found.append(is_short)
    sys.exit(not all(found))


def main() -> None:
    """Simulate a month and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("tables", "days", "drops"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Month(), name))
    parser.add_argument("--at-once", type=int, default=RUNS_AT_ONCE, help="delegation.upkeep.at-once")
    parser.add_argument("--seeds", type=int, default=2, help="months beside bad tables")
    parser.add_argument(
        "--bad", type=int, help="percent of bad tables of each kind; exits with 1 if good ones wait longer"
    )
    given = parser.parse_args()
    if given.bad is not None:
        beside_bad(given)
        return
    month = Month(given.tables, given.days, given.drops, at_once=given.at_once)
    began = time.process_time()
    found, alone = simulate(month), simulate(replace(month, upkeep=False))
    print(table_of(month, found, alone, time.process_time() - began))  # noqa: T201


if __name__ == "__main__":
    main()
