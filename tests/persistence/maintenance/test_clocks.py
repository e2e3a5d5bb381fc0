"""Maintenance with wrong clocks: what is deleted depends on two fenced runs and the time of the database alone."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead, seal
from polaris_persistence.errors import TaskHeld
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.maintenance.run import RealmSweepReport, SweepPolicy
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, CommitterKilled, CountingBackend, Entity

HOUR = 3_600.0
YEAR = 365 * 24 * HOUR
GRACE = 24 * HOUR


class SkewedHosts:
    """A database with the right time, a writer and a maintenance host whose wall clocks are some seconds off."""

    def __init__(self, writer: float = 0, keeper: float = 0) -> None:
        self.clock = MicrosecondClock(ms=MicrosecondClock().now_ms() + round(2 * YEAR * 1_000))
        self.backend = CountingBackend()
        self.backend.now_us = self.clock.now_us  # type: ignore[method-assign]
        self.writer = writer
        self.calm = False
        self.process = self.start(writer)
        self.keeper = keeper
        realms = self.process.realms()
        realms.create("acme", {})
        self.store = realms.create_catalog("acme", "sales", {})
        self.committer = Committer(self.store, "main", EntityHead, seal=seal(IndexPolicy()))

    def start(self, off: float) -> PersistenceProcess:
        return PersistenceProcess(
            self.backend,
            types=ObjectTypes([*OWN_TYPES, ENTITY]),
            now_ns=lambda: self.clock.us * 1_000 + round(off * 1e9),
            clock=self.clock.seconds,
            sleep=self.clock.sleep,
        )

    def put(self, name: str, text: str = "") -> int:
        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            entities.put(IndexKey.of(name), Entity(name=text))
            return Changed(entities.head, None)

        self.calm = True
        done = self.committer.commit(change).commit_id
        self.calm = False
        assert done is not None
        return done

    def content(self) -> dict[str, str]:
        """Return what a new process reads."""
        self.calm = True
        store = self.start(self.writer).realms().open("acme", "sales")
        head = Committer(store, "main", EntityHead).head()
        assert head is not None
        items = dict(head.value.working_index(store.fetch_many).items())
        found = store.fetch_many(items.values())
        assert all(found), "an entity of the head was deleted"
        self.calm = False
        return {key.elements()[0]: one.value.name for key, one in zip(items, found, strict=True) if one}  # type: ignore[attr-defined]

    def run(self, stop: Callable[[], bool] = lambda: False, keeper: float | None = None) -> RealmSweepReport:
        policy = SweepPolicy(grace=GRACE, page=5, lost_after=600)
        return self.start(self.keeper if keeper is None else keeper).maintenance(policy).run(stop)

    def at_each(self, operation: str, call: Callable[[], object]) -> None:
        """Call `call` before each call of the store's operation that is not part of a commit."""

        def meanwhile() -> None:
            if not self.calm:
                call()
            self.backend.meanwhile[operation].append(meanwhile)

        self.backend.meanwhile[operation] = [meanwhile]

    def runs(self, count: int) -> None:
        for _ in range(count):
            self.run()
            self.clock.advance(GRACE + 60)


@pytest.mark.parametrize(("writer", "keeper"), [(-25 * HOUR, 0.0), (0.0, 25 * HOUR)], ids=["writer", "host"])
def test_a_head_acknowledged_while_a_run_scans_is_kept(writer: float, keeper: float) -> None:
    world = SkewedHosts(writer, keeper)
    numbers = itertools.count()
    for _ in range(3):
        world.put(f"n{next(numbers)}")
    world.at_each("scan", lambda: world.put(f"n{next(numbers)}"))
    for _ in range(3):
        world.run()
        assert len(world.content()) == len(world.backend.stored_ids("entity")), "an acknowledged entity is gone"
        world.clock.advance(GRACE + 60)


def test_one_commit_with_a_clock_a_year_ahead_does_not_keep_later_heads() -> None:
    world = SkewedHosts()
    ahead = world.start(YEAR).realms().open("acme", "sales")
    world.committer, right = Committer(ahead, "main", EntityHead, seal=seal(IndexPolicy())), world.committer
    world.put("ahead")
    world.committer = right
    for number in range(60):
        world.put("n", str(number))
    world.clock.advance(10 * GRACE)
    world.runs(3)
    assert len(world.backend.stored_ids("catalog-head")) < 40
    assert world.content() == {"ahead": "", "n": "59"}


def test_a_run_lost_on_a_host_a_year_ahead_is_taken_over_in_time() -> None:
    world = SkewedHosts()
    world.put("n")

    def stop() -> bool:
        raise CommitterKilled

    with pytest.raises(CommitterKilled):
        world.run(stop, keeper=YEAR)
    with pytest.raises(TaskHeld):
        world.run()
    world.clock.advance(601)
    assert world.run().complete


def test_a_host_a_year_ahead_does_not_take_over_a_running_one() -> None:
    world = SkewedHosts()
    world.put("n")
    met: list[str] = []

    def stop() -> bool:
        with pytest.raises(TaskHeld):
            world.run(keeper=YEAR)
        met.append("held")
        return False

    assert world.run(stop).complete
    assert met


def test_an_object_is_deleted_by_the_second_of_two_runs_a_grace_apart() -> None:
    world = SkewedHosts()
    world.put("n")
    world.clock.advance(10 * GRACE)
    [garbage] = world.store.write([Entity(name="garbage")])
    assert world.run().deleted == 0
    world.clock.advance(GRACE / 2)
    early = world.run()
    assert (early.deleted, early.scanned) == (0, 0)
    assert garbage.id in world.backend.stored_ids("entity")
    world.clock.advance(GRACE / 2 + 60)
    assert world.run().deleted == 1
    assert garbage.id not in world.backend.stored_ids("entity")


def test_a_head_that_a_listing_began_on_is_kept_for_a_grace_by_a_writer_behind() -> None:
    world = SkewedHosts(writer=-25 * HOUR)
    for number in range(30):
        world.put("n", str(number))
    for _ in range(4):
        listed = world.put("n", "listed")
        for number in range(30):
            world.put("n", str(number))
        world.run()
        assert listed in world.backend.stored_ids("catalog-head")
        world.clock.advance(GRACE - 120)
        world.run()
        assert listed in world.backend.stored_ids("catalog-head")
        world.clock.advance(240)


@pytest.mark.parametrize("off", [-YEAR, YEAR], ids=["a year behind", "a year ahead"])
@pytest.mark.parametrize("whose", ["writer", "maintenance"])
def test_a_clock_one_year_off_loses_nothing_and_keeps_nothing(whose: str, off: float) -> None:
    world = SkewedHosts(**{"writer" if whose == "writer" else "keeper": off})
    numbers = itertools.count()
    expected: dict[str, str] = {}

    def commit() -> None:
        number = next(numbers)
        name = f"n{number % 7}"
        world.put(name, str(number))
        expected[name] = str(number)

    for operation in ("scan", "replace_reference", "delete_many", "fetch_many"):
        world.at_each(operation, lambda: commit() if next(turns) % 5 == 0 else None)
    turns = itertools.count()
    for _ in range(4):
        commit()
        world.run()
        assert world.content() == expected
        world.clock.advance(GRACE + 60)
    world.backend.meanwhile.clear()
    world.runs(3)
    assert world.content() == expected
    # The references' present and recent heads, and what they name.
    assert len(world.backend.stored_ids("catalog-head")) <= 3 * 20
    assert len(world.backend.stored_ids("entity")) <= 20 + 7
    assert _of_maintenance(world.backend) <= {"maintenance-keys"}


def _of_maintenance(backend: Any) -> set[str]:
    return {key.type for key in backend._objects if key.type.startswith("maintenance")}
