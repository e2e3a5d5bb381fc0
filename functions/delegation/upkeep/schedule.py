"""What runs next: needs, windows, budgets, and the choice. Pure functions with the clock passed in.

A window opens at a cron expression's times in a time zone and stays open for a length of real time: three hours from
01:00 end at 05:00 local time when clocks go forward, and at 03:00 when they go back.

Without a need there is no run, whatever the window. The greatest need is first. Runs that have waited for OVERDUE
precede all others of their length, longest first, so that none waits forever. Short runs precede long ones, which are
ordered by gain for their cost. A run that exceeds the rest of the day's budget waits for the next day, and smaller runs
may use the rest. So the first run of a day always fits, unless it exceeds the whole budget; then a person is asked to
raise it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from heapq import nlargest
from typing import Final

from delegation.cron import cron_times, zone_named
from delegation.identifiers import TableIdentifier
from delegation.upkeep.errors import ScheduleInvalid
from polaris_common.errors import printable

MICROS: Final = 1_000_000
"""In one unit of currency. Sums of whole numbers are exact in any order."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Files deleted or rewritten, their bytes, and the cost in millionths of a currency. None is negative."""

    files: int = 0
    bytes: int = 0
    micros: int = 0

    def __post_init__(self) -> None:
        """Refuse negative numbers, which would return what other runs used."""
        if min(self.files, self.bytes, self.micros) < 0:
            raise ValueError(f"an amount of work is negative: {self}")

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.files + other.files, self.bytes + other.bytes, self.micros + other.micros)

    def at_least(self, other: "Amount") -> "Amount":
        """Return the maximum of each number."""
        return Amount(max(self.files, other.files), max(self.bytes, other.bytes), max(self.micros, other.micros))


NOTHING: Final = Amount()


@dataclass(frozen=True, slots=True)
class Budget:
    """What one policy may use in a day, unlimited if None. Raises ScheduleInvalid for a number below 1."""

    files: int | None = None
    bytes: int | None = None
    micros: int | None = None

    def __post_init__(self) -> None:
        """Refuse a budget of zero: the policy would be on and never run."""
        for resource in fields(self):
            value = getattr(self, resource.name)
            if value is not None and value < 1:
                raise ScheduleInvalid(
                    f"the daily budget of {resource.name} is {value}. Set at least 1, or leave the budget out"
                )

    def allows(self, amount: Amount) -> bool:
        return all(
            most is None or used <= most
            for most, used in ((self.files, amount.files), (self.bytes, amount.bytes), (self.micros, amount.micros))
        )


UNLIMITED: Final = Budget()


LONGEST: Final = timedelta(days=7)
SHORTEST: Final = timedelta(minutes=1)
_LONGEST_CRON: Final = 100


def zone_of(name: str) -> tzinfo:
    """Return a time zone by name. Raises ScheduleInvalid."""
    try:
        return zone_named(name)
    except ValueError as error:
        raise ScheduleInvalid(str(error)) from None


def day_of(moment: datetime, zone: str) -> date:
    """Return the day of a budget: a moment's calendar day in a zone. Raises ScheduleInvalid."""
    return moment.astimezone(zone_of(zone)).date()


@dataclass(frozen=True, slots=True)
class Window:
    """Open for `lasts` after each time of `cron`, five fields in the zone. Raises ScheduleInvalid. Overlapping windows
    are open from the first opening to the last end."""

    cron: str
    lasts: timedelta
    zone: str = "UTC"

    def __post_init__(self) -> None:
        shown = printable(self.cron[:_LONGEST_CRON])
        if len(self.cron) > _LONGEST_CRON:
            raise ScheduleInvalid(f"the window {shown!r} has more than {_LONGEST_CRON} characters")
        if not SHORTEST <= self.lasts <= LONGEST:
            raise ScheduleInvalid(f"the window {shown!r} is open for {self.lasts}. Set from one minute to seven days")
        next(self.openings(datetime(2000, 1, 1, tzinfo=UTC)))

    def is_open(self, now: datetime) -> bool:
        return self.opened_at(now) is not None

    def opened_at(self, now: datetime) -> datetime | None:
        """Return the first opening that has not ended, in UTC; None while the window is closed."""
        opening = next(start for start in self.openings(now - self.lasts))
        return opening if opening <= now else None

    def opens_after(self, now: datetime) -> datetime:
        """Return the next opening after now, in UTC."""
        return next(self.openings(now))

    def openings(self, after: datetime) -> Iterator[datetime]:
        """Yield the openings after a moment, in UTC, each once and in order. Raises ScheduleInvalid."""
        zone = zone_of(self.zone)
        try:
            yield from cron_times(self.cron, zone, after)
        except ValueError as error:
            raise ScheduleInvalid(f"the window {printable(self.cron)!r}: {error}") from None


OVERDUE: Final = timedelta(days=7)
"""A run that has waited this long for a place or a budget precedes those with a greater need."""
RUNS_AT_ONCE: Final = 16
"""Upkeep runs that may be in progress or wait for admission at the same time, unless the caller sets another number."""
MOST_AT_ONCE: Final = 256
"""The largest number that a deployment may choose. A pass loads each table whose run it starts."""
_LARGE_TRIED: Final = 8
_KEPT_FREE: Final = 4
"""One in this many places is reserved for short runs."""


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """When and how much a policy may run; always if it has no window. `zone` defines the day of the budget."""

    window: Window | None = None
    budget: Budget = UNLIMITED
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class UpkeepNeed:
    """A table's need of one kind of upkeep: `score` (0 for none), since when, and what a run would use. `score` is in
    millionths of a currency a month that a run saves, comparable between kinds. `policy` requires the run. `not_before`
    is set after a failure. Long runs have `per_cost`, the score for one unit of currency: they come after the others,
    the highest first, and leave a quarter of the places free."""

    table: TableIdentifier
    task_type: str
    policy: str
    score: int
    cost: Amount
    since: datetime
    not_before: datetime | None = None
    per_cost: int | None = None


@dataclass(frozen=True, slots=True)
class UpkeepRun:
    """A started run: its reserved share of the budget and, after its end, what it used. The larger counts."""

    table: TableIdentifier
    task_type: str
    policy: str
    began: datetime
    reserved: Amount
    ended: datetime | None = None
    used: Amount = NOTHING

    @property
    def charged(self) -> Amount:
        """What the run takes from the budget of the day on which it started."""
        return self.reserved.at_least(self.used)


class Waits(StrEnum):
    """Why a run is not started now."""

    NO_NEED = "nothing to do"
    NO_TERMS = "its policy no longer exists"
    RUNS = "a run of the table is in progress"
    RAN_TODAY = "it has already run today"
    AFTER_FAILURE = "its last run failed, and the interval before the next run has not ended"
    OUTSIDE_WINDOW = "outside the policy's window"
    NEVER_FITS = "one run needs more than the daily budget"
    BUDGET_USED = "too little of the daily budget is left"
    NO_PLACE = "the maximum number of policy runs is in progress"


@dataclass(frozen=True, slots=True)
class Choice:
    """The needs that start, in order, and the waiting ones with their reason, in order."""

    start: tuple[UpkeepNeed, ...] = ()
    waiting: tuple[tuple[UpkeepNeed, Waits], ...] = field(default=())


def choose(
    needs: Iterable[UpkeepNeed],
    terms: Mapping[str, PolicyTerms],
    runs: Collection[UpkeepRun],
    now: datetime,
    *,
    at_once: int = RUNS_AT_ONCE,
) -> Choice:
    """Return which runs start now. `runs` are those in progress and all of the last two days, of all policies. They
    hold places, use the budget of their day, and exclude a second run of the table at the same time, or of the same
    kind on one budget day."""
    under_way = [run for run in runs if run.ended is None]
    busy = {run.table for run in under_way}
    used, ran = _of_today(terms, runs, now)
    open_now = {name: term.window is None or term.window.is_open(now) for name, term in terms.items()}
    places = at_once - len(under_way)
    started: list[UpkeepNeed] = []
    waiting: list[tuple[UpkeepNeed, Waits]] = []
    in_order = sorted(needs, key=lambda need: _order(need, now))
    for need in _large_first(in_order, terms, used, now):
        policy = terms.get(need.policy)
        waits = _not_now(need, now) or (Waits.NO_TERMS if policy is None else None)
        if waits is None and policy is not None:
            total = used.get(need.policy, NOTHING) + need.cost
            waits = next(
                (
                    why
                    for why, holds in (
                        (Waits.RUNS, need.table in busy),
                        (Waits.RAN_TODAY, (need.table, need.task_type) in ran.get(need.policy, ())),
                        (Waits.NEVER_FITS, not policy.budget.allows(need.cost)),
                        (Waits.OUTSIDE_WINDOW, not open_now[need.policy]),
                        (Waits.BUDGET_USED, not policy.budget.allows(total)),
                        (Waits.NO_PLACE, places <= (0 if need.per_cost is None else at_once // _KEPT_FREE)),
                    )
                    if holds
                ),
                None,
            )
            if waits is None:
                started.append(need)
                busy.add(need.table)
                used[need.policy] = total
                places -= 1
                continue
        waiting.append((need, waits or Waits.NO_TERMS))
    return Choice(tuple(started), tuple(waiting))


def _order(need: UpkeepNeed, now: datetime) -> tuple[object, ...]:
    """Return the sort key of a need: overdue needs by time, then by need, then by name for a stable order."""
    is_overdue = _is_overdue(need, now)
    worth = need.score if need.per_cost is None else need.per_cost
    by_need = (need.since, -worth) if is_overdue else (-worth, need.since)
    name = (need.table.catalog, need.table.namespace, need.table.name, need.task_type, need.policy)
    return (need.per_cost is not None, not is_overdue, *by_need, name)


def _is_overdue(need: UpkeepNeed, now: datetime) -> bool:
    return now - need.since >= OVERDUE


def _large_first(
    in_order: Sequence[UpkeepNeed], terms: Mapping[str, PolicyTerms], used: Mapping[str, Amount], now: datetime
) -> Sequence[UpkeepNeed]:
    """Return the needs with one long run of each budget first, if that gains more than the order of gain over cost: the
    runs before a large one may leave too little budget for it."""
    long: dict[str, list[UpkeepNeed]] = {}
    for need in in_order:
        is_limited = need.policy in terms and terms[need.policy].budget != UNLIMITED
        if need.per_cost is not None and is_limited and _not_now(need, now) is None:
            long.setdefault(need.policy, []).append(need)
    first: set[UpkeepNeed] = set()
    for policy, of_policy in long.items():
        budget, spent = terms[policy].budget, used.get(policy, NOTHING)
        overdue = [need for need in of_policy if _is_overdue(need, now)]
        others = of_policy[len(overdue) :]
        best, most = None, _saved(of_policy, budget, spent)
        for large in nlargest(_LARGE_TRIED, others, key=lambda need: need.score):
            saved = _saved([*overdue, large, *(need for need in others if need is not large)], budget, spent)
            if saved > most:
                best, most = large, saved
        if best is not None:
            first.add(best)
    if not first:
        return in_order
    return sorted(in_order, key=lambda need: (need.per_cost is not None, not _is_overdue(need, now), need not in first))


def _saved(in_order: Iterable[UpkeepNeed], budget: Budget, spent: Amount) -> int:
    """Return the total score of the runs that a budget allows in this order."""
    score = 0
    for need in in_order:
        total = spent + need.cost
        if budget.allows(total):
            score, spent = score + need.score, total
    return score


def _not_now(need: UpkeepNeed, now: datetime) -> Waits | None:
    if need.score <= 0:
        return Waits.NO_NEED
    if need.not_before is not None and now < need.not_before:
        return Waits.AFTER_FAILURE
    return None


def _of_today(
    terms: Mapping[str, PolicyTerms], runs: Iterable[UpkeepRun], now: datetime
) -> tuple[dict[str, Amount], dict[str, set[tuple[TableIdentifier, str]]]]:
    today = {name: day_of(now, term.zone) for name, term in terms.items()}
    used: dict[str, Amount] = {}
    ran: dict[str, set[tuple[TableIdentifier, str]]] = {}
    for run in runs:
        policy = terms.get(run.policy)
        if policy is not None and day_of(run.began, policy.zone) == today[run.policy]:
            used[run.policy] = used.get(run.policy, NOTHING) + run.charged
            ran.setdefault(run.policy, set()).add((run.table, run.task_type))
    return used, ran


_SHORTEST_PASS: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    begins: datetime
    need: UpkeepNeed


@dataclass(frozen=True, slots=True)
class Simulation:
    """The runs in order, and the needs that are not met by the end, with the reason."""

    runs: tuple[SimulatedRun, ...] = ()
    waiting: tuple[tuple[UpkeepNeed, Waits], ...] = ()


def simulate(
    needs: Iterable[UpkeepNeed],
    terms: Mapping[str, PolicyTerms],
    runs: Collection[UpkeepRun],
    now: datetime,
    *,
    until: datetime,
    every: timedelta,
    at_once: int = RUNS_AT_ONCE,
) -> Simulation:
    """Return what passes at intervals of `every` would start before `until`, by the current needs. Runs in progress
    count as ended before the second pass, with what is reserved for them."""
    every = max(every, _SHORTEST_PASS)
    left, known, made, at = list(needs), list(runs), list[SimulatedRun](), now
    while True:
        choice = choose(left, terms, known, at, at_once=at_once)
        made += [SimulatedRun(at, need) for need in choice.start]
        known = [run if run.ended is not None else replace(run, ended=at) for run in known]
        known += [UpkeepRun(need.table, need.task_type, need.policy, at, need.cost, ended=at) for need in choice.start]
        left = [need for need, _ in choice.waiting]
        waited = {why for _, why in choice.waiting}
        again = at + every
        if not choice.start and Waits.RUNS not in waited and Waits.NO_PLACE not in waited:
            # Nothing changes before a window opens, a day begins, or a pause after a failure ends.
            again = max(again, min(_changes(left, terms, at), default=until))
        if not left or again >= until:
            return Simulation(tuple(made), choice.waiting)
        at = again


def _changes(needs: Iterable[UpkeepNeed], terms: Mapping[str, PolicyTerms], at: datetime) -> Iterable[datetime]:
    """Yield the next times at which waiting needs may be met."""
    for term in terms.values():
        if term.window is not None:
            yield term.window.opens_after(at)
        local = at.astimezone(zone_of(term.zone))
        midnight = (local + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        yield midnight.astimezone(at.tzinfo)
    for need in needs:
        if need.not_before is not None and need.not_before > at:
            yield need.not_before
