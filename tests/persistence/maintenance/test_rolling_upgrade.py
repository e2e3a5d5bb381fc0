"""Maintenance beside a newer release: a link in a field that this release does not know keeps its realm unswept."""

import json
from typing import Any

import cbor2
import pytest
from pydantic import BaseModel, Field

from polaris_persistence.backends.base import ObjectKey, StoredObject
from polaris_persistence.iceberg.objects import IcebergMetadata
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.types import ObjectType, ObjectTypes
from tests.paths import ROOT
from tests.persistence.builders import HEAD, Entity, Head, committer_on
from tests.persistence.worlds import ENTITY_TYPES, Catalogs

NEWER = ROOT / "tests" / "fixtures" / "persistence" / "newer_release.json"


class Song(PersistedModel):
    title: str = ""


class Album(PersistedModel):
    """An entity with models at several depths."""

    first: Song = Song()
    songs: tuple[Song, ...] = ()
    by_name: dict[str, list[Song]] = Field(default_factory=dict)
    members: tuple[ObjectRef, ...] = ()


class RollingUpgrade(Catalogs):
    types = ObjectTypes(
        [*ENTITY_TYPES, HEAD, ObjectType("album", Album, links=lambda album, _fetch: iter(album.members))]
    )

    def commit(self, ref: ObjectRef) -> None:
        committer_on(self.store, self.clock).commit(lambda _attempt: (Head(entities={"f": ref}), None))

    def store_newer(self, type_: str, fields: dict[str, Any]) -> ObjectRef:
        ref = ObjectRef(type_, 7_000_000)
        self.backend.put_many([StoredObject(self.store.key(ref), cbor2.dumps(fields), 1)])
        return ref

    def refused(self) -> bool:
        """Run three times, a grace apart; return whether each run left the catalog alone and deleted nothing."""
        reports = []
        for _ in range(3):
            self.clock.advance(1_060)
            reports.append(self.maintenance(page=5).run())
        return all([place for place, _ in one.refused] == ["r/c"] and one.deleted == 0 for one in reports)


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
    assert world.refused()
    assert cover.id in world.backend.stored_ids("entity")


@pytest.mark.parametrize("name", json.loads(NEWER.read_text()))
def test_golden_items_of_a_newer_release_keep_their_realm_unswept(name: str) -> None:
    golden = json.loads(NEWER.read_text())[name]
    world = RollingUpgrade()
    [linked] = world.store.write([Entity(name="linked")])
    key = ObjectKey("r", "c", golden["type"], 7_000_000)
    world.backend.put_many([StoredObject(key, bytes.fromhex(golden["cbor"]), 1)])
    world.commit(ObjectRef(golden["type"], key.id))
    assert world.refused()
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
