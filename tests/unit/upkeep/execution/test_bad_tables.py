"""Bad tables among good ones: they take no place, no write and no alarm that a good one needs."""

import random
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisUnavailable
from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import PolicyTarget
from delegation.removal.expiry.task_type import TASK_TYPE
from delegation.removal.orphans.task_type import TASK_TYPE as ORPHANS
from delegation.tasks.life.policy import Lease
from delegation.upkeep.execution.passes import MOST_FAILED_STARTS, run_kinds
from delegation.upkeep.health.model import TableHealth
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.rules.model import PolicyType
from tests.kit.dynamodb import MemoryHealthStore
from tests.unit.upkeep.execution.catalogs import WEEK, named
from tests.unit.upkeep.execution.test_sweeps import Coast

OLD = [30.0, 20.0, 1.0]
GOOD = [f"good{number:02d}" for number in range(40)]


def down() -> PolarisUnavailable:
    return PolarisUnavailable("Polaris answered 503 ServiceFailureException", status=503)


BOTH = UpkeepLimits(types=frozenset({PolicyType.SNAPSHOT_EXPIRY, PolicyType.ORPHAN_FILE_REMOVAL}))


@dataclass
class CountingHealths(MemoryHealthStore):
    """Counts writes."""

    puts: Counter[TableIdentifier] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        MemoryHealthStore.__init__(self)

    def put(self, health: TableHealth, state: Any = None) -> TableHealth:
        self.puts[health.identifier] += 1
        return super().put(health, state)


class Archive(Coast):
    """Tables with policies of expiry; `broken` are those that do not load."""

    def __init__(self, *names: str) -> None:
        super().__init__(healths=CountingHealths())
        self.broken: dict[str, Exception] = {}
        self.policies.attach(WEEK, "ns")
        for name in names:
            self.write(name, OLD)

    def write(self, name: str, ages: list[float], **more: Any) -> None:
        super().write(name, ages, **{"table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name)), **more})

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        if identifier.name in self.broken:
            self.loads[identifier.name] += 1
            raise self.broken[identifier.name]
        return super().load_table(identifier, vend=vend, snapshots=snapshots)

    def under_way(self) -> list[tuple[str, str]]:
        found = self.healths.healths("lake")
        return [(one.identifier.name, run.task_type) for one in found for run in one.runs.values() if not run.ended]

    def days(self, days: int, passes: int = 4) -> set[str]:
        """Run passes, and end the runs that they start; return which tables were served."""
        served: set[str] = set()
        for _ in range(days * passes):
            with suppress(PolarisUnavailable):  # the pass ended early; the next one continues
                self.run()
            for name, task_type in self.under_way():
                self.finish(name, task_type=task_type)
                served.add(name)
            self.later(hours=24 / passes)
        return served


def test_tables_whose_callers_expiry_failed_after_its_commit_take_no_place() -> None:
    bad = [f"bad{number:02d}" for number in range(16)]
    world = Archive(*bad, *GOOD)
    for name in bad:
        world.write(name, [60.0, 50.0, *OLD])  # they need it most
        world.fail(world.asked_by_a_caller(name), effects=True)
    world.loads.clear()
    assert world.days(10) >= set(GOOD)
    assert all(world.loads[name] < 20 for name in bad), "a need that cannot start pauses"


@pytest.mark.parametrize("bad", [16, pytest.param(1, marks=pytest.mark.long), pytest.param(30, marks=pytest.mark.long)])
def test_tables_that_do_not_load_stop_no_other(bad: int) -> None:
    names = [f"bad{number:02d}" for number in range(bad)]
    world = Archive(*names, *GOOD)
    for name in names:
        world.write(name, [60.0, 50.0, *OLD])
        world.broken[name] = down()
    world.loads.clear()
    assert world.days(10) == set(GOOD)
    assert all(world.loads[name] < 20 for name in names)
    world.broken.clear()
    assert world.days(8) >= set(names), "one that can be loaded again is served"


@pytest.mark.parametrize("why", ["gone", "under way"])
def test_tables_that_others_keep_from_a_run_take_no_place_however_many_they_are(why: str) -> None:
    names = [f"bad{number:03d}" for number in range(MOST_FAILED_STARTS + 20)]
    world = Archive(*names, *GOOD)
    for name in names:
        world.write(name, [60.0, 50.0, *OLD])
        if why == "gone":
            del world.documents[name]
        else:
            wanted = world.asked_by_a_caller(name)
            world.tasks.leases.acquire(wanted, "worker", lambda now: Lease.lasting(timedelta(days=30), now))
    world.loads.clear()
    assert world.days(1, passes=96) >= set(GOOD)
    assert all(world.loads[name] <= 8 for name in names)
    assert all(not aside.is_overdue(world.now) for name in names for aside in world.health(name).asides.values())


@pytest.mark.parametrize("bad", [16, pytest.param(1, marks=pytest.mark.long), pytest.param(30, marks=pytest.mark.long)])
def test_tables_whose_policies_are_not_answered_stop_no_other(bad: int) -> None:
    names = [f"bad{number:02d}" for number in range(bad)]
    world = Archive(*names, *GOOD)
    targets = [PolicyTarget("lake", ("ns",), name) for name in names]
    world.policies.broken.update({target: down() for target in targets})
    assert world.days(10) == set(GOOD)
    assert all(world.policies.asked[target] < 30 for target in targets)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
def test_the_limits_hold_across_the_kinds(seed: int) -> None:
    """One run for each table, and 16 in all, whatever policies of both kinds ask for, and all are served."""
    chance = random.Random(seed)
    world = Archive(*GOOD)
    world.attach(PLAIN_REMOVAL, "ns", "deep")
    for name in GOOD:
        world.policies.attach(WEEK, "ns", table=name)
    kinds = (world.making(policies=BothKinds(world), limits=BOTH), world.sweeps(policies=BothKinds(world), limits=BOTH))
    served: Counter[str] = Counter()
    for _ in range(16 * 4):
        run_kinds(kinds, "lake")
        under_way = world.under_way()
        assert len(under_way) <= 16
        assert len({name for name, _ in under_way}) == len(under_way)
        for name, task_type in under_way:
            if chance.random() < 0.5:  # others still run
                world.finish(name, task_type=task_type)
                served[task_type] += 1
        world.later(hours=6)
    assert served[TASK_TYPE] >= len(GOOD)
    assert served[ORPHANS] >= len(GOOD)


PLAIN_REMOVAL: dict[str, Any] = {"enable": True}


@dataclass
class BothKinds:
    """Policies of both kinds on the namespace."""

    world: Archive

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> Any:
        if type_ == PolicyType.ORPHAN_FILE_REMOVAL.value:
            place = PolicyTarget("lake", ("ns", "deep"))
            found = self.world.policies.applicable(place, type_)
            return [replace(one, inherited=True) for one in found]
        return self.world.policies.applicable(target, type_)


def test_many_tables_that_need_nothing_are_not_written() -> None:
    world = Archive()
    assert isinstance(world.healths, CountingHealths)
    for number in range(1_000):
        name = f"t{number}"
        world.documents[name] = {}
        world.healths.put(TableHealth(named(name), "u", "m", world.now, rule="", properties={}))
    world.policies.detach("ns")
    for _ in range(3):
        world.run()
        world.later(minutes=15)
    world.healths.puts.clear()
    world.policies.asked.clear()
    for _ in range(8):
        assert world.run().tables == 1_000
        world.later(minutes=15)
    assert world.healths.puts.total() == 0
    own = [target for target in world.policies.asked if target.table]
    assert len(own) == 1_000, "a policy that is attached to a table itself is found within some passes"


@pytest.mark.parametrize("why", ["gc.enabled", "unread"])
def test_a_table_that_may_not_be_kept_is_no_wait_and_hides_no_other(why: str) -> None:
    world = Archive("protected")
    waits: list[tuple[timedelta, str]] = []
    making = {"waited": lambda wait, table: waits.append((wait, "" if table is None else table.name))}
    if why == "gc.enabled":
        world.write("protected", OLD, properties={"gc.enabled": "false"})
    world.run(**making)
    if why == "unread":
        health = world.health("protected")
        runs = {name: replace(run, ended=world.now, outcome="FAILURE") for name, run in health.runs.items()}
        world.healths.put(replace(health, runs=runs, problem="CORRUPT_METADATA: damaged"))
    world.later(days=10)
    world.write("late", OLD)
    world.run(settings=UpkeepSettings(at_once=0), **making)
    world.later(hours=1)
    world.run(settings=UpkeepSettings(at_once=0), **making)
    assert waits[-1] == (timedelta(hours=1), "late")
