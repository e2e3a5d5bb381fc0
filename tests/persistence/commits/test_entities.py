"""Named entities, realms and catalogs, and references after a disaster."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from polaris_persistence.backends.base import SYSTEM, Locator, ObjectKey
from polaris_persistence.catalogs.realms import CATALOG_TYPE, MAIN, REALM_TYPE, Realms, RealmStatus
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.directories import Directory, directory_of
from polaris_persistence.commits.entities import HEAD_TYPE, EntityChanges, EntityHead, seal
from polaris_persistence.errors import (
    CommitOutcomeUnknown,
    EntityExists,
    EntityNotFound,
    PersistenceError,
    RealmNotReady,
    ReferenceNotFound,
    StaleObject,
)
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.maintenance.recovery import recent_heads, reset
from polaris_persistence.maintenance.sweep import MAINTENANCE_TYPES
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.errors import coded
from tests.persistence.builders import ENTITY, Entity
from tests.persistence.worlds import Catalogs, Change, entity_change, read_entities

TYPES = ObjectTypes([ENTITY, HEAD_TYPE, STRIPES, REALM_TYPE, CATALOG_TYPE, *MAINTENANCE_TYPES])
SMALL = IndexPolicy(min_embedded=64, max_embedded=128, stripe=160)
KEYS = [IndexKey.of("ns", f"t{number}") for number in range(40)]


class IndexedEntities(Catalogs):
    types = TYPES
    policy: ClassVar[dict[str, Any]] = {"grace": 100.0}

    def __init__(self, index: IndexPolicy = SMALL) -> None:
        super().__init__()
        self.index = index
        self.committer = self.committer_of(self.store)

    def settings(self) -> dict[str, Any]:
        retry = CommitRetries(tries=50, seconds=1e9)
        return {"sleep": self.clock.sleep, "clock": self.clock.seconds, "draw": lambda: 0.5, "retry": retry}

    def committer_of(self, store: CatalogStore, **more: Any) -> Committer[EntityHead]:
        return Committer(store, MAIN, EntityHead, seal=seal(self.index), **self.settings(), **more)

    def realms(self) -> Realms:
        return Realms(self.backend, self.store_of, policy=self.index, **self.settings())

    def directory(self) -> Directory[Entity]:
        return directory_of(self.store_of(), MAIN, Entity, policy=self.index, **self.settings())

    def content(self) -> dict[str, int]:
        """Return all entities of the head as a new process reads them."""
        return {name: value.number for name, value in read_entities(self.store_of()).items() if value}


@pytest.fixture
def world() -> IndexedEntities:
    return IndexedEntities()


def changing(**changes: int | None) -> Change[list[bool]]:
    """Return a change that puts and removes entities, and returns which of the removed ones were there."""

    def act(entities: EntityChanges, _attempt: object) -> list[bool]:
        done = []
        for name, number in changes.items():
            key = IndexKey.of("ns", name)
            if number is None:
                done.append(entities.remove(key))
            else:
                entities.put(key, Entity(name=name, number=number))
        return done

    return entity_change(act)


class Entities(RuleBasedStateMachine):
    """A catalog equals a dict: several changes per commit, several processes, constant spills, some sweeps."""

    @initialize()
    def begin(self) -> None:
        self.world = IndexedEntities()
        self.others = [self.world.committer_of(self.world.store_of()) for _ in range(2)]
        self.model: dict[str, int] = {}

    @rule(
        changes=st.dictionaries(
            st.sampled_from([f"t{n}" for n in range(30)]), st.none() | st.integers(0, 9), max_size=6
        ),
        who=st.integers(0, 1),
    )
    def commit(self, changes: dict[str, int | None], who: int) -> None:
        removed = self.others[who].commit(changing(**changes)).result
        assert removed == [name in self.model for name, number in changes.items() if number is None]
        for name, number in changes.items():
            if number is None:
                self.model.pop(name, None)
            else:
                self.model[name] = number

    @rule()
    def sweep(self) -> None:
        self.world.sweep(2)

    @invariant()
    def same(self) -> None:
        if hasattr(self, "world"):
            assert self.world.content() == self.model


TestEntities = Entities.TestCase
TestEntities.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_put_after_remove_in_one_commit(world: IndexedEntities) -> None:
    world.committer.commit(changing(a=1))

    def change(entities: EntityChanges, _attempt: object) -> None:
        key = IndexKey.of("ns", "a")
        assert entities.remove(key)
        assert entities.get(key) is None
        assert list(entities.items()) == []
        ref = entities.put(key, Entity(name="a", number=2))
        assert entities.get(key) == ref
        assert dict(entities.items()) == {key: ref}

    world.committer.commit(entity_change(change))
    assert world.content() == {"a": 2}


def test_a_renamed_entity_keeps_its_object(world: IndexedEntities) -> None:
    world.committer.commit(changing(a=1))

    def rename(entities: EntityChanges, _attempt: object) -> None:
        ref = entities.get(IndexKey.of("ns", "a"))
        assert ref
        entities.link(IndexKey.of("ns", "b"), ref)
        entities.remove(IndexKey.of("ns", "a"))

    world.committer.commit(entity_change(rename))
    assert world.content() == {"b": 1}
    assert len(world.backend.stored_ids("entity")) == 1


def test_an_uncontended_commit_that_spills_takes_two_round_trips_too(world: IndexedEntities) -> None:
    world.committer.commit(changing(**{f"t{n}": n for n in range(200)}))
    before = world.backend.stored_ids(STRIPES.name)
    assert len(before) > 1
    world.backend.calls.clear()
    for number in range(100):
        world.committer.commit(changing(**{f"t{number}": 50}))
    assert world.backend.stored_ids(STRIPES.name) > before
    assert world.backend.calls == ["put_many", "replace_reference"] * 100


def test_grouped_changes_see_each_other_and_the_index_is_stored_once(world: IndexedEntities) -> None:
    world.committer.commit(changing(n=0))

    def raised(entities: EntityChanges, _attempt: object) -> int:
        key = IndexKey.of("ns", "n")
        return entities.update(key, lambda old: old.model_copy(update={"number": old.number + 1}), Entity).value.number

    with ThreadPoolExecutor(8) as pool:
        results = [done.result for done in pool.map(lambda _: world.committer.commit(entity_change(raised)), range(80))]
    assert sorted(results) == list(range(1, 81))
    assert world.content() == {"n": 80}
    head = world.committer.head()
    assert head
    assert dict(head.value.waiting) == {}


def test_a_directory_creates_updates_removes(world: IndexedEntities) -> None:
    directory = world.directory()
    with pytest.raises(EntityNotFound):
        directory.get("a")
    directory.create("a", Entity(name="a", number=1))
    with pytest.raises(EntityExists):
        world.directory().create("a", Entity(name="a", number=2))
    updated = directory.update("a", lambda old: old.model_copy(update={"number": 5}))
    assert world.directory().get("a") == updated
    directory.remove("a")
    for missing in (lambda: directory.remove("a"), lambda: directory.update("a", lambda old: old)):
        with pytest.raises(EntityNotFound):
            missing()


def test_paging_sees_one_state_while_others_commit(world: IndexedEntities) -> None:
    directory, other = world.directory(), world.directory()
    for number in range(25):
        directory.create(f"n{number:02}", Entity(name="x", number=number))
    seen: list[int] = []
    token: str | None = None
    while True:
        page = directory.page(limit=4, token=token)
        seen += [one.value.number for _, one in page.entities]
        token = page.next_token
        if token is None:
            break
        other.create(f"n{len(seen):02}x", Entity(name="y", number=-1))
        other.remove(f"n{len(seen):02}")
    assert seen == list(range(25))
    with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
        directory.page(limit=4, token="bm9uZQ")


def test_realms_and_catalogs_are_entities(world: IndexedEntities) -> None:
    realms = world.realms()
    realms.create("acme", {"tier": "gold"})
    with pytest.raises(EntityExists):
        world.realms().create("acme", {})
    with pytest.raises(ValueError, match="name"):
        realms.create("", {})
    realms.update("acme", {"tier": "silver"})
    assert world.realms().get("acme").properties == {"tier": "silver"}
    assert [key.elements() for key, _ in realms.page(limit=10).entities] == [("acme",)]
    store = realms.create_catalog("acme", "sales", {"owner": "x"})
    assert realms.open("acme", "sales").catalog == store.catalog
    assert realms.catalogs("acme").get("sales").value.properties == {"owner": "x"}
    with pytest.raises(EntityExists):
        realms.create_catalog("acme", "sales", {})
    for absent in (lambda: realms.open("acme", "none"), lambda: realms.get("none"), lambda: realms.catalogs("none")):
        with pytest.raises(EntityNotFound):
            absent()


def test_a_catalog_of_a_reused_name_starts_empty(world: IndexedEntities) -> None:
    realms = world.realms()
    realms.create("acme", {})
    old = realms.create_catalog("acme", "sales", {})
    world.committer_of(old).commit(changing(a=1))
    realms.drop_catalog("acme", "sales")
    with pytest.raises(EntityNotFound):
        realms.open("acme", "sales")
    new = realms.create_catalog("acme", "sales", {})
    assert world.committer_of(new).head() is None
    with pytest.raises(ReferenceNotFound):
        world.committer_of(old).commit(changing(b=1))
    world.sweep(2)
    assert world.backend.stored_ids("entity") == set()


def test_an_interrupted_drop_is_continued(world: IndexedEntities) -> None:
    realms = world.realms()
    realms.create("acme", {})
    realms.create_catalog("acme", "sales", {})
    world.backend.meanwhile["delete_reference"] = [lambda: 1 // 0]
    with pytest.raises(ZeroDivisionError):
        realms.drop_catalog("acme", "sales")
    with pytest.raises(EntityNotFound, match="being dropped"):
        world.realms().open("acme", "sales")
    with pytest.raises(EntityExists):
        realms.create_catalog("acme", "sales", {})
    world.realms().drop_catalog("acme", "sales")
    assert {one.key.realm for one in world.backend.references() if one.key.catalog not in {SYSTEM, "c"}} == set()


def test_realm_status_changes_only_as_allowed(world: IndexedEntities) -> None:
    realms = world.realms()
    realms.create("acme", {})
    for wrong in (RealmStatus.PURGING, RealmStatus.ACTIVE):
        with pytest.raises(RealmNotReady):
            realms.set_status("acme", wrong)
    with pytest.raises(RealmNotReady):
        realms.purge("acme")
    realms.set_status("acme", RealmStatus.INACTIVE)
    with pytest.raises(RealmNotReady):
        realms.catalogs("acme")
    realms.set_status("acme", RealmStatus.ACTIVE)
    assert realms.catalogs("acme").page(limit=5).entities == ()


def test_recent_heads_show_which_are_complete_and_reset_moves_to_one(world: IndexedEntities) -> None:
    ids = [world.committer.commit(changing(**{f"t{n}": n})).commit_id or 0 for n in range(5)]
    reference = world.store.current_reference(MAIN)
    heads = list(recent_heads(world.store, reference))
    assert [(one.id, one.current, one.problem) for one in heads] == [
        (id_, position == 0, None) for position, id_ in enumerate(ids[::-1])
    ]
    # The newest head did not arrive, and of the one before an entity did not.
    last = max(world.backend.stored_ids("entity") - {max(world.backend.stored_ids("entity"))})
    world.backend.delete_many(
        [Locator(ObjectKey("r", "c", "catalog-head", ids[4])), Locator(ObjectKey("r", "c", "entity", last))]
    )
    fresh = world.store_of()
    heads = list(recent_heads(fresh, reference))
    assert [one.problem is None for one in heads] == [False, False, True, True, True]
    with pytest.raises(PersistenceError, check=coded("HEAD_INCOMPLETE"), match=str(ids[3])):
        reset(fresh, MAIN, ids[3])
    moved = reset(fresh, MAIN, ids[2])
    assert moved.heads == (ids[2], *ids[::-1])
    assert world.content() == {"t0": 0, "t1": 1, "t2": 2}
    world.committer_of(world.store_of()).commit(changing(new=1))
    assert world.content() == {"t0": 0, "t1": 1, "t2": 2, "new": 1}


def test_reset_refuses_what_is_not_a_recent_head_and_a_moving_reference(world: IndexedEntities) -> None:
    ids = [world.committer.commit(changing(a=n)).commit_id or 0 for n in range(3)]
    with pytest.raises(PersistenceError, check=coded("HEAD_NOT_LISTED"), match="recent heads"):
        reset(world.store, MAIN, 10**9)
    with pytest.raises(ReferenceNotFound):
        reset(world.store, "other", ids[0])
    world.backend.meanwhile["replace_reference"] = [lambda: world.committer_of(world.store_of()).commit(changing(b=1))]
    with pytest.raises(StaleObject):
        reset(world.store, MAIN, ids[0])
    assert world.content() == {"a": 2, "b": 1}


@pytest.mark.parametrize("applied", [True, False])
def test_a_reset_without_an_answer_is_done_once(world: IndexedEntities, applied: bool) -> None:
    ids = [world.committer.commit(changing(a=n)).commit_id or 0 for n in range(3)]
    faults = world.backend.fail_after if applied else world.backend.fail_before
    faults["replace_reference"] = [CommitOutcomeUnknown("cut off")]
    assert reset(world.store, MAIN, ids[0]).heads == (ids[0], *ids[::-1])
    assert world.content() == {"a": 0}


def test_a_commit_prepared_before_a_reset_does_not_undo_it(world: IndexedEntities) -> None:
    ids = [world.committer.commit(changing(a=n)).commit_id or 0 for n in range(3)]
    world.backend.meanwhile["replace_reference"] = [lambda: reset(world.store_of(), MAIN, ids[0])]
    world.committer.commit(changing(b=1))
    assert world.content() == {"a": 0, "b": 1}


def test_a_reset_to_an_incomplete_head_needs_the_option(world: IndexedEntities) -> None:
    done = world.committer.commit(changing(a=1))
    world.committer.commit(changing(a=2))
    first = done.commit_id or 0
    lowest = min(world.backend.stored_ids("entity"))
    world.backend.delete_many([Locator(ObjectKey("r", "c", "entity", lowest))])
    fresh = world.store_of()
    with pytest.raises(PersistenceError, check=coded("HEAD_INCOMPLETE")):
        reset(fresh, MAIN, first)
    assert reset(fresh, MAIN, first, even_if_incomplete=True).head == first


def test_a_head_with_changes_is_a_new_value(world: IndexedEntities) -> None:
    one = EntityHead()
    other = one.with_changes({KEYS[0]: ObjectRef("entity", 1)})
    assert dict(one.waiting) == {}
    again = other.with_changes({KEYS[1]: ObjectRef("entity", 2), KEYS[2]: None})
    assert dict(other.waiting) == {KEYS[0]: ObjectRef("entity", 1)}
    assert dict(again.waiting) == {KEYS[0]: ObjectRef("entity", 1), KEYS[1]: ObjectRef("entity", 2), KEYS[2]: None}
