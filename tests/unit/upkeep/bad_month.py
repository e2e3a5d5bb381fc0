"""A month of real passes of upkeep with bad tables of every kind among good ones, and the same month without them.

`make upkeep-month ARGS="--bad 1"` prints by how much the good ones wait longer. Simulated are the writers, the catalog
and how long a run takes; passes, policies, tasks and what is set aside are the service's own.
"""

import io
import random
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.polaris.answers import PolarisForbidden, PolarisUnavailable, PolarisUnexpectedAnswer
from delegation.polaris.policies import PolicyTarget
from delegation.removal.expiry.task_type import TASK_TYPE
from delegation.upkeep.rules.limits import UpkeepSettings
from tests.unit.upkeep.execution.catalogs import NOW
from tests.unit.upkeep.execution.test_bad_tables import Archive

MOST_LONGER: Final = 1.05
DAY: Final = timedelta(days=1)
PASS: Final = timedelta(minutes=15)
NEEDY: Final = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 1.0]
"""Ages of snapshots of bad tables in days: they need a run more than most good ones."""


def _answered(error: Exception) -> Callable[[Archive, str], None]:
    return lambda world, name: world.broken.update({name: error})


def _damaged(world: Archive, name: str) -> None:
    world.documents[name]["schemas"] = 7


def _without_policies(world: Archive, name: str) -> None:
    target = PolicyTarget("lake", ("ns",), name)
    world.policies.broken[target] = PolarisForbidden("Polaris answered 403", status=403)


BAD: Final[dict[str, Callable[[Archive, str], None]]] = {
    "5xx": _answered(PolarisUnavailable("Polaris answered 503 ServiceFailureException", status=503)),
    "damaged": _damaged,
    "too-large": _answered(PolarisUnexpectedAnswer("Polaris answered with more than 512 MiB", status=200)),
    "policies": _without_policies,
    "gone": lambda world, name: world.documents.pop(name) and None,
}


@dataclass(frozen=True)
class PassedMonth:
    """What is simulated: good tables, days, runs at once, and how many bad tables there are of each kind."""

    tables: int
    days: int
    at_once: int
    bad: int = 0
    seed: int = 0


def longest_wait(month: PassedMonth) -> timedelta:
    """Simulate, and return the longest wait of a good table; the same month has the same outcome."""
    chance, world = random.Random(month.seed), Archive()
    rates = {f"good{number:04}": chance.choice([0.2, 1, 1, 2]) for number in range(month.tables)}
    commits = {name: [NOW - chance.uniform(7, 20) * DAY] for name in rates}
    for number in range(month.bad):
        for kind, plant in BAD.items():
            world.write(f"{kind}{number:03}", NEEDY)
            plant(world, f"{kind}{number:03}")
    settings, ends, longest = UpkeepSettings(at_once=month.at_once), dict[str, datetime](), timedelta(0)

    def write(name: str) -> None:
        world.write(name, [(NOW - at) / DAY for at in commits[name]])

    while world.now < NOW + month.days * DAY:
        if (world.now - NOW) % DAY == timedelta(0):
            for name, rate in rates.items():
                commits[name] += [world.now] * (int(rate) + (chance.random() < rate % 1))
                write(name)
        for name in [name for name, end in ends.items() if end <= world.now]:
            del ends[name]
            world.finish(name, error=None if name in rates else "NO")
            if name in rates:
                commits[name] = [at for at in commits[name][:-1] if world.now - at < 7 * DAY] + commits[name][-1:]
                write(name)
        since = {one.identifier.name: one.since for one in world.healths.healths("lake")}
        with suppress(PolarisUnavailable):  # the pass ended early; the next one continues
            world.run(settings=settings, most_asked=month.tables // 10)
        for name, _ in world.under_way():
            if name not in ends:  # a run that finds damaged metadata fails at once
                ends[name] = world.now + (timedelta(minutes=20) if name in rates else timedelta(minutes=1))
        for one in world.healths.healths("lake"):
            name, waited = one.identifier.name, since[one.identifier.name]
            has_run = TASK_TYPE in one.runs and one.runs[TASK_TYPE].began == world.now
            if name in rates and waited is not None and (has_run or one.since is not None):
                longest = max(longest, world.now - waited)
        world.now += PASS
    return longest


def compare(month: PassedMonth) -> tuple[str, bool]:
    """Return what people read, and whether the good tables wait no longer than they may."""
    with redirect_stdout(io.StringIO()):  # the metrics
        alone = longest_wait(PassedMonth(month.tables, month.days, month.at_once, seed=month.seed))
        beside = longest_wait(month)
    ratio = beside / alone if alone else 1.0
    text = (
        f"seed {month.seed}: {month.tables:,} good tables, {month.days} days, {month.at_once} at once; "
        f"longest wait of a good table {alone} alone, {beside} beside {month.bad} bad ones of each kind "
        f"({', '.join(BAD)}): x{ratio:.3f}"
    )
    return text, ratio <= MOST_LONGER
