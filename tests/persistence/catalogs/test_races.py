"""Realms and catalogs under races: two processes, one of which runs completely between two calls of the other."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import cbor2
import pytest

from polaris_persistence.backends.base import SYSTEM, ObjectKey, StoredObject
from polaris_persistence.catalogs.realms import CATALOGS, MAIN, Realms, RealmStatus
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityHead, seal
from polaris_persistence.errors import (
    EntityExists,
    EntityNotFound,
    PersistenceError,
    RealmNotReady,
    ReferenceNotFound,
)
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.store import CatalogStore
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import CountingBackend, Entity
from tests.persistence.worlds import naming, process_on, read_entities

CALLS = ("read_reference", "create_reference", "replace_reference", "references", "delete_reference", "fetch_many",
         "put_many", "delete_many", "scan")  # fmt: skip


class TwoProcesses:
    """One store and two processes; `between` runs something before the n-th call that the first one makes."""

    def __init__(self) -> None:
        self.backend = CountingBackend()
        self.clock = MicrosecondClock()
        self.mine, self.theirs = self.realms(), self.realms()
        self.mine.create("acme", {})

    def realms(self) -> Realms:
        return process_on(self.backend, self.clock).realms()

    def between(self, call: int, action: Callable[[], object]) -> Callable[[], bool]:
        """Have `action` run before the call with that number; the answer says whether it ran."""
        numbers = itertools.count()
        ran: list[int] = []

        def before() -> None:
            if not ran and next(numbers) == call:
                ran.append(call)
                action()

        def queue(operation: str) -> None:
            def meanwhile() -> None:
                self.backend.meanwhile[operation].append(meanwhile)
                before()

            self.backend.meanwhile[operation] = [meanwhile]

        for operation in CALLS:
            queue(operation)
        return lambda: bool(ran)

    def references(self) -> list[Any]:
        return [one.key for one in self.backend.references()]


def put(store: CatalogStore, name: str) -> None:
    Committer(store, MAIN, EntityHead, seal=seal(IndexPolicy())).commit(naming(name))


def every_call(race: Callable[[TwoProcesses, int], Callable[[], bool]]) -> int:
    """Run a race once for each call of the first process; return how many there were."""
    for call in itertools.count():
        if not race(TwoProcesses(), call)():
            return call
    raise AssertionError("unreachable")


def test_no_commit_is_acknowledged_into_a_catalog_dropped_while_it_was_opened() -> None:
    def race(world: TwoProcesses, call: int) -> Callable[[], bool]:
        world.mine.create_catalog("acme", "sales", {})
        ran = world.between(call, lambda: world.theirs.drop_catalog("acme", "sales"))
        try:
            store = world.mine.open("acme", "sales")
        except (EntityNotFound, ReferenceNotFound):
            return ran
        if ran():
            with pytest.raises(ReferenceNotFound):
                put(store, "n")
            assert [one for one in world.references() if one.name == MAIN] == []
        return ran

    assert every_call(race) >= 2


def test_a_late_drop_leaves_a_catalog_made_anew_alone() -> None:
    def race(world: TwoProcesses, call: int) -> Callable[[], bool]:
        world.mine.create_catalog("acme", "sales", {})

        def anew() -> None:
            world.theirs.drop_catalog("acme", "sales")
            put(world.theirs.create_catalog("acme", "sales", {}), "kept")

        ran = world.between(call, anew)
        with contextlib.suppress(EntityNotFound):
            world.mine.drop_catalog("acme", "sales")
        world.backend.meanwhile.clear()
        # A drop that had not marked its catalog yet meets the new one, and drops that.
        try:
            store = world.theirs.open("acme", "sales")
        except EntityNotFound:
            assert [one for one in world.references() if one.name == MAIN] == []
            return ran
        if ran():
            put(store, "more")
            assert Committer(store, MAIN, EntityHead).head().value.seq == 2  # type: ignore[union-attr]
        return ran

    assert every_call(race) >= 4


def test_a_late_purge_leaves_a_realm_made_anew_alone() -> None:
    def race(world: TwoProcesses, call: int) -> Callable[[], bool]:
        put(world.mine.create_catalog("acme", "sales", {}), "old")
        world.mine.set_status("acme", RealmStatus.INACTIVE)
        world.mine.set_status("acme", RealmStatus.PURGING)

        def anew() -> None:
            world.theirs.purge("acme")
            world.theirs.create("acme", {"tenant": "new"})
            put(world.theirs.create_catalog("acme", "sales", {}), "kept")

        ran = world.between(call, anew)
        with contextlib.suppress(EntityNotFound, RealmNotReady):
            world.mine.purge("acme")
        world.backend.meanwhile.clear()
        if ran():
            assert world.theirs.get("acme").properties == {"tenant": "new"}
            assert read_entities(world.theirs.open("acme", "sales")) == {"kept": Entity(name="kept")}
        return ran

    assert every_call(race) >= 5


def test_a_new_realm_never_lists_the_catalogs_of_a_former_one() -> None:
    """A process of the former tenant creates a catalog while the realm is purged and made anew."""

    def race(world: TwoProcesses, call: int) -> Callable[[], bool]:
        def anew() -> None:
            world.theirs.set_status("acme", RealmStatus.INACTIVE)
            world.theirs.purge("acme")
            world.theirs.create("acme", {})

        ran = world.between(call, anew)
        with contextlib.suppress(PersistenceError):
            world.mine.create_catalog("acme", "secret", {})
        world.backend.meanwhile.clear()
        # Before call 0 the realm is not read yet, so that the catalog is one of the new tenant.
        if ran() and call > 0:
            assert world.theirs.catalogs("acme").page(limit=5).entities == ()
        return ran

    every_call(race)


def test_a_registered_catalog_has_its_reference_whenever_the_creator_ends() -> None:
    class Ended(BaseException):
        pass

    def ends() -> None:
        raise Ended

    for call in itertools.count():
        world = TwoProcesses()
        ran = world.between(call, ends)
        with contextlib.suppress(Ended):
            world.mine.create_catalog("acme", "sales", {})
        world.backend.meanwhile.clear()
        try:
            found = world.theirs.catalogs("acme").get("sales").value
        except EntityNotFound:
            continue
        assert [one for one in world.references() if (one.catalog, one.name) == (found.space, MAIN)]
        put(world.theirs.open("acme", "sales"), "n")
        if not ran():
            break


def test_of_two_creators_one_wins_and_the_other_leaves_nothing() -> None:
    def race(world: TwoProcesses, call: int) -> Callable[[], bool]:
        before = len(world.references())
        ran = world.between(call, lambda: world.theirs.create("new", {"by": "theirs"}))
        try:
            world.mine.create("new", {"by": "mine"})
            won = "mine"
        except EntityExists:
            won = "theirs"
        world.backend.meanwhile.clear()
        if ran():
            assert world.theirs.get("new").properties == {"by": won}
            assert world.theirs.get("new").space
            assert len(world.references()) == before + 1
            world.theirs.create_catalog("new", "c", {})
        return ran

    assert every_call(race) >= 3


def test_open_and_catalogs_write_nothing() -> None:
    world = TwoProcesses()
    world.mine.create_catalog("acme", "sales", {})
    world.backend.calls.clear()
    world.theirs.open("acme", "sales")
    world.theirs.catalogs("acme").page(limit=5)
    assert set(world.backend.calls) <= {"read_reference", "fetch_many"}
    for one in list(world.backend.references()):
        if one.key.name == MAIN:
            world.backend.delete_reference(one.key)
    world.theirs.open("acme", "sales")
    assert [one for one in world.references() if one.name == MAIN] == []


def test_a_realm_of_the_last_release_keeps_its_name_in_its_keys() -> None:
    """The last release wrote realms without a space; they are used as they are."""
    world = TwoProcesses()
    legacy, store = cbor2.dumps({"status": "ACTIVE", "properties": {}}), world.mine._system

    def register(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        ref = attempt.write(Entity(name="in its place"))
        world.backend.put_many([StoredObject(ObjectKey(SYSTEM, SYSTEM, "realm", ref.id), legacy, 1)])
        # Not by `link`, which refuses an object that no attempt wrote.
        head = attempt.head or EntityHead()
        return Changed(head.with_changes({IndexKey.of("old"): ref._replace(type="realm")}), None)

    Committer(store, "realms", EntityHead, seal=seal(IndexPolicy())).commit(register)
    world.mine._store_of("old", SYSTEM).create_reference(CATALOGS)
    store = world.mine.create_catalog("old", "sales", {})
    assert store.realm == "old"
    put(store, "n")
    assert world.theirs.open("old", "sales").current_reference(MAIN).head
