"""The healths of a catalog follow the reference index: what changed is read, what did not costs nothing."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.items import IN_A_ROW
from delegation.polaris.answers import NoSuchTable, PolarisForbidden, PolarisUnavailable
from delegation.polaris.model import LoadedTable
from delegation.references.model import CatalogPass, TableEntry
from delegation.storage.base import ObjectStoreUnavailable
from delegation.storage.memory import Killed
from delegation.upkeep.health.model import REVIEW_EVERY, LastRun, TableHealth
from delegation.upkeep.health.reading import ExpiryByRule
from delegation.upkeep.health.refresh import HealthCounts, HealthRefresher
from tests.kit.dynamodb import MemoryHealthStore, MemoryReferenceStore
from tests.unit.upkeep.health.tables import CountingStore, WrittenTable, every

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def states(table: WrittenTable) -> list[WrittenTable]:
    return [one for one in (*table.before(), table) if one.document.get("snapshots")]


STATES = next(states(table) for _, table in every() if len(states(table)) > 3)


@dataclass
class RefreshedCatalog:
    """A catalog whose tables have the states of one that Spark wrote, its reference index and its healths."""

    states: dict[str, int] = field(default_factory=dict)
    index: MemoryReferenceStore = field(default_factory=MemoryReferenceStore)
    healths: MemoryHealthStore = field(default_factory=MemoryHealthStore)
    now: datetime = NOW
    loads: Counter[str] = field(default_factory=Counter)
    broken: dict[str, Exception] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)
    store: CountingStore = field(default_factory=lambda: CountingStore(STATES[0].content))

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        self.loads[identifier.name] += 1
        if identifier.name in self.broken:
            raise self.broken[identifier.name]
        if identifier.name not in self.states:
            raise NoSuchTable(f"no table {identifier}", status=404)
        return self.table(identifier.name).loaded(identifier)

    def table(self, name: str) -> WrittenTable:
        return STATES[self.states[name]]

    def commit(self, name: str, state: int) -> None:
        """Move a table to a state, as a pass of the index sees it."""
        self.states[name] = state
        table, before = self.table(name), self.index.get(named(name))
        uuid, revision = table.document["table-uuid"], 0 if before is None else before.revision
        self.index.put(TableEntry(named(name), uuid, table.metadata_location, revision=revision))

    def drop(self, name: str) -> None:
        entry = self.index.get(named(name))
        assert entry is not None
        self.index.remove(entry)
        del self.states[name]

    def complete_a_pass(self) -> None:
        state = self.index.pass_of("lake")
        self.index.write_pass(state, CatalogPass("lake", complete_as_of=self.now))

    def refresher(self, **changes: Any) -> HealthRefresher:
        def opened(table: LoadedTable) -> CountingStore:
            if table.identifier.name in self.slow:
                return CountingStore({}, each=unavailable)
            return self.store

        given = {"healths": self.healths, "index": self.index, "catalog": self, "open_store": opened}
        return HealthRefresher(**{**given, "clock": lambda: self.now, **changes})  # type: ignore[arg-type]

    def refresh(self, **changes: Any) -> HealthCounts:
        return self.refresher(**changes).refresh("lake")

    def health(self, name: str) -> TableHealth:
        found = self.healths.health(named(name))
        assert found is not None
        return found


def unavailable() -> None:
    raise ObjectStoreUnavailable("slow down")


def named(name: str) -> TableIdentifier:
    return TableIdentifier("lake", ("ns",), name)


def world_of(*names: str) -> RefreshedCatalog:
    world = RefreshedCatalog()
    for name in names:
        world.commit(name, 0)
    world.complete_a_pass()
    return world


def test_only_tables_that_changed_are_loaded_and_read() -> None:
    world = world_of("a", "b", "c")
    assert world.refresh() == HealthCounts(tables=3, read=3)
    world.loads.clear()
    world.store.reads.clear()
    assert world.refresh() == HealthCounts(tables=3)
    assert not world.loads
    assert not world.store.reads
    world.commit("b", 2)
    assert world.refresh() == HealthCounts(tables=3, read=1)
    assert world.loads == {"b": 1}
    assert world.health("b").metadata_location == STATES[2].metadata_location


def test_a_run_that_is_killed_at_any_table_is_continued_where_it_was() -> None:
    names = [f"t{n}" for n in range(5)]
    for at in range(1, 6):
        world = world_of(*names)
        calls = iter(range(1, 1_000))

        def kill(at: int = at, calls: Any = calls) -> None:
            if next(calls) == at:
                raise Killed

        with pytest.raises(Killed):
            world.refresh(pace=kill)
        assert world.refresh().read == len(names) - (at - 1)
        assert max(world.loads.values()) == 1


def test_a_table_whose_storage_does_not_answer_stops_no_other_and_is_read_later() -> None:
    world = world_of("a", "b", "c")
    world.slow = {"a", "b"}
    assert world.refresh() == HealthCounts(tables=3, read=1, left=2)
    assert world.health("a").snapshots == 0
    world.slow = set()
    assert world.refresh() == HealthCounts(tables=3, left=2), "it is left out for three hours"
    world.now += timedelta(hours=3)
    assert world.refresh() == HealthCounts(tables=3, read=2)
    assert world.health("a").asides == {}


def test_a_table_that_does_not_load_is_tried_ever_less_often_and_stops_no_other() -> None:
    names = [f"t{n}" for n in range(30)]
    world = world_of("good", *names)
    world.refresh()
    world.broken |= {name: PolarisUnavailable("Polaris answered 503", status=503) for name in names}
    for hour in range(48):
        world.now += timedelta(hours=1)
        for name in ("good", *names):
            world.commit(name, (hour + 1) % 2)
        assert world.refresh().read == 1
    assert world.loads["good"] <= 49 + 10, "it is loaded to tell the others from an outage"
    assert max(world.loads[name] for name in names) < 12
    assert "503" in world.health("t0").asides["health.tables"].error


def test_an_outage_ends_the_run_before_it_has_tried_every_table() -> None:
    names = [f"t{n}" for n in range(IN_A_ROW + 30)]
    world = world_of(*names)
    world.slow = set(names)
    with pytest.raises(ObjectStoreUnavailable):
        world.refresh()
    assert world.loads.total() == IN_A_ROW


def test_a_table_that_may_not_be_loaded_is_recorded_and_tried_once_a_day() -> None:
    world = world_of("a")
    world.refresh()
    files = world.health("a").files
    world.broken["a"] = PolarisForbidden("it needs TABLE_READ_DATA", status=403)
    world.commit("a", 1)
    world.refresh()
    world.refresh()
    found = world.health("a")
    assert found.problem.startswith("POLARIS_FORBIDDEN: ")
    assert found.files == files
    assert world.loads["a"] == 2
    world.now += REVIEW_EVERY
    world.broken.clear()
    world.refresh()
    assert world.health("a").problem is None


def test_a_table_that_is_gone_is_removed_after_the_index_removed_it() -> None:
    world = world_of("a", "b")
    world.refresh()
    world.drop("a")
    assert world.refresh() == HealthCounts(tables=1, removed=1)
    assert [one.identifier.name for one in world.healths.healths("lake")] == ["b"]


def test_an_index_that_has_no_complete_pass_removes_nothing() -> None:
    world = RefreshedCatalog()
    world.healths.put(TableHealth(named("a"), "uuid", "s3://b/m.json", NOW))
    assert world.refresh() == HealthCounts()
    assert world.healths.health(named("a")) is not None


def test_a_run_that_is_noted_while_a_table_is_read_is_kept() -> None:
    world = world_of("a")
    world.refresh()
    world.commit("a", 1)
    run = LastRun("EXPIRY", "task-1", "weekly", NOW)
    once = iter([True])

    def note() -> None:
        if next(once, False):
            health = world.health("a")
            world.healths.put(replace(health, runs={"EXPIRY": run}))

    world.store.each = note
    world.refresh()
    assert world.health("a").runs == {"EXPIRY": run}
    assert world.health("a").metadata_location == STATES[1].metadata_location


def aged(after: timedelta) -> Callable[[LoadedTable], ExpiryByRule]:
    """A rule by which every snapshot but the newest expires at a time."""

    def rule_of(_table: LoadedTable) -> ExpiryByRule:
        def expirable(document: Any, now: datetime) -> frozenset[int]:
            ids = [one["snapshot-id"] for one in document["snapshots"]]
            return frozenset(ids[:-1]) if now >= NOW + after else frozenset()

        return ExpiryByRule("one", expirable)

    return rule_of


def test_a_quiet_table_is_read_again_when_its_first_snapshot_expires() -> None:
    world = RefreshedCatalog()
    world.commit("a", len(STATES) - 1)
    rule_of = aged(timedelta(days=2))
    world.refresh(rule_of=rule_of)
    assert (world.health("a").expirable, world.health("a").since) == (0, None)
    world.now += timedelta(days=1)
    assert world.refresh(rule_of=rule_of).read == 0
    world.now += timedelta(days=1, minutes=10)
    world.store.reads.clear()
    assert world.refresh(rule_of=rule_of).read == 1
    found = world.health("a")
    assert found.expirable
    assert found.since == world.now
    # One list, of the current snapshot, and no manifest.
    assert world.store.reads.total() <= 1
    assert world.refresh(rule_of=rule_of).read == 0
