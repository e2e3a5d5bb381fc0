"""Functions that change entities wait as data: another process combines them, exactly once and on what they read."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.directories import Directory, directory_of, entity_committer
from polaris_persistence.commits.entities import HEAD_TYPE, EntityChanges, EntityHead, seal
from polaris_persistence.commits.recorded import RECORDED
from polaris_persistence.commits.waiting import WAITING_TYPES
from polaris_persistence.errors import CommitContended, CommitUnknown, EntityExists, EntityNotFound
from polaris_persistence.ids.snowflake import EPOCH_MS, join_id
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.maintenance.sweep import MAINTENANCE_TYPES, RealmMaintenance
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, CommitterKilled, CountingBackend, Entity, store_on
from tests.persistence.commits.commit_world import LOST
from tests.persistence.commits.fleet import FLEET_TYPES, FleetBackend, VirtualTime, process_of

TYPES = ObjectTypes([HEAD_TYPE, STRIPES, ENTITY, *WAITING_TYPES, *MAINTENANCE_TYPES])
GRACE = 1_000.0
NODES = itertools.count(1)


class TimedEntities:
    """Entities by name, and processes that change them; every call takes 2 ms."""

    def __init__(self) -> None:
        self.backend = CountingBackend()
        self.clock = MicrosecondClock()
        self.backend.now_us = self.clock.now_us  # type: ignore[method-assign]
        plain = self.backend.before

        def before(operation: str) -> None:
            if not operation.endswith("_row"):
                self.clock.advance(0.002)
            plain(operation)

        self.backend.before = before
        self._numbers = itertools.count()
        self.store = self.store_of("r", "c")
        self.store.create_reference("main")

    def store_of(self, realm: str, catalog: str) -> CatalogStore:
        node, sequence = next(NODES) % 1_024, itertools.count()

        def new_id() -> int:
            return join_id(self.clock.now_ms() - EPOCH_MS, node, next(sequence) % 4_096)

        return store_on(self.backend, self.clock, ids=new_id, realm=realm, catalog=catalog, types=TYPES)

    def directory(self, **more: Any) -> Directory[Entity]:
        settings: dict[str, Any] = {"retry": CommitRetries(tries=1_000), "draw": lambda: 0.5, **more}
        return directory_of(
            self.store_of("r", "c"), "main", Entity, sleep=self.clock.sleep, clock=self.clock.seconds, **settings
        )

    def of_the_last_release(self) -> Directory[Entity]:
        """Return what changes entities and does not know recorded changes."""
        store = self.store_of("r", "c")
        committer = Committer(
            store, "main", EntityHead, seal=seal(IndexPolicy()), sleep=self.clock.sleep, clock=self.clock.seconds
        )
        return Directory(store, committer, Entity)

    def contend(self, then: Callable[[], object]) -> None:
        """Let rivals win two swaps, and `then` happen once a change waits."""
        rival, numbers = self.directory(), self._numbers

        def lose() -> None:
            left = self.backend.meanwhile.pop("replace_reference", [])
            rival.create(f"rival{next(numbers)}", Entity(name="rival"))
            self.backend.meanwhile["replace_reference"] = left

        self.backend.meanwhile["replace_reference"] = [lose, lose]
        plain, done = self.backend.after, []

        def after(operation: str) -> None:
            plain(operation)
            if operation == "add_waiting" and not done:
                done.append(operation)
                then()

        self.backend.after = after

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
        return self.backend.stored_ids(ENTITY.name) - named


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
    assert world.unused() <= {ref.id for ref in first_states(world)}


def first_states(world: TimedEntities) -> list[Any]:
    """Return what the first heads named."""
    log = list(world.directory()._committer.log())
    return [ref for one in log for _, ref in one.value.working_index(world.store.fetch_many).items()]


def listing(limit: int) -> Callable[[CommitAttempt[EntityHead]], Changed[EntityHead, int]]:
    """Return a change that names an entity by how many there are."""

    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, int]:
        entities = EntityChanges(attempt)
        count = len(list(itertools.islice(entities.items(), limit)))
        entities.put(IndexKey.of(f"count{count}"), Entity(name="count", number=count))
        return Changed(entities.head, count)

    return change


def test_names_that_were_listed_have_changed(world: TimedEntities) -> None:
    world.contend(lambda: world.of_the_last_release().create("other", Entity(name="other")))
    committer = world.directory()._committer
    # old, two rivals, and the one that came while it waited.
    assert committer.commit(listing(100)).result == 4
    assert world.numbers()["count4"] == 4


def test_a_change_that_sees_the_head_itself_is_not_recorded(world: TimedEntities) -> None:
    seen: list[str] = []

    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, int]:
        assert attempt.head is not None
        entities = EntityChanges(attempt)
        entities.put(IndexKey.of("seq"), Entity(name="seq", number=attempt.head.seq))
        return Changed(entities.head, attempt.head.seq)

    def look() -> None:
        waiting = world.store.current_reference("main").waiting
        stored = world.store.fetch_many(ObjectRef("waiting-change", one) for one in waiting)
        seen.extend(one.value.kind for one in stored)  # type: ignore[union-attr, attr-defined]
        of_another(world)

    world.contend(look)
    result = world.directory()._committer.commit(change).result
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
        meanwhile, world.backend.meanwhile = world.backend.meanwhile, {}
        for _ in range(sweeps):
            world.clock.advance(GRACE + 2)
            policy = SweepPolicy(grace=GRACE, lost_after=100.0)
            RealmMaintenance(world.backend, world.store_of, policy=policy, clock=world.clock.seconds).run()
        of_another(world)
        world.backend.meanwhile = meanwhile

    world.contend(suspended)
    try:
        world.directory().create("mine", Entity(name="mine", number=7))
    except (CommitContended, CommitUnknown):
        assert sweeps
    assert world.numbers().get("mine", 7) == 7
    assert world.operations().count("create mine") <= 1


def test_changes_of_many_processes_share_commits() -> None:
    """50 changes a second of 40 processes, given as functions, cost as few swaps as those given as data."""
    time, draw = VirtualTime(), random.Random(1)
    backend = FleetBackend(time)
    types = ObjectTypes([*FLEET_TYPES, HEAD_TYPE, STRIPES])
    stores = [process_of(backend, time, node, types=types)[0] for node in range(40)]
    stores[0].create_reference("names")
    latencies: list[float] = []
    arrivals = list(
        itertools.takewhile(lambda at: at < 8, itertools.accumulate(iter(lambda: draw.expovariate(50), None)))
    )
    left = list(enumerate(arrivals))[::-1]
    backend.slow = True

    def work(node: int) -> None:
        names = directory_of(
            stores[node], "names", Entity, sleep=time.sleep, clock=lambda: time.now, draw=random.Random(node).random
        )
        while left:
            number, at = left.pop()
            time.sleep(max(0.0, at - time.now))
            names.create(f"e{number}", Entity(name="e", number=number))
            latencies.append(time.now - at)

    for node in range(40):
        time.start(lambda node=node: work(node))  # type: ignore[misc]
    time.run()
    backend.slow = False
    swaps = backend.calls["replace_reference"]
    latencies.sort()
    assert latencies[int(0.99 * len(latencies))] <= 0.5
    assert swaps <= 1.6 * len(arrivals)
    page = directory_of(stores[0], "names", Entity).page(limit=1_000)
    assert sorted(one.value.number for _, one in page.entities) == list(range(len(arrivals)))


def test_the_kind_is_known_to_every_committer_of_entities(world: TimedEntities) -> None:
    committer = entity_committer(world.store, "main")
    assert RECORDED.name in committer._kinds


@pytest.mark.parametrize("seed", range(4))
def test_recorded_updates_are_applied_once_despite_lost_answers_and_kills(seed: int) -> None:
    """Counters that many processes raise: what was acknowledged is counted, nothing twice, nothing left over."""
    time, draw = VirtualTime(), random.Random(seed)
    backend = FleetBackend(time, lost_answers=0.1, kills=0.002, seed=seed)
    types = ObjectTypes([*FLEET_TYPES, HEAD_TYPE, STRIPES])
    stores = [process_of(backend, time, node, types=types)[0] for node in range(20)]
    stores[0].create_reference("names")
    first = directory_of(stores[0], "names", Entity)
    for number in range(30):
        first.create(f"e{number}", Entity(name="e"))
    done, unknown = [0], [0]
    backend.slow = True

    def work(node: int) -> None:
        names = directory_of(
            stores[node], "names", Entity, sleep=time.sleep, clock=lambda: time.now, draw=random.Random(node).random
        )
        for _ in range(12):
            time.sleep(draw.expovariate(2.0))
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

    for node in range(20):
        time.start(lambda node=node: work(node))  # type: ignore[misc]
    time.run()
    backend.slow = False
    page = directory_of(process_of(backend, time, 900, types=types)[0], "names", Entity).page(limit=100)
    counted = sum(one.value.number for _, one in page.entities)
    assert done[0] <= counted <= done[0] + unknown[0]
    assert done[0] >= 100
    recorded = [one for key, one in backend._objects.items() if key.type == "waiting-change"]
    assert any(types.decode(one).kind == RECORDED.name for one in recorded)  # type: ignore[attr-defined]
