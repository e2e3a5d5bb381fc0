"""Maintenance of large stores: it stops and continues anywhere, in chunks and segments, each realm for itself."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from polaris_persistence.backends.base import Locator
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.errors import MaintenanceRefused
from polaris_persistence.maintenance.run import RealmSweepReport, SweepPolicy
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, HEAD, CountingBackend, Entity, Head, committer_on, store_on
from tests.persistence.maintenance.test_maintenance import FOLDER, Folder

GRACE = 1_000.0
TYPES = ObjectTypes([*OWN_TYPES, ENTITY, HEAD, FOLDER])


class CatalogOfManyTables:
    def __init__(self) -> None:
        self.clock = MicrosecondClock()
        self.backend = CountingBackend()
        self.backend.now_us = self.clock.now_us  # type: ignore[method-assign]
        self.fetched = 0
        self._ids = itertools.count(1)
        self.store = self.store_of("r", "c")
        self.store.create_reference("main")

    def store_of(self, realm: str, catalog: str) -> CatalogStore:
        return store_on(self.backend, self.clock, ids=self._ids.__next__, realm=realm, catalog=catalog, types=TYPES)

    def run(self, stop: Callable[[], bool] = lambda: False, **policy: Any) -> RealmSweepReport:
        process = PersistenceProcess(self.backend, types=TYPES, now_ns=lambda: self.clock.us * 1_000)
        settings = {"grace": GRACE, "page": 20, "lost_after": 100.0, **policy}
        return process.maintenance(SweepPolicy(**settings)).run(stop)

    def fill(self, store: CatalogStore, folders: int) -> None:
        """Commit folders with one entity each, and write as many entities that nothing names."""

        def change(attempt: Any) -> Any:
            named = {}
            for number in range(folders):
                leaf = attempt.write(Entity(name=f"leaf {number}"))
                named[str(number)] = attempt.write(Folder(members=(leaf,)))
            return Head(entities=named), None

        committer_on(store, self.clock).commit(change)
        store.write([Entity(name="garbage") for _ in range(folders)])


def after_steps(steps: int) -> Callable[[], bool]:
    calls = itertools.count(1)
    return lambda: next(calls) > steps


def test_a_run_stopped_inside_a_reference_continues_there() -> None:
    world = CatalogOfManyTables()
    world.fill(world.store, 1_000)
    reads = 0
    for _ in range(2):
        world.clock.advance(GRACE + 60)
        runs = 0
        while True:
            runs += 1
            world.backend.calls.clear()
            report = world.run(after_steps(2), page=200)
            reads += world.backend.calls.count("fetch_many")
            if report.complete:
                break
    assert runs > 5, "a run was not stopped inside the only reference"
    assert report.deleted == 1_000
    assert len(world.backend.stored_ids("entity")) == 1_000
    # Folders are read once per run, 200 at a time; the rest are the task and its chunks.
    assert reads < 100


def test_a_realm_that_refuses_is_reported_and_the_others_are_swept() -> None:
    world = CatalogOfManyTables()
    stores = [world.store_of(realm, "c") for realm in ("a", "b")]
    for store in stores:
        store.create_reference("main")
        world.fill(store, 30)
    broken = stores[0].current_reference("main").head
    world.backend.delete_many([Locator(stores[0].key(ref)) for ref in _folders(world, stores[0])[:1]])
    assert broken
    deleted = 0
    for _ in range(2):
        world.clock.advance(GRACE + 60)
        report = world.run()
        deleted += report.deleted
        assert report.complete
        assert [place for place, _ in report.refused] == ["a/c"]
        assert "missing" in dict(report.refused)["a/c"]
    assert deleted == 30
    kept = [key for key in world.backend._objects if key.type == "entity"]
    assert [sum(key.realm == realm for key in kept) for realm in ("a", "b")] == [60, 30]


def _folders(world: CatalogOfManyTables, store: CatalogStore) -> list[Any]:
    head = committer_on(store, world.clock).head()
    assert head is not None
    return list(head.value.entities.values())


@pytest.mark.parametrize("stopped", [False, True])
def test_a_table_is_scanned_in_segments(stopped: bool) -> None:
    world = CatalogOfManyTables()
    world.fill(world.store, 200)
    deleted = 0
    for _ in range(2):
        world.clock.advance(GRACE + 60)
        for _ in range(100):
            report = world.run(after_steps(3) if stopped else lambda: False, segments=4)
            if report.complete:
                break
        deleted = report.deleted
    assert deleted == 200
    assert len(world.backend.stored_ids("entity")) == 200


def test_what_a_run_remembers_is_stored_in_chunks() -> None:
    world = CatalogOfManyTables()
    world.fill(world.store, 300)
    largest = 0
    for _ in range(2):
        world.clock.advance(GRACE + 60)
        for _ in range(200):
            report = world.run(after_steps(4), chunk=50)
            stored = [one for key, one in world.backend._objects.items() if key.type == "maintenance-keys"]
            largest = max([largest, *(len(one.value) for one in stored)])
            if report.complete:
                break
    assert report.deleted == 300
    assert 0 < largest < 50 * 8 + 200


def test_a_refusal_of_the_only_realm_leaves_its_objects() -> None:
    world = CatalogOfManyTables()
    world.fill(world.store, 10)
    world.backend.delete_many([Locator(world.store.key(_folders(world, world.store)[0]))])
    before = len(world.backend.stored_ids("entity"))
    for _ in range(3):
        world.clock.advance(GRACE + 60)
        with contextlib.suppress(MaintenanceRefused):
            assert world.run().refused
    assert len(world.backend.stored_ids("entity")) == before
