"""What would run when: the choice of one pass after the other, each run ending before the next pass. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from delegation.upkeep.schedule.choice import RUNS_AT_ONCE, PolicyTerms, UpkeepNeed, UpkeepRun, Waits, choose
from delegation.upkeep.schedule.windows import zone_of

_SHORTEST_PASS: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    begins: datetime
    need: UpkeepNeed


@dataclass(frozen=True, slots=True)
class Simulation:
    """The runs in their order, and the needs that are not met by the end, with why they wait then."""

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
    """Return what passes from now on `every` so often would start before `until`, by the needs of now alone.

    Runs that are under way are taken to end before the second pass, with what is reserved for them.
    """
    every = max(every, _SHORTEST_PASS)
    left, known, made, at = list(needs), list(runs), list[SimulatedRun](), now
    while True:
        choice = choose(left, terms, known, at, at_once=at_once)
        made += [SimulatedRun(at, need) for need in choice.start]
        known = [one if one.ended is not None else replace(one, ended=at) for one in known]
        known += [UpkeepRun(one.table, one.task_type, one.policy, at, one.cost, ended=at) for one in choice.start]
        left = [need for need, _ in choice.waiting]
        waited = {why for _, why in choice.waiting}
        again = at + every
        if not choice.start and Waits.RUNS not in waited and Waits.NO_PLACE not in waited:
            # Nothing changes before a window opens, a day begins, or the time after a failure is over.
            again = max(again, min(_changes(left, terms, at), default=until))
        if not left or again >= until:
            return Simulation(tuple(made), choice.waiting)
        at = again


def _changes(needs: Iterable[UpkeepNeed], terms: Mapping[str, PolicyTerms], at: datetime) -> Iterable[datetime]:
    for one in terms.values():
        if one.window is not None:
            yield one.window.opens_after(at)
        local = at.astimezone(zone_of(one.zone))
        midnight = (local + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        yield midnight.astimezone(at.tzinfo)
    for need in needs:
        if need.not_before is not None and need.not_before > at:
            yield need.not_before
