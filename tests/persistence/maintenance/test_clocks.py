"""Maintenance with wrong clocks: what is deleted depends on two fenced runs and the time of the database alone."""

import itertools
from collections.abc import Callable

import pytest

from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityHead, seal
from polaris_persistence.errors import TaskHeld
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.maintenance.run import RealmSweepReport, SweepPolicy
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import CommitterKilled, CountingBackend
from tests.persistence.worlds import naming, process_on, read_entities

HOUR = 3_600.0
YEAR = 365 * 24 * HOUR
GRACE = 24 * HOUR


class SkewedHosts:
    """A database with the right time, a writer and a maintenance host whose wall clocks are some seconds off."""

    def __init__(self, writer: float = 0, keeper: float = 0) -> None:
        self.clock = MicrosecondClock(ms=MicrosecondClock().now_ms() + round(2 * YEAR * 1_000))
        self.backend = CountingBackend()
        self.backend.now_us = self.clock.now_us
        self.writer = writer
        self.calm = False
        self.process = self.start(writer)
        self.keeper = keeper
        realms = self.process.realms()
        realms.create("acme", {})
        self.store = realms.create_catalog("acme", "sales", {})
        self.committer = Committer(self.store, "main", EntityHead, seal=seal(IndexPolicy()))

    def start(self, off: float) -> PersistenceProcess:
        return process_on(self.backend, self.clock, off)

    def put(self, name: str, text: str = "") -> int:
        self.calm = True
        done = self.committer.commit(naming(name, text)).commit_id
        self.calm = False
        assert done is not None
        return done

    def content(self) -> dict[str, str]:
        """Return what a new process reads."""
        self.calm = True
        found = read_entities(self.start(self.writer).realms().open("acme", "sales"))
        assert None not in found.values(), "an entity of the head was deleted"
        self.calm = False
        return {name: value.name for name, value in found.items()}

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
    for _ in range(3):
        world.run()
        world.clock.advance(GRACE + 60)
    assert len(world.backend.stored_ids("catalog-head")) < 40
    assert world.content() == {"ahead": "ahead", "n": "59"}


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


@pytest.mark.parametrize("writer", [0.0, -25 * HOUR], ids=["in time", "behind"])
def test_a_head_that_a_listing_began_on_is_kept_for_a_grace_after_it_was_replaced(writer: float) -> None:
    world = SkewedHosts(writer)
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
