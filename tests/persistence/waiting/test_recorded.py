"""Functions that change entities wait as data: another process combines them, exactly once and on what they read."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from polaris_persistence.commits.commits import CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.directories import Directory, directory_of
from polaris_persistence.commits.entities import EntityChanges, EntityHead, seal
from polaris_persistence.commits.recorded import RECORDED
from polaris_persistence.errors import CommitContended, CommitUnknown, EntityExists, EntityNotFound
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.types import ObjectTypes
from tests.persistence.builders import HEAD, CommitterKilled, Entity
from tests.persistence.commits.commit_world import LOST
from tests.persistence.commits.fleet import FleetBackend, VirtualTime, process_of
from tests.persistence.worlds import ENTITY_TYPES, TimedCatalogs, entity_change


class TimedEntities(TimedCatalogs):
    """Entities by name, and processes that change them."""

    def directory(self, **more: Any) -> Directory[Entity]:
        settings: dict[str, Any] = {"retry": CommitRetries(tries=1_000), "draw": lambda: 0.5, **more}
        return directory_of(
            self.store_of(), "main", Entity, sleep=self.clock.sleep, clock=self.clock.seconds, **settings
        )

    def of_the_last_release(self) -> Directory[Entity]:
        """Return what changes entities and does not know recorded changes."""
        store = self.store_of()
        committer = Committer(
            store, "main", EntityHead, seal=seal(IndexPolicy()), sleep=self.clock.sleep, clock=self.clock.seconds
        )
        return Directory(store, committer, Entity)

    def contend(self, then: Callable[[], object]) -> None:
        """Let rivals win two swaps, and `then` happen once a change waits."""
        rival = self.directory()
        self.lose_swaps(2, lambda number: rival.create(f"rival{number}", Entity(name="rival")))
        self.once_a_change_waits(then)

    def numbers(self) -> dict[str, int]:
        page = self.directory().page(limit=1_000)
        return {key.elements()[0]: one.value.number for key, one in page.entities if one.value.name != "rival"}

    def operations(self) -> list[str]:
        log = self.directory()._committer.log()
        return [name for one in log for name in one.value.operations if "rival" not in name]

    def unused(self) -> set[int]:
        """Return the entities that no name leads to and that are not of the past."""
        head = self.directory()._committer.head()
        assert head is not None
        named = {ref.id for _, ref in head.value.working_index(self.store.fetch_many).items()}
        return self.backend.stored_ids("entity") - named


@pytest.fixture
def world() -> TimedEntities:
    world = TimedEntities()
    world.directory().create("old", Entity(name="old", number=1))
    return world


def raised(entity: Entity) -> Entity:
    return entity.model_copy(update={"number": entity.number + 1})


def of_another(world: TimedEntities) -> None:
    """Commit something else, as another process does."""
    world.directory().create("other", Entity(name="other"))


def test_a_function_is_combined_by_another_process(world: TimedEntities) -> None:
    """Issue 32, line 10: only a change that its caller gave as data was."""
    world.contend(lambda: of_another(world))
    ref = world.directory().create("mine", Entity(name="mine", number=7))
    found = world.directory().get("mine")
    assert (found.ref, found.value.number) == (ref, 7)
    log = list(world.directory()._committer.log())
    assert sorted(log[0].value.operations) == ["create mine", "create other"]


def test_an_update_and_a_removal_are_combined_too(world: TimedEntities) -> None:
    world.contend(lambda: of_another(world))
    assert world.directory().update("old", raised).value.number == 2
    assert len(next(iter(world.directory()._committer.log())).value.operations) == 2
    world.contend(lambda: world.directory().create("third", Entity(name="third")))
    world.directory().remove("old", only_if=lambda entity: entity.number == 2)
    assert sorted(world.numbers()) == ["other", "third"]
    assert len(next(iter(world.directory()._committer.log())).value.operations) == 2


def test_what_was_read_has_changed(world: TimedEntities) -> None:
    """Its process calls the function again, on what is there now; what was stored beside the change is deleted."""
    world.contend(lambda: world.of_the_last_release().update("old", raised))
    assert world.directory().update("old", raised).value.number == 3
    assert sorted(world.operations())[-2:] == ["update old", "update old"]
    assert world.numbers() == {"old": 3}
    # The three states of the entity; nothing else is left over.
    assert len(world.unused()) == 2


def test_a_refusal_on_what_is_there_now(world: TimedEntities) -> None:
    world.contend(lambda: world.of_the_last_release().create("mine", Entity(name="theirs", number=1)))
    with pytest.raises(EntityExists):
        world.directory().create("mine", Entity(name="mine", number=2))
    assert world.numbers() == {"old": 1, "mine": 1}
    world.contend(lambda: world.of_the_last_release().remove("old"))
    with pytest.raises(EntityNotFound):
        world.directory().update("old", raised)
    log = world.directory()._committer.log()
    assert world.unused() <= {
        ref.id for one in log for _, ref in one.value.working_index(world.store.fetch_many).items()
    }


def test_names_that_were_listed_have_changed(world: TimedEntities) -> None:
    world.contend(lambda: world.of_the_last_release().create("other", Entity(name="other")))
    committer = world.directory()._committer

    def counted(entities: EntityChanges, _attempt: object) -> int:
        count = len(list(entities.items()))
        entities.put(IndexKey.of(f"count{count}"), Entity(name="count", number=count))
        return count

    # old, two rivals, and the one that came while it waited.
    assert committer.commit(entity_change(counted)).result == 4
    assert world.numbers()["count4"] == 4


def test_a_change_that_sees_the_head_itself_is_not_recorded(world: TimedEntities) -> None:
    seen: list[str] = []

    def change(entities: EntityChanges, attempt: CommitAttempt[EntityHead]) -> int:
        assert attempt.head is not None
        entities.put(IndexKey.of("seq"), Entity(name="seq", number=attempt.head.seq))
        return attempt.head.seq

    def look() -> None:
        waiting = world.store.current_reference("main").waiting
        stored = world.store.fetch_many(ObjectRef("waiting-change", one) for one in waiting)
        seen.extend(one.value.kind for one in stored)  # type: ignore[union-attr, attr-defined]
        of_another(world)

    world.contend(look)
    result = world.directory()._committer.commit(entity_change(change)).result
    assert seen == [""]
    assert result == 4
    assert world.numbers()["seq"] == 4


def test_what_an_unknown_place_may_name_is_kept(world: TimedEntities) -> None:
    """The change may wait although each answer was lost: who combines it names the objects stored beside it."""
    world.contend(lambda: None)
    world.backend.fail_after["add_waiting"] = [LOST] * 100
    with pytest.raises(CommitUnknown):
        world.directory().create("mine", Entity(name="mine", number=7))
    world.backend.fail_after.clear()
    world.directory().create("other", Entity(name="other"))
    assert world.directory().get("mine").value.number == 7


@pytest.mark.parametrize("sweeps", [0, 1, 2, 3])
def test_a_recorded_change_that_waits_past_sweeps_loses_nothing(world: TimedEntities, sweeps: int) -> None:
    """Objects beside a waiting change may be deleted by two sweeps: then nobody names them."""

    def suspended() -> None:
        world.sweep(sweeps)
        meanwhile, world.backend.meanwhile = world.backend.meanwhile, {}
        of_another(world)
        world.backend.meanwhile = meanwhile

    world.contend(suspended)
    try:
        world.directory().create("mine", Entity(name="mine", number=7))
    except (CommitContended, CommitUnknown):
        assert sweeps
    assert world.numbers().get("mine", 7) == 7
    assert world.operations().count("create mine") <= 1


FLEET = ObjectTypes([*ENTITY_TYPES, HEAD])
"""Of entities with and without an index."""


class NameFleet:
    """Processes in virtual time, each with the names of one reference."""

    def __init__(self, processes: int, **faults: Any) -> None:
        self.time = VirtualTime()
        self.backend = FleetBackend(self.time, **faults)
        self.names = [self.names_of(node) for node in range(processes)]
        self.names[0]._store.create_reference("names")

    def names_of(self, node: int) -> Directory[Entity]:
        store = process_of(self.backend, self.time, node, types=FLEET)[0]
        draw = random.Random(node).random
        return directory_of(store, "names", Entity, sleep=self.time.sleep, clock=lambda: self.time.now, draw=draw)

    def run(self, work: Callable[[Directory[Entity]], None]) -> list[int]:
        """Have all processes work; return the numbers of the entities then."""
        self.backend.slow = True
        for names in self.names:
            self.time.start(lambda names=names: work(names))  # type: ignore[misc]
        self.time.run()
        self.backend.slow = False
        return [one.value.number for _, one in self.names_of(900).page(limit=1_000).entities]


def test_changes_of_many_processes_share_commits() -> None:
    """50 changes a second of 40 processes, given as functions, cost as few swaps as those given as data."""
    fleet, draw = NameFleet(40), random.Random(1)
    latencies: list[float] = []
    arrivals = list(
        itertools.takewhile(lambda at: at < 8, itertools.accumulate(iter(lambda: draw.expovariate(50), None)))
    )
    left = list(enumerate(arrivals))[::-1]

    def work(names: Directory[Entity]) -> None:
        while left:
            number, at = left.pop()
            fleet.time.sleep(max(0.0, at - fleet.time.now))
            names.create(f"e{number}", Entity(name="e", number=number))
            latencies.append(fleet.time.now - at)

    assert sorted(fleet.run(work)) == list(range(len(arrivals)))
    latencies.sort()
    assert latencies[int(0.99 * len(latencies))] <= 0.5
    assert fleet.backend.calls["replace_reference"] <= 1.6 * len(arrivals)


@pytest.mark.parametrize("seed", range(4))
def test_recorded_updates_are_applied_once_despite_lost_answers_and_kills(seed: int) -> None:
    """Counters that many processes raise: what was acknowledged is counted, nothing twice, nothing left over."""
    fleet, draw = NameFleet(20, lost_answers=0.1, kills=0.002, seed=seed), random.Random(seed)
    for number in range(30):
        fleet.names[0].create(f"e{number}", Entity(name="e"))
    done, unknown = [0], [0]

    def work(names: Directory[Entity]) -> None:
        for _ in range(12):
            fleet.time.sleep(draw.expovariate(2.0))
            try:
                names.update(f"e{draw.randrange(30)}", raised)
                done[0] += 1
            except CommitContended:
                continue
            except CommitUnknown:
                unknown[0] += 1
            except CommitterKilled:
                unknown[0] += 1
                return

    counted = sum(fleet.run(work))
    assert done[0] <= counted <= done[0] + unknown[0]
    assert done[0] >= 100
    recorded = [one for key, one in fleet.backend._objects.items() if key.type == "waiting-change"]
    assert any(ENTITY_TYPES.decode(one).kind == RECORDED.name for one in recorded)  # type: ignore[attr-defined]
