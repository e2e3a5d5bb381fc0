"""The names of realms and catalogs are looked up once for a while, the missing ones too."""

import pytest

from polaris_persistence.catalogs.names import NameCache
from polaris_persistence.catalogs.realms import Realms, RealmStatus
from polaris_persistence.errors import EntityNotFound, RealmNotReady
from polaris_persistence.index.spill import IndexPolicy
from tests.persistence.commits.test_entities import IndexedEntities


def realms_of(world: IndexedEntities) -> Realms:
    names = NameCache(5.0, clock=world.clock.seconds)
    return Realms(world.backend, world.store_of, names=names, policy=world.index, **world.settings())


def test_a_catalog_that_was_opened_is_opened_again_without_a_call() -> None:
    world = IndexedEntities()
    first, other = realms_of(world), realms_of(world)
    first.create("acme", {})
    space = first.create_catalog("acme", "sales", {}).catalog
    assert first.open("acme", "sales").catalog == space
    world.backend.calls.clear()
    assert first.open("acme", "sales").catalog == space
    assert world.backend.calls == []
    other.drop_catalog("acme", "sales")
    world.clock.advance(5)
    with pytest.raises(EntityNotFound):
        first.open("acme", "sales")


def test_a_missing_catalog_is_remembered_until_this_process_creates_it() -> None:
    world = IndexedEntities()
    realms = realms_of(world)
    realms.create("acme", {})
    for _ in range(2):
        with pytest.raises(EntityNotFound, match="sales"):
            realms.open("acme", "sales")
        world.backend.calls.clear()
    with pytest.raises(EntityNotFound, match="sales"):
        realms.open("acme", "sales")
    assert world.backend.calls == []
    realms.create_catalog("acme", "sales", {})
    assert realms.open("acme", "sales").realm == realms.get("acme").space


def test_a_realm_that_this_process_made_inactive_is_refused_at_once() -> None:
    world = IndexedEntities()
    realms = realms_of(world)
    realms.create("acme", {})
    realms.create_catalog("acme", "sales", {})
    realms.open("acme", "sales")
    realms.set_status("acme", RealmStatus.INACTIVE)
    with pytest.raises(RealmNotReady):
        realms.open("acme", "sales")


def test_a_new_process_opens_a_catalog_in_two_round_trips() -> None:
    world = IndexedEntities(IndexPolicy())
    first = realms_of(world)
    for number in range(5):
        first.create(f"realm {number}", {})
        for name in ("sales", "stock"):
            first.create_catalog(f"realm {number}", name, {"owner": "acme"})
    first.update("realm 1", {"changed": "yes"})
    for number in (0, 1, 4):
        world.backend.calls.clear()
        opened = realms_of(world).open(f"realm {number}", "stock")
        assert world.backend.calls == ["read_reference", "read_reference"]
        assert opened.realm == first.get(f"realm {number}").space
