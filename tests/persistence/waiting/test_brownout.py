"""A store that does not answer for seconds, fresh processes that commit all the time, and the dead that still wait."""

import itertools
import random
from dataclasses import dataclass, field

import pytest

from polaris_persistence.commits.waiting import MOST_WAITING, WaitingChange, WaitingQueue
from polaris_persistence.errors import BackendUnavailable, CommitContended, CommitOutcomeUnknown, CommitUnknown
from tests.persistence.builders import Head, add, put
from tests.persistence.commits.fleet import Commit, FleetBackend, VirtualTime, by_data, by_function, process_of
from tests.persistence.waiting.waiting_world import Waiting, operations

FRESH = ["read_reference", "put_many", "replace_reference"]
DEADLINE = 20.0


def wait_and_die(world: Waiting, count: int, kind: str = "") -> None:
    """Let changes wait whose processes are gone."""
    store, _ = world.process()
    queue = WaitingQueue(store, "main", Head)
    for _ in range(count):
        change = WaitingChange(reference="main", kind=kind, data="n", operation="dead")
        queue.add([change], store.current_reference("main"))


@pytest.mark.parametrize("count", [1, 100, MOST_WAITING])
@pytest.mark.parametrize("kind", ["", "later release", "add"])
def test_dead_ids_cost_a_fresh_commit_nothing(world: Waiting, count: int, kind: str) -> None:
    """Issue 32, line 1: fresh processes waited behind the dead for up to ten minutes."""
    wait_and_die(world, count, kind)
    world.clock.advance(DEADLINE + 1)
    _, fresh = world.process()
    world.calls()
    world.clock.slept.clear()
    fresh.commit(put("fresh", 1))
    assert world.calls() == FRESH
    assert world.clock.slept == []
    assert "dead" not in operations(world)


def test_dead_ids_are_dropped_without_reading_them(world: Waiting) -> None:
    wait_and_die(world, 100)
    world.clock.advance(3_600)
    _, fresh = world.process()
    world.calls()
    fresh.commit(put("fresh", 1))
    assert world.calls() == FRESH
    assert world.waiting() == ()


def test_a_full_queue_of_the_dead_takes_the_living(world: Waiting) -> None:
    wait_and_die(world, MOST_WAITING)
    world.clock.advance(DEADLINE + 1)
    winner = world.process()[1]
    seen: list[int] = []

    def then() -> None:
        seen.append(len(world.waiting()))
        winner.commit(add("n", 10))

    world.contend(then=then)
    assert world.process()[1].commit_data("add", "n").result == 2
    assert seen == [MOST_WAITING + 1]


def test_a_function_that_is_taken_back_does_not_disturb_the_attempts_of_others(world: Waiting) -> None:
    """Nobody combines it, so who has read it continues: only a change given as data raises the version."""
    store, _ = world.process()
    queue = WaitingQueue(store, "main", Head)
    for kind, raised in (("", 0), ("add", 1)):
        before = store.current_reference("main")
        [ticket], _ = queue.add([WaitingChange(reference="main", kind=kind, data="n")], before)
        assert queue.withdraw(ticket) is None
        assert world.waiting() == ()
        assert store.current_reference("main").version == before.version + raised


@dataclass
class Brownout:
    """When each commit began (s), and how long it took if it was acknowledged."""

    done: dict[int, tuple[float, float]] = field(default_factory=dict)
    begun: dict[int, float] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)

    def served(self, since: float, until: float) -> float:
        """Return the share of the commits begun in a time that was acknowledged."""
        begun = [number for number, at in self.begun.items() if since <= at < until]
        return sum(number in self.done for number in begun) / len(begun)


class Failing(FleetBackend):
    """Between two times no call is answered, and half of the conditional calls are applied nevertheless."""

    down = (0.0, 0.0)

    def _lose(self, operation: str) -> None:
        since, until = self.down
        if self.slow and since <= self.time.now < until:
            conditional = operation in {"replace_reference", "add_waiting", "withdraw"}
            raise (CommitOutcomeUnknown if conditional else BackendUnavailable)("down")
        super()._lose(operation)


def brownout(rate: float, outage: float, commit: Commit, *, seconds: float, dead: int = 0, seed: int = 1) -> Brownout:
    """Commit `rate` times a second, each from a fresh process; in an outage after 5 s `dead` processes die."""
    time, draw, report = VirtualTime(), random.Random(seed), Brownout()
    backend = Failing(time, seed=seed)
    backend.down = (5.0, 5.0 + outage)
    first, committer = process_of(backend, time, 0)
    first.create_reference("main")
    backend.slow = True

    def one(number: int) -> None:
        begun = report.begun[number] = time.now
        try:
            commit(process_of(backend, time, number % 1_000)[1], number)
        except (CommitContended, BackendUnavailable):
            return
        except CommitUnknown:
            report.unknown.add(number)
            return
        report.done[number] = (begun, time.now - begun)

    def die() -> None:
        time.sleep(4.9)
        store, _ = process_of(backend, time, 1_001)
        queue = WaitingQueue(store, "main", Head)
        waiting = [WaitingChange(reference="main", operation="dead")] * dead
        queue.add(waiting, store.current_reference("main"))

    def arrive() -> None:
        for number in itertools.count():
            time.sleep(draw.expovariate(rate))
            if time.now >= seconds:
                return
            time.start(lambda number=number: one(number))  # type: ignore[misc]

    time.start(arrive)
    if dead:
        time.start(die)
    time.run()
    backend.slow = False
    log = [int(name) for commit_ in committer.log() for name in commit_.value.operations]
    assert len(log) == len(set(log))
    assert report.done.keys() <= set(log) <= report.done.keys() | report.unknown
    return report


@pytest.mark.parametrize("commit", [by_function, by_data], ids=["functions", "data"])
def test_service_is_full_half_a_minute_after_an_outage(commit: Commit) -> None:
    """100 processes die in the outage while they wait (issue 32, line 1)."""
    report = brownout(10.0, 3.0, commit, seconds=8 + 33, dead=100)
    assert report.served(8 + 25, 8 + 33) == 1.0


@pytest.mark.long
@pytest.mark.parametrize("outage", [3.0, 30.0])
@pytest.mark.parametrize("commit", [by_function, by_data], ids=["functions", "data"])
def test_forty_fresh_processes_a_second_are_served_after_an_outage(commit: Commit, outage: float) -> None:
    """Each commits once. 48 of 1,160 functions succeeded in the five minutes after 3 s (issue 32, line 1)."""
    end = 5.0 + outage
    report = brownout(40.0, outage, commit, seconds=end + 40)
    assert report.served(end + 30, end + 40) == 1.0
    assert report.served(end, end + 30) >= 0.95
