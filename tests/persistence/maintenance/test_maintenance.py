"""Mark and sweep: what is kept, what is deleted, and when a run refuses."""

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import cbor2
import pytest

from polaris_persistence.backends.base import Locator, ObjectKey, StoredObject
from polaris_persistence.commits.committer import CommitRetries
from polaris_persistence.maintenance.keys import KEYS_TYPE, MARKS_TYPE
from polaris_persistence.maintenance.run import RealmSweepReport
from polaris_persistence.maintenance.sweep import MAINTENANCE_TYPES
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.types import ObjectType, ObjectTypes
from tests.persistence.builders import (
    COUNTER,
    ENTITY,
    HEAD,
    Counter,
    Entity,
    Head,
    committer_on,
    put,
)
from tests.persistence.worlds import Catalogs

GRACE = 1_000.0


class Folder(PersistedModel):
    """An entity that keeps others alive."""

    members: tuple[ObjectRef, ...] = ()


FOLDER = ObjectType("folder", Folder, links=lambda folder, _fetch: iter(folder.members))
TYPES = ObjectTypes([ENTITY, HEAD, COUNTER, FOLDER, *MAINTENANCE_TYPES])


class MaintainedCatalog(Catalogs):
    types = TYPES
    policy: ClassVar[dict[str, Any]] = {"grace": GRACE, "page": 3, "lost_after": 100.0}

    def __init__(self) -> None:
        super().__init__()
        self.committer = committer_on(self.store, self.clock)

    def run(self, stop: Callable[[], bool] = lambda: False, **policy: Any) -> RealmSweepReport:
        return self.maintenance(**policy).run(stop)

    def swept(self) -> RealmSweepReport:
        """Run twice, a grace period apart: what is garbage now is deleted, and catalogs may be refused."""
        self.run()
        self.clock.advance(GRACE + 2)
        return self.run()

    def ids(self, type_: str = "entity") -> set[int]:
        return self.backend.stored_ids(type_)


def stop_after(steps: int) -> Callable[[], bool]:
    calls = itertools.count(1)
    return lambda: next(calls) > steps


@pytest.fixture
def world() -> MaintainedCatalog:
    return MaintainedCatalog()


def test_objects_that_no_head_names_are_deleted_a_grace_period_after_a_run_found_them(world: MaintainedCatalog) -> None:
    kept = world.committer.commit(put("a", 1)).result
    [garbage] = world.store.write([Entity(name="garbage")])
    world.clock.advance(10 * GRACE)
    first = world.run()
    assert (first.deleted, first.young) == (0, 1)
    world.clock.advance(GRACE - 1)
    early = world.run()
    assert early == RealmSweepReport(complete=True, not_before=early.not_before)
    assert early.not_before is not None
    world.clock.us = early.not_before
    report = world.run()
    assert report.deleted == 1
    assert world.ids() == {kept.id}
    assert garbage.id != kept.id
    assert world.committer.commit(put("b", 1)).result.id in world.ids()


def test_what_one_run_found_unneeded_is_kept_if_a_head_names_it_in_the_next(world: MaintainedCatalog) -> None:
    """An id kept outside of a head for less than a grace period may be committed."""
    [late] = world.store.write([Entity(name="late", number=7)])
    assert world.run().young == 1
    world.committer.commit(lambda _attempt: (Head(entities={"late": late}), None))
    world.clock.advance(GRACE + 2)
    assert world.run().deleted == 0
    assert late.id in world.ids()


def test_links_are_followed(world: MaintainedCatalog) -> None:
    leaf, lost = world.store.write([Entity(name="leaf"), Entity(name="lost")])
    [inner] = world.store.write([Folder(members=(leaf,))])
    [outer] = world.store.write([Folder(members=(inner, inner))])
    world.store.write([Folder(members=(lost,))])
    world.committer.commit(lambda _attempt: (Head(entities={"f": outer}), None))
    world.swept()
    assert world.ids("folder") == {inner.id, outer.id}
    assert world.ids() == {leaf.id}


def test_updateable_and_unknown_objects_are_not_swept(world: MaintainedCatalog) -> None:
    world.store.updateables.insert(ObjectKey("r", "c", "counter", 5), Counter())
    foreign = StoredObject(ObjectKey("r", "c", "foreign", 9), cbor2.dumps({"a": 1}), 1)
    world.backend.put_many([foreign])
    report = world.swept()
    assert (report.deleted, report.unknown) == (0, 1)
    assert world.ids("counter") == {5}
    assert world.ids("foreign") == {9}


@pytest.mark.parametrize("linked", ["foreign", "newer", "missing", "missing head"])
def test_a_run_refuses_when_links_cannot_be_followed(world: MaintainedCatalog, linked: str) -> None:
    """Nothing is deleted if an object was written by a newer release in a rolling upgrade, or is missing."""
    [garbage] = world.store.write([Entity(name="garbage")])
    ref = ObjectRef("foreign" if linked == "foreign" else "folder", 7_000)
    if not linked.startswith("missing"):
        key = ObjectKey("r", "c", ref.type, ref.id)
        world.backend.put_many([StoredObject(key, cbor2.dumps({"members": [], "news": [["entity", garbage.id]]}), 1)])
    head = world.committer.commit(lambda _attempt: (Head(entities={} if "head" in linked else {"f": ref}), None))
    if linked == "missing head":
        world.backend.delete_many([Locator(ObjectKey("r", "c", "head", head.commit_id or 0))])
    assert [place for place, _ in world.swept().refused] == ["r/c"]
    assert garbage.id in world.ids()
    world.maintenance().task.start()


def test_a_stopped_run_is_continued(world: MaintainedCatalog) -> None:
    for number in range(10):
        world.committer.commit(put(f"n{number}", number))
    world.store.write([Entity(name="garbage") for _ in range(20)])
    other = world.store_of("r2", "c")
    other.create_reference("main")
    world.run()
    world.clock.advance(GRACE + 2)
    reports = []
    for _ in range(100):
        reports.append(world.run(stop_after(1)))
        if reports[-1].complete:
            break
    assert len(reports) > 5
    # Every row was read once, and the references were marked once.
    assert reports[-1].deleted == 20
    assert reports[-1].references == 2
    assert [one.scanned for one in reports] == sorted(one.scanned for one in reports)
    assert len(world.ids()) == 10
    assert world.ids(MARKS_TYPE.name) == set()


def test_a_run_stopped_long_ago_is_continued(world: MaintainedCatalog) -> None:
    """What was written meanwhile was not scanned, so it is not deleted."""
    world.committer.commit(put("a", 1))
    [old] = world.store.write([Entity(name="garbage")])
    world.run()
    world.clock.advance(GRACE + 2)
    world.run(stop_after(3))
    world.clock.advance(30 * GRACE)
    [new] = world.store.write([Entity(name="garbage")])
    newest = world.committer.commit(put("b", 1)).result
    assert world.run().complete
    assert old.id not in world.ids()
    assert {new.id, newest.id} <= world.ids()


def test_a_run_whose_chunks_are_gone_begins_anew_and_deletes_nothing_too_early(world: MaintainedCatalog) -> None:
    world.store.write([Entity(name="garbage")])
    world.run()
    world.clock.advance(GRACE + 2)
    assert not world.run(stop_after(2)).complete
    for type_ in (KEYS_TYPE.name, MARKS_TYPE.name):
        world.backend.delete_many([Locator(ObjectKey("", "", type_, id_)) for id_ in world.ids(type_)])
    assert world.run().deleted == 0
    assert world.swept().deleted == 1
    assert world.ids() == set()


def test_a_state_that_another_release_left_is_not_used(world: MaintainedCatalog) -> None:
    """The last release's state has other fields; a newer one's may have more. Both begin anew."""
    world.store.write([Entity(name="garbage")])
    for state in ({"expected": 7}, {"two-runs": {"later": 1}}, {"two-runs": {"unneeded": "x"}}):
        world.maintenance().task.start().finish(state)
        assert world.run().deleted == 0
        world.clock.advance(GRACE + 2)


def test_a_commit_prepared_before_the_reference_was_marked_writes_its_objects_again(world: MaintainedCatalog) -> None:
    """It is frozen before its swap for longer than the grace period: its objects are swept and written again."""
    world.committer.commit(put("a", 1))

    def frozen() -> None:
        assert world.swept().deleted >= 2

    world.committer = committer_on(world.store, world.clock, retry=CommitRetries(seconds=1e9))
    world.backend.meanwhile["replace_reference"] = [frozen]
    done = world.committer.commit(put("b", 2))
    fresh = world.store_of("r", "c")
    head = committer_on(fresh, world.clock).head()
    assert head
    assert head.key.id == done.commit_id
    found = fresh.fetch_many(head.value.entities.values())
    assert [one.value.number for one in found if isinstance(one and one.value, Entity)] == [1, 2]
