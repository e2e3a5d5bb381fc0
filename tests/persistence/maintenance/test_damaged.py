"""Damaged rows and objects in the store: each stops its own catalog alone, and nothing is deleted on its account."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cbor2
import pytest

from polaris_persistence.backends.base import SYSTEM, ObjectKey, ReferenceKey, StoredObject
from polaris_persistence.backends.dynamodb import DynamoDbBackend
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.errors import BackendUnavailable, CorruptObject, MaintenanceRefused, NoFreeNode
from polaris_persistence.ids.nodes import _key
from polaris_persistence.maintenance import marking
from polaris_persistence.maintenance.keys import KEYS_TYPE, MARKS_TYPE
from polaris_persistence.maintenance.recovery import recent_heads
from polaris_persistence.objects.objects import Loaded, ObjectRef
from polaris_persistence.objects.store import CatalogStore
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import Entity, committer_on, put, split_id, store_on
from tests.persistence.contract.backends import damage_row, moto_backend
from tests.persistence.ids.test_ids import Process
from tests.persistence.maintenance.test_maintenance import GRACE, MaintainedCatalog, stop_after

CATALOGS = [("r", "c"), ("r", "c2"), ("r2", "c")]


class ThreeCatalogs(MaintainedCatalog):
    """Catalogs of two realms, each with one entity that is named and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: dict[tuple[str, str], CatalogStore] = {}
        for place in CATALOGS:
            store = self.stores[place] = self.store_of(*place)
            if place != ("r", "c"):
                store.create_reference("main")
            committer_on(store, self.clock).commit(put("a", 1))
            store.write([Entity(name="garbage")])

    def left(self) -> dict[tuple[str, str], int]:
        """Count the entities of each catalog."""
        entities = [key for key in self.backend._objects if key.type == "entity"]
        return {place: sum((key.realm, key.catalog) == place for key in entities) for place in CATALOGS}

    def reference_key(self, place: tuple[str, str]) -> ReferenceKey:
        return self.stores[place].reference_key("main")


def test_a_reference_that_cannot_be_read_keeps_its_catalog_and_no_other() -> None:
    world = ThreeCatalogs()
    key = world.reference_key(("r", "c2"))
    damaged = replace(world.backend._references[key], heads=(), problem="the heads are truncated")
    world.backend._references[key] = damaged
    report = world.swept()
    assert report.refused == (("r/c2", f"reference {key}: the heads are truncated"),)
    assert world.left() == {("r", "c"): 1, ("r", "c2"): 2, ("r2", "c"): 1}


def test_a_reference_of_what_belongs_to_the_realm_keeps_no_catalog() -> None:
    world = ThreeCatalogs()
    store = world.store_of("r", SYSTEM)
    store.create_reference("catalogs")
    key = store.reference_key("catalogs")
    world.backend._references[key] = replace(world.backend._references[key], problem="x")
    assert [place for place, _ in world.swept().refused] == ["r/"]
    assert world.left() == dict.fromkeys(CATALOGS, 1)


def test_a_reference_of_an_unknown_catalog_keeps_its_realm() -> None:
    world = ThreeCatalogs()
    key = ReferenceKey("r", "", "")
    world.backend._references[key] = replace(
        world.backend._references[world.reference_key(("r", "c"))], key=key, heads=(), problem="no key"
    )
    assert [place for place, _ in world.swept().refused] == ["r"]
    assert world.left() == {("r", "c"): 2, ("r", "c2"): 2, ("r2", "c"): 1}


@pytest.mark.parametrize("error", [KeyError("links"), CorruptObject("x"), MaintenanceRefused("x"), TypeError("x")])
def test_whatever_a_type_raises_for_its_links_keeps_its_catalog_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    world = ThreeCatalogs()
    real = marking.Marker.links

    def links(self: Any, store: CatalogStore, found: Any) -> Any:
        if store.catalog == "c2":
            raise error
        return real(self, store, found)

    monkeypatch.setattr(marking.Marker, "links", links)
    assert [place for place, _ in world.swept().refused] == ["r/c2"]
    assert world.left() == {("r", "c"): 1, ("r", "c2"): 2, ("r2", "c"): 1}


def test_a_store_that_refuses_calls_is_no_catalogs_error(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ThreeCatalogs()

    def links(*_: Any) -> Any:
        raise BackendUnavailable("no permission", code="PERSISTENCE_REFUSED", retryable=False)

    monkeypatch.setattr(marking.Marker, "links", links)
    with pytest.raises(BackendUnavailable):
        world.run()
    assert world.left() == dict.fromkeys(CATALOGS, 2)


@pytest.mark.parametrize("type_", [KEYS_TYPE.name, MARKS_TYPE.name])
@pytest.mark.parametrize("value", [b"\xff", cbor2.dumps({"bits": b"x", "groups": []}), cbor2.dumps([])])
def test_what_a_run_stored_and_cannot_be_read_counts_as_missing(type_: str, value: bytes) -> None:
    """The next run begins at the scan, or deletes nothing; the one after a grace period deletes."""
    world = ThreeCatalogs()
    world.run()
    world.clock.advance(GRACE + 2)
    assert not world.run(stop_after(2)).complete
    for key, stored in list(world.backend._objects.items()):
        if key.type == type_:
            world.backend._objects[key] = replace(stored, value=value)
    for _ in range(3):
        assert world.run().complete
        assert min(world.left().values()) >= 1
        world.clock.advance(GRACE + 2)
    assert world.left() == dict.fromkeys(CATALOGS, 1)


def test_a_state_of_a_former_release_keeps_whole_realms() -> None:
    world = ThreeCatalogs()
    world.run()
    world.clock.advance(GRACE + 2)
    task = world.maintenance().task
    assert not world.run(stop_after(3)).complete
    held = task.start()
    state: Any = dict(held.state)
    state["two-runs"]["run"]["refused"] = {"r": "missing"}
    held.checkpoint(state)
    held.hand_over()
    assert world.run().refused == (("r", "missing"),)
    assert world.left()["r", "c"] == world.left()["r", "c2"] == 2


def test_a_recent_head_that_cannot_be_read_is_named_beside_the_others() -> None:
    world = ThreeCatalogs()
    for number in range(3):
        world.committer.commit(put("b", number))
    reference = world.store.current_reference("main")
    key = ObjectKey("r", "c", "head", reference.heads[1])
    world.backend._objects[key] = replace(world.backend._objects[key], value=b"\xff")
    heads = list(recent_heads(world.store_of("r", "c"), reference))
    assert [one.problem is None for one in heads] == [True, False, True, True]


@pytest.fixture
def rows() -> Iterator[DynamoDbBackend]:
    with moto_backend() as backend:
        yield backend


BAD_ROWS: dict[str, dict[str, Any]] = {
    "no heads": {"heads": None},
    "heads of text": {"heads": {"S": "x"}},
    "truncated heads": {"heads": {"B": b"abc"}},
    "no version": {"version": None},
    "a version of text": {"version": {"S": "x"}},
    "waiting as text": {"waiting": {"S": "x"}},
    "an odd key": {"key": {"S": "r/c"}},
    "a foreign key": {"key": {"S": "x"}},
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=list(BAD_ROWS))
def test_a_row_that_is_no_reference_is_listed_with_its_problem(rows: DynamoDbBackend, bad: dict[str, Any]) -> None:
    store, other = store_on(rows), store_on(rows, catalog="other")
    store.create_reference("main")
    other.create_reference("main")
    damage_row(rows._calls.client, rows._references, lambda key: key.startswith("r/c/"), bad)
    found = {one.key: one.problem for one in rows.references()}
    assert len(found) == 2
    assert found.pop(other.reference_key("main")) is None
    [(key, problem)] = found.items()
    assert problem
    assert (key.realm, key.catalog) == ("r", "c" if "key" not in bad else "") or key.realm == "x"
    assert len(list(rows.references(realm="r"))) == (1 if key.realm == "x" else 2)


BAD_OBJECTS: list[dict[str, Any]] = [
    {"created_at": None},
    {"created_at": {"S": "x"}},
    {"parts": {"S": "x"}},
    {"key": {"S": "r/c/entity"}},
    {"key": {"S": "r/c/entity/x"}},
]


@pytest.mark.parametrize("bad", BAD_OBJECTS, ids=str)
def test_an_object_row_that_cannot_be_read_is_counted_by_a_scan(rows: DynamoDbBackend, bad: dict[str, Any]) -> None:
    keys = [ObjectKey("r", "c", "entity", number) for number in (1, 2)]
    rows.put_many(StoredObject(key, cbor2.dumps({"name": "x"}), 1) for key in keys)
    damage_row(rows._calls.client, rows._objects, lambda key: key.endswith("/1"), bad)
    page = rows.scan()
    assert ([one.key for one in page.rows], page.unread) == (keys[1:], 1)
    found = store_on(rows).fetch_readable(ObjectRef(key.type, key.id) for key in keys)
    assert isinstance(found[0], CorruptObject if "key" not in bad else type(None))
    assert isinstance(found[1], Loaded)


def test_a_lease_that_cannot_be_read_keeps_its_node_and_no_other() -> None:
    backend, clock = MemoryBackend(), MicrosecondClock()
    bad = _key(1)
    backend.put_many([StoredObject(bad, b"\xff", 1, "token")])
    assert {split_id(Process(backend, clock, seed, nodes=3).next_id()).node for seed in (1, 2)} == {0, 2}
    with pytest.raises(NoFreeNode):
        Process(backend, clock, 3, nodes=3).next_id()
    assert backend._objects[bad].value == b"\xff"
