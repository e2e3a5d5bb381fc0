"""Mark and sweep: what is kept, what is deleted, and when a run refuses."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.persistence.backends.base import Locator, ObjectKey, StoredObject
from delegation.persistence.commits.committer import CommitRetries
from delegation.persistence.errors import CorruptObject, MaintenanceRefused, TaskHeld
from delegation.persistence.maintenance.bloom import BloomFilter
from delegation.persistence.maintenance.coordination import TASK_TYPE
from delegation.persistence.maintenance.sweep import FILTER_TYPE, RealmMaintenance, RealmSweepReport, SweepPolicy
from delegation.persistence.objects.objects import ObjectRef, PersistedModel
from delegation.persistence.objects.store import CatalogStore
from delegation.persistence.objects.types import Fetch, ObjectType, ObjectTypes
from tests.unit.persistence.builders import (
    COUNTER,
    ENTITY,
    HEAD,
    Counter,
    CountingBackend,
    Entity,
    FakeClock,
    Head,
    committer_on,
    put,
    store_on,
)

GRACE = 1_000.0


class Folder(PersistedModel):
    """An entity that keeps others alive."""

    members: tuple[ObjectRef, ...] = ()


def folder_links(folder: Folder, _fetch: Fetch) -> Iterator[ObjectRef]:
    return iter(folder.members)


FOLDER = ObjectType("folder", Folder, links=folder_links)
TYPES = ObjectTypes([ENTITY, HEAD, COUNTER, FOLDER, FILTER_TYPE, TASK_TYPE])


class World:
    def __init__(self, **policy: Any) -> None:
        self.backend = CountingBackend()
        self.clock = FakeClock()
        self._ids = itertools.count(1)
        self.store = self.store_of("r", "c")
        self.store.create_reference("main")
        self.committer = committer_on(self.store, self.clock)
        self.policy: dict[str, Any] = {"grace": GRACE, "expected": 1_000, "page": 3, "lost_after": 100.0, **policy}

    def store_of(self, realm: str, catalog: str) -> CatalogStore:
        return store_on(self.backend, self.clock, ids=self._ids.__next__, realm=realm, catalog=catalog, types=TYPES)

    def maintenance(self, **policy: Any) -> RealmMaintenance:
        return RealmMaintenance(
            self.backend,
            self.store_of,
            now_us=self.clock.now_us,
            policy=SweepPolicy(**{**self.policy, **policy}),
            salt=lambda: bytes(16),
        )

    def run(self, **policy: Any) -> RealmSweepReport:
        return self.maintenance(**policy).run()

    def ids(self, type_: str = "entity") -> set[int]:
        return self.backend.stored_ids(type_)


@pytest.fixture
def world() -> World:
    return World()


def stop_after(steps: int) -> Callable[[], bool]:
    calls = itertools.count(1)
    return lambda: next(calls) > steps


def test_an_empty_store(world: World) -> None:
    report = world.run()
    assert report == RealmSweepReport(complete=True, references=1, scanned=report.scanned, young=report.young)


def test_objects_that_no_head_names_are_deleted_after_the_grace_period(world: World) -> None:
    kept = world.committer.commit(put("a", 1)).result
    [garbage] = world.store.write([Entity(name="garbage")])
    world.clock.advance(GRACE - 1)
    assert world.run().deleted == 0
    world.clock.advance(2)
    report = world.run()
    assert report.deleted == 1
    assert world.ids() == {kept.id}
    assert garbage.id != kept.id
    assert world.committer.commit(put("b", 1)).result.id in world.ids()


def test_replaced_entities_are_kept_while_a_commit_that_names_them_may_be_read(world: World) -> None:
    old = world.committer.commit(put("a", 1)).result
    for _ in range(25):
        world.clock.advance(10)
        new = world.committer.commit(put("a", 2)).result
    world.clock.advance(GRACE - 300)
    world.run()
    assert {old.id, new.id} <= world.ids()
    world.clock.advance(300)
    world.run()
    # The old one is behind the recent heads, which are kept as long as they are listed.
    assert old.id not in world.ids()
    assert len(world.ids("head")) == 20
    assert new.id in world.ids()


def test_the_commit_that_was_the_head_at_the_cutoff_is_kept(world: World) -> None:
    """A listing may have begun on it just before the next commit was made."""
    ids = []
    for _ in range(30):
        ids.append(world.committer.commit(put("a", 1)).commit_id)
        world.clock.advance(100)
    # Commits are 100 s apart, the last 100 s ago: those of the last 1,000 s, and the one before them.
    world.run()
    assert world.ids("head") == set(ids[-20:])
    world.policy["grace"] = 2_450
    for _ in range(5):
        ids.append(world.committer.commit(put("a", 1)).commit_id)
        world.clock.advance(100)
    world.run()
    assert world.ids("head") == set(ids[-25:])


def test_links_are_followed(world: World) -> None:
    leaf, lost = world.store.write([Entity(name="leaf"), Entity(name="lost")])
    [inner] = world.store.write([Folder(members=(leaf,))])
    [outer] = world.store.write([Folder(members=(inner, inner))])
    [cycle] = world.store.write([Folder(members=(lost,))])

    def change(attempt: Any) -> Any:
        return Head(entities={"f": outer}), None

    world.committer.commit(change)
    world.clock.advance(GRACE + 1)
    world.run()
    assert world.ids("folder") == {inner.id, outer.id}
    assert world.ids() == {leaf.id}
    assert cycle.id not in world.ids("folder")


def test_updateable_and_unknown_objects_are_not_swept(world: World) -> None:
    world.store.updateables.insert(ObjectKey("r", "c", "counter", 5), Counter())
    foreign = StoredObject(ObjectKey("r", "c", "foreign", 9), cbor2.dumps({"a": 1}), 1)
    world.backend.put_many([foreign])
    world.clock.advance(GRACE + 1)
    report = world.run()
    assert (report.deleted, report.unknown) == (0, 1)
    assert world.ids("counter") == {5}
    assert world.ids("foreign") == {9}


def test_every_realm_and_catalog_is_swept_and_equal_ids_are_kept_apart(world: World) -> None:
    kept = world.committer.commit(put("a", 1)).result
    elsewhere = [
        StoredObject(ObjectKey(realm, catalog, "entity", kept.id), cbor2.dumps({"name": "x"}), 1)
        for realm, catalog in (("r", "c2"), ("r2", "c"))
    ]
    world.backend.put_many(elsewhere)
    world.clock.advance(GRACE + 1)
    assert world.run().deleted == 2
    assert world.ids() == {kept.id}


@pytest.mark.parametrize("linked", ["foreign", "newer", "missing"])
def test_a_run_refuses_when_links_cannot_be_followed(world: World, linked: str) -> None:
    """Nothing is deleted if an object was written by a newer release in a rolling upgrade, or is missing."""
    [garbage] = world.store.write([Entity(name="garbage")])
    ref = ObjectRef("foreign" if linked == "foreign" else "folder", 7_000)
    if linked != "missing":
        key = ObjectKey("r", "c", ref.type, ref.id)
        world.backend.put_many([StoredObject(key, cbor2.dumps({"members": [], "news": [["entity", garbage.id]]}), 1)])
    world.committer.commit(lambda attempt: (Head(entities={"f": ref}), None))
    world.clock.advance(GRACE + 1)
    with pytest.raises(MaintenanceRefused):
        world.run()
    assert garbage.id in world.ids()
    world.maintenance().task.start()


def test_a_missing_head_refuses_the_run(world: World) -> None:
    done = world.committer.commit(put("a", 1))
    world.backend.delete_many([Locator(ObjectKey("r", "c", "head", done.commit_id or 0))])
    world.clock.advance(GRACE + 1)
    with pytest.raises(MaintenanceRefused, match=str(done.commit_id)):
        world.run()
    assert done.result.id in world.ids()


def test_abort_ratio_ends_a_run_whose_filter_is_too_small_and_the_next_one_is_larger() -> None:
    world = World(expected=10, abort_ratio=2.0)
    world.committer.commit(
        lambda attempt: (Head(entities={str(n): attempt.write(Entity(name=str(n))) for n in range(50)}), None)
    )
    [garbage] = world.store.write([Entity(name="garbage")])
    world.clock.advance(GRACE + 1)
    with pytest.raises(MaintenanceRefused, match="was made for 10"):
        world.run()
    assert garbage.id in world.ids()
    assert world.run().complete
    assert garbage.id not in world.ids()


def test_a_filter_with_too_many_false_positives_refuses() -> None:
    world = World(expected=10, abort_ratio=100.0, max_false_positive_rate=1e-3)
    world.committer.commit(
        lambda attempt: (Head(entities={str(n): attempt.write(Entity(name=str(n))) for n in range(50)}), None)
    )
    world.clock.advance(GRACE + 1)
    with pytest.raises(MaintenanceRefused, match="false positive"):
        world.run()


def test_a_stopped_run_is_continued(world: World) -> None:
    for number in range(10):
        world.committer.commit(put(f"n{number}", number))
    world.store.write([Entity(name="garbage") for _ in range(20)])
    other = world.store_of("r2", "c")
    other.create_reference("main")
    world.clock.advance(GRACE + 1)
    reports = []
    for _ in range(100):
        reports.append(world.maintenance().run(stop_after(1)))
        if reports[-1].complete:
            break
    assert len(reports) > 5
    # Every row was read once, and the references were marked once.
    assert reports[-1].deleted == 20
    assert reports[-1].references == 2
    assert [one.scanned for one in reports] == sorted(one.scanned for one in reports)
    assert len(world.ids()) == 10
    assert world.ids(FILTER_TYPE.name) == set()


def test_a_run_stopped_too_long_ago_starts_again(world: World) -> None:
    world.committer.commit(put("a", 1))
    world.maintenance().run(stop_after(2))
    world.clock.advance(3 * GRACE)
    [garbage] = world.store.write([Entity(name="garbage")])
    world.clock.advance(GRACE + 1)
    report = world.run()
    assert report.complete
    assert garbage.id not in world.ids()
    assert world.ids(FILTER_TYPE.name) == set()


def test_one_run_at_a_time(world: World) -> None:
    world.committer.commit(put("a", 1))
    met: list[str] = []

    def stop() -> bool:
        with pytest.raises(TaskHeld):
            world.run()
        met.append("held")
        return False

    assert world.maintenance().run(stop).complete
    assert met


def test_a_commit_prepared_before_the_reference_was_marked_writes_its_objects_again(world: World) -> None:
    """It is frozen before its swap for longer than the grace period: its objects are swept and written again."""
    world.committer.commit(put("a", 1))

    def frozen() -> None:
        world.clock.advance(GRACE + 1)
        assert world.run().deleted >= 2

    world.committer = committer_on(world.store, world.clock, retry=CommitRetries(seconds=1e9))
    world.backend.meanwhile["replace_reference"] = [frozen]
    done = world.committer.commit(put("b", 2))
    fresh = world.store_of("r", "c")
    head = committer_on(fresh, world.clock).head()
    assert head
    assert head.key.id == done.commit_id
    found = fresh.fetch_many(head.value.entities.values())
    assert [one.value.number for one in found if isinstance(one and one.value, Entity)] == [1, 2]


def test_a_reset_to_a_recent_head_is_possible_after_a_sweep(world: World) -> None:
    first = world.committer.commit(put("a", 1))
    for number in range(5):
        world.committer.commit(put("a", number + 2))
    world.clock.advance(10 * GRACE)
    world.run()
    reference = world.store.current_reference("main")
    assert first.commit_id in reference.heads
    world.backend.replace_reference(reference.moved_to(first.commit_id or 0), expected=reference)
    world.clock.advance(10 * GRACE)
    world.run()
    fresh = world.store_of("r", "c")
    head = committer_on(fresh, world.clock).head()
    assert head
    found = fresh.fetch(head.value.entities["a"], Entity)
    assert found
    assert found.value.number == 1


KEYS = st.builds(ObjectKey, st.text(), st.text(), st.text(), st.integers(0, 2**63 - 1))


@given(st.lists(KEYS), st.binary(min_size=16, max_size=16))
def test_a_filter_finds_every_added_key(keys: list[ObjectKey], salt: bytes) -> None:
    one = BloomFilter.for_keys(max(1, len(keys)), 0.01, salt)
    for key in keys:
        one.add(key)
    restored = BloomFilter(one.size, one.hashes, one.salt, bytes(one.bits), one.count)
    assert all(key in one and key in restored for key in keys)
    assert one.count <= len(set(keys))


@pytest.mark.parametrize("rate", [0.01, 0.001])
def test_measured_false_positive_rate_is_the_requested_one(rate: float) -> None:
    one = BloomFilter.for_keys(20_000, rate, bytes(16))
    for number in range(20_000):
        one.add(ObjectKey("r", "c", "t", number))
    wrong = sum(ObjectKey("r", "c", "t", number) in one for number in range(20_000, 120_000)) / 100_000
    assert 0.5 * rate < wrong < 1.5 * rate
    assert wrong == pytest.approx(one.false_positive_rate(), rel=0.35)


def test_another_salt_has_other_false_positives() -> None:
    wrong = []
    for salt in (bytes(16), b"\x01" * 16):
        one = BloomFilter.for_keys(500, 0.05, salt)
        for number in range(500):
            one.add(ObjectKey("r", "c", "t", number))
        wrong.append({number for number in range(500, 5_000) if ObjectKey("r", "c", "t", number) in one})
    assert wrong[0]
    assert wrong[1]
    assert len(wrong[0] & wrong[1]) < len(wrong[0]) / 3


def test_a_stored_filter_of_another_size_is_corrupt() -> None:
    one = BloomFilter.for_keys(100, 0.01, bytes(16))
    with pytest.raises(CorruptObject):
        BloomFilter(one.size, one.hashes, one.salt, bytes(one.bits)[:-1])
