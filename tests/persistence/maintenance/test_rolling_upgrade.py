"""Maintenance beside a newer release: a link in a field that this release does not know keeps its realm unswept."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import cbor2
import pytest
from pydantic import BaseModel, Field

from polaris_persistence.backends.base import ObjectKey, StoredObject
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.errors import MaintenanceRefused
from polaris_persistence.iceberg.objects import IcebergMetadata
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.types import Fetch, ObjectType, ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.paths import ROOT
from tests.persistence.builders import ENTITY, HEAD, CountingBackend, Entity, Head, committer_on, store_on

GRACE = 1_000.0
NEWER = ROOT / "tests" / "fixtures" / "persistence" / "newer_release.json"


class Song(PersistedModel):
    title: str = ""


class Album(PersistedModel):
    """An entity with models at several depths."""

    first: Song = Song()
    songs: tuple[Song, ...] = ()
    by_name: dict[str, list[Song]] = Field(default_factory=dict)
    members: tuple[ObjectRef, ...] = ()


def album_links(album: Album, _fetch: Fetch) -> Iterator[ObjectRef]:
    return iter(album.members)


def types() -> ObjectTypes:
    return ObjectTypes([*OWN_TYPES, ENTITY, HEAD, ObjectType("album", Album, links=album_links)])


class RollingUpgrade:
    def __init__(self) -> None:
        self.clock = MicrosecondClock()
        self.backend = CountingBackend()
        self.backend.now_us = self.clock.now_us  # type: ignore[method-assign]
        self.store = store_on(self.backend, self.clock, types=types(), ids=iter(range(1, 10**6)).__next__)
        self.store.create_reference("main")

    def commit(self, ref: ObjectRef) -> None:
        committer_on(self.store, self.clock).commit(lambda _attempt: (Head(entities={"f": ref}), None))

    def store_newer(self, type_: str, fields: dict[str, Any]) -> ObjectRef:
        ref = ObjectRef(type_, 7_000_000)
        self.backend.put_many([StoredObject(self.store.key(ref), cbor2.dumps(fields), 1)])
        return ref

    def sweep(self) -> int:
        """Run three times, a grace apart; return how many objects were deleted."""
        deleted = 0
        process = PersistenceProcess(self.backend, types=types(), now_ns=lambda: self.clock.us * 1_000)
        for _ in range(3):
            self.clock.advance(GRACE + 60)
            with contextlib.suppress(MaintenanceRefused):
                deleted += process.maintenance(SweepPolicy(grace=GRACE, page=5)).run().deleted
        return deleted


NESTED = [
    {"first": {"title": "x", "cover": ["entity", 1]}},
    {"songs": [{"title": "x"}, {"title": "y", "cover": ["entity", 1]}]},
    {"by_name": {"a": [{"title": "y", "cover": ["entity", 1]}]}},
]


@pytest.mark.parametrize("fields", NESTED, ids=["a field", "a list", "a map of lists"])
def test_what_a_newer_release_linked_in_a_nested_model_is_not_swept(fields: dict[str, Any]) -> None:
    world = RollingUpgrade()
    [cover] = world.store.write([Entity(name="cover")])
    world.commit(world.store_newer("album", fields))
    assert world.sweep() == 0
    assert cover.id in world.backend.stored_ids("entity")


@pytest.mark.parametrize("name", json.loads(NEWER.read_text()))
def test_golden_items_of_a_newer_release_keep_their_realm_unswept(name: str) -> None:
    golden = json.loads(NEWER.read_text())[name]
    world = RollingUpgrade()
    [linked] = world.store.write([Entity(name="linked")])
    key = ObjectKey("r", "c", golden["type"], 7_000_000)
    world.backend.put_many([StoredObject(key, bytes.fromhex(golden["cbor"]), 1)])
    world.commit(ObjectRef(golden["type"], key.id))
    assert world.sweep() == 0
    assert linked.id in world.backend.stored_ids("entity")
    assert key.id in world.backend.stored_ids(golden["type"])


class Forgetful(BaseModel):
    """A model that drops fields it does not know."""

    title: str = ""


def test_a_type_whose_nested_model_drops_unknown_fields_cannot_be_declared() -> None:
    class Careless(PersistedModel):
        songs: dict[str, list[Forgetful]] = Field(default_factory=dict)

    with pytest.raises(ValueError, match=r"Careless.songs.*Forgetful.*PersistedModel"):
        ObjectType("careless", Careless)


def test_nested_models_are_kept_with_the_fields_of_a_newer_release() -> None:
    kept = IcebergMetadata.model_validate({"kind": "table", "fields": {}, "sections": [], "logs": {"l": {"new": 5}}})
    assert kept.model_dump()["logs"]["l"]["new"] == 5
