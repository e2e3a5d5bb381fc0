"""Purges of a realm that end at any call, that meet writers, and that cannot find everything by following links."""

import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import Any

import cbor2
import pytest

from polaris_persistence.backends.base import CLOSED, SYSTEM, ObjectKey, Reference, ReferenceKey, StoredObject
from polaris_persistence.catalogs.process import OWN_TYPES
from polaris_persistence.catalogs.realms import CATALOGS, MAIN, Realms, RealmStatus
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.directories import Directory, entity_committer
from polaris_persistence.commits.entities import EntityHead
from polaris_persistence.commits.waiting import WaitingChange
from polaris_persistence.errors import CommitContended, CorruptObject, EntityNotFound, ReferenceNotFound
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import PersistedModel
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectType, ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, CountingBackend, Entity
from tests.persistence.worlds import process_on

SMALL = IndexPolicy(min_embedded=0, max_embedded=32, stripe=64)
"""Every entry is in a stripe."""


class Ended(BaseException):
    """The process was killed."""


class TwoRealms:
    """A store with the realm `acme` of two catalogs, and another realm."""

    def __init__(self, *types: ObjectType[Any]) -> None:
        self.backend = CountingBackend()
        self.clock = MicrosecondClock()
        self.types = ObjectTypes([*OWN_TYPES, ENTITY, *types])
        realms = self.realms()
        for realm in ("acme", "other"):
            realms.create(realm, {})
            for catalog in ("one", "two"):
                realms.create_catalog(realm, catalog, {})
        self.space = realms.get("acme").space
        self.fill(3)

    def realms(self) -> Realms:
        """Return the realms as a new process has them, whose calls are all made in the thread that is killed."""
        process = process_on(self.backend, self.clock, types=self.types, overlaps_lease=False)
        return process.realms(policy=SMALL)

    def fill(self, commits: int) -> None:
        realms = self.realms()
        for realm in ("acme", "other"):
            for catalog in ("one", "two"):
                tables = directory(realms.open(realm, catalog))
                for number in range(commits):
                    tables.create(f"table{number:03}", Entity(name="x" * 30))
                tables.update("table000", lambda old: old.model_copy(update={"number": 1}))

    def inactive(self) -> Realms:
        realms = self.realms()
        realms.set_status("acme", RealmStatus.INACTIVE)
        return realms

    def of_acme(self) -> list[Any]:
        """Return all keys of the realm, of objects and references."""
        keys: list[Any] = [*self.backend._objects, *self.backend._references]
        return [one for one in keys if one.realm == self.space]

    def of_others(self) -> dict[Any, Any]:
        """Return what is stored for the other realm."""
        stored: dict[Any, Any] = {}
        stored |= self.backend._objects
        stored |= self.backend._references
        return {key: one for key, one in stored.items() if key.realm not in (self.space, SYSTEM)}

    def saved(self) -> Callable[[], None]:
        """Return what brings back the objects and references that are stored now."""
        objects, references = dict(self.backend._objects), dict(self.backend._references)

        def restore() -> None:
            self.backend._objects, self.backend._references = dict(objects), dict(references)
            self.backend._order = None

        return restore

    def purge_killed_at(self, call: int, *, after: bool = False, **options: Any) -> bool:
        """Purge, killed at a call, and again to the end; return whether there was such a call."""

        def ends() -> None:
            raise Ended

        killed = self.before(call, ends, after=after)
        with contextlib.suppress(Ended):
            self.realms().purge("acme", **options)
        self.calm()
        with contextlib.suppress(EntityNotFound):  # Killed after all was done.
            self.realms().purge("acme", **options)
        return killed()

    def before(self, number: int, action: Callable[[], object], *, after: bool = False) -> Callable[[], bool]:
        """Have `action` run before or after the call or row with that number; the answer says whether it ran."""
        numbers = itertools.count()
        ran: list[int] = []

        def hook(_operation: str) -> None:
            if not ran and next(numbers) == number:
                ran.append(number)
                action()

        if after:
            self.backend.after = hook
        else:
            self.backend.before = hook
        return lambda: bool(ran)

    def calm(self) -> None:
        self.backend.before = self.backend.after = lambda _operation: None


def directory(store: CatalogStore) -> Directory[Entity]:
    return Directory(store, entity_committer(store, MAIN, policy=SMALL, feed=True), Entity)


@pytest.mark.parametrize("after", [False, True])
def test_a_purge_killed_at_every_call_and_repeated_leaves_nothing_of_its_realm(after: bool) -> None:
    site = TwoRealms()
    site.inactive()
    restore, others = site.saved(), site.of_others()
    assert len(site.of_acme()) > 30
    for call in itertools.count():
        restore()
        killed = site.purge_killed_at(call, after=after, page=3)
        assert (site.of_acme(), site.of_others()) == ([], others)
        with pytest.raises(EntityNotFound):
            site.realms().get("acme")
        if not killed:
            break
    assert call > 60


def test_a_writer_that_commits_at_any_call_of_a_purge_is_refused_or_its_objects_go_too() -> None:
    site = TwoRealms()
    acknowledged = refused = 0
    realms = site.realms()
    tables = directory(realms.open("acme", "one"))
    cold = directory(site.realms().open("acme", "one"))
    site.inactive()
    restore = site.saved()
    for call in itertools.count():
        restore()
        outcomes: list[str] = []

        def write(outcomes: list[str] = outcomes, call: int = call) -> None:
            for writer in (tables, cold):
                try:
                    writer.create(f"late{call}-{len(outcomes)}", Entity(name="late"))
                except (ReferenceNotFound, CorruptObject):
                    outcomes.append("refused")
                else:
                    outcomes.append("acknowledged")

        ran = site.before(call, write)
        site.realms().purge("acme", page=3)
        site.calm()
        assert site.of_acme() == []
        if not ran():
            break
        # Once refused, always refused.
        assert outcomes == sorted(outcomes)
        acknowledged += outcomes.count("acknowledged")
        refused += outcomes.count("refused")
    assert acknowledged > 10
    assert refused > 50


def test_a_purge_at_any_call_of_a_writer_has_it_refused_or_deletes_what_it_wrote() -> None:
    outcomes: list[str] = []
    for call in itertools.count():
        site = TwoRealms()
        tables = directory(site.realms().open("acme", "one"))
        site.inactive()
        ran = site.before(call, lambda site=site: site.realms().purge("acme"))  # type: ignore[misc]
        try:
            tables.create("late", Entity(name="late"))
        except (ReferenceNotFound, CorruptObject):  # CorruptObject: it had the reference, but no longer the index.
            outcomes.append("refused")
        else:
            outcomes.append("acknowledged")
        site.calm()
        if not ran():
            break
        assert site.of_acme() == []
    assert outcomes.count("refused") >= 3
    assert outcomes[-1] == "acknowledged"


def test_a_purge_finds_the_log_beyond_the_recent_heads_and_what_waits() -> None:
    site = TwoRealms()
    store = site.realms().open("acme", "one")
    tables = directory(store)
    for number in range(45):
        tables.create(f"more{number}", Entity(name="more"))
    # A recorded change waits, with an object beside it.
    [part] = store.write([Entity(name="beside")])
    change = WaitingChange(reference=MAIN, kind="entity-changes", data={"objects": [[*part, 0, 0]]})
    waits = store.prepare(change)
    store.backend.put_many([waits.stored])
    assert store.backend.add_waiting([waits.loaded.key.id], expected=store.current_reference(MAIN)) is None
    done = site.inactive().purge("acme")
    assert (done.references, done.scanned) == (3, ())
    assert site.of_acme() == []


def test_a_closed_reference_is_absent_for_this_release_and_headless_for_the_former_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = TwoRealms()
    store = site.realms().open("acme", "one")
    known = store.current_reference(MAIN)
    assert site.backend.replace_reference(known.closing(), expected=known) is None
    closed = site.backend.read_reference(known.key)
    assert closed is not None
    assert (closed.head, closed.heads[1:], closed.version) == (CLOSED, known.heads, known.version + 1)
    with pytest.raises(ReferenceNotFound):
        directory(store).create("late", Entity(name="late"))
    # The former release takes 0 for the id of a head.
    monkeypatch.setattr(Reference, "closed", property(lambda _self: False))
    with pytest.raises(CorruptObject, match="which is missing"):
        directory(store).create("late", Entity(name="late"))


def test_a_purge_that_others_outrun_all_the_time_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    site = TwoRealms()
    realms = site.inactive()
    realms.set_status("acme", RealmStatus.PURGING)
    swap = site.backend.replace_reference

    def outrun(new: Reference, *, expected: Reference) -> Any:
        current = site.backend.read_reference(new.key)
        assert current is not None
        assert swap(current.fenced(), expected=current) is None
        return swap(new, expected=expected)

    monkeypatch.setattr(site.backend, "replace_reference", outrun)
    with pytest.raises(CommitContended, match="every attempt to close it"):
        realms.purge("acme")
    monkeypatch.undo()
    realms.purge("acme")
    assert site.of_acme() == []


class Gauge(PersistedModel):
    count: int = 0


def lose_the_head(site: TwoRealms) -> None:
    [found] = [one for one in site.backend._references.values() if one.key.realm == site.space and one.key.name == MAIN
               and one.key.catalog == site.realms().open("acme", "one").catalog]  # fmt: skip
    del site.backend._objects[ObjectKey(found.key.realm, found.key.catalog, "catalog-head", found.heads[0])]


def spoil_a_stripe(site: TwoRealms) -> None:
    stripes = [key for key in site.of_acme() if getattr(key, "type", None) == "index-stripe"]
    assert stripes
    for key in stripes:
        site.backend._objects[key] = StoredObject(key, cbor2.dumps({"data": b"spoiled"}), 1)


def forget_the_type(site: TwoRealms) -> None:
    store = site.realms().open("acme", "one")
    directory(store).create("of-another-package", Entity(name="linked"))
    site.types = ObjectTypes(OWN_TYPES)


def of_a_newer_release(site: TwoRealms) -> None:
    for one in list(site.backend._objects.values()):
        if one.key.type == "catalog-head" and one.key.realm == site.space and one.key.catalog != SYSTEM:
            newer = {**cbor2.loads(one.value), "linked": 5}
            site.backend._objects[one.key] = StoredObject(one.key, cbor2.dumps(newer), one.created_at)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lose_the_head, "is missing"),
        (spoil_a_stripe, "index-stripe"),
        (forget_the_type, "type 'entity' is not declared"),
        (of_a_newer_release, "field 'linked' of a newer release"),
    ],
)
def test_a_purge_that_links_may_not_lead_to_the_end_reads_the_whole_tables_and_says_so(
    spoil: Callable[[TwoRealms], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = TwoRealms()
    others = site.of_others()
    spoil(site)
    with caplog.at_level(logging.WARNING):
        done = site.inactive().purge("acme")
    assert any(reason in one for one in done.scanned)
    assert "the purge of realm 'acme' scans both tables" in caplog.text
    assert site.of_acme() == []
    assert site.of_others() == others


@pytest.mark.parametrize("spoil", [lose_the_head, spoil_a_stripe])
def test_a_purge_that_has_to_scan_may_be_killed_at_every_call(spoil: Callable[[TwoRealms], None]) -> None:
    """The damage by which it knew is deleted with the rest."""
    site = TwoRealms()
    spoil(site)
    site.inactive()
    restore, others = site.saved(), site.of_others()
    for call in itertools.count():
        restore()
        killed = site.purge_killed_at(call)
        assert (site.of_acme(), site.of_others()) == ([], others)
        if not killed:
            break


def test_a_purge_scans_if_a_package_declares_updateable_objects() -> None:
    """No head names them and maintenance keeps them."""
    site = TwoRealms(ObjectType("gauge", Gauge, mutable=True))
    store = site.realms().open("acme", "one")
    gauge = ObjectKey(site.space, store.catalog, "gauge", 7)
    assert site.backend.insert(StoredObject(gauge, cbor2.dumps({"count": 1}), 1, "token")) is None
    done = site.inactive().purge("acme")
    [reason] = done.scanned
    assert "type 'gauge'" in reason
    assert site.of_acme() == []


def test_a_purge_scans_on_request_and_finds_what_nothing_names() -> None:
    site = TwoRealms()
    others = site.of_others()
    site.realms().open("acme", "one").write([Entity(name="never linked")])
    site.backend.create_reference(Reference(ReferenceKey(site.space, "unregistered", MAIN), (), 1))
    done = site.inactive().purge("acme", scan=True)
    assert done.scanned == ("its caller asked for it",)
    assert (done.references, site.of_acme()) == (4, [])
    assert site.of_others() == others


def test_a_purge_of_a_realm_of_an_earlier_release_scans_and_leaves_realms_of_like_names_alone() -> None:
    """It has its name in its keys, where objects of a former realm of that name may be."""
    site = TwoRealms()
    realms = site.realms()
    kept = realms._store_of("old2", "c")
    kept.create_reference(MAIN)
    directory(kept).create("t", Entity(name="t"))
    others = site.of_others()
    realms._store_of("old", SYSTEM).create_reference(CATALOGS)
    realms._realms.create("old", realms.get("acme").model_copy(update={"space": ""}))
    directory(realms.create_catalog("old", "sales", {})).create("t", Entity(name="t"))
    realms._store_of("old", "sales").write([Entity(name="never linked")])
    realms.set_status("old", RealmStatus.INACTIVE)
    done = realms.purge("old")
    [reason] = done.scanned
    assert "without a space" in reason
    assert site.of_others() == others
    head = Committer(kept, MAIN, EntityHead).head()
    assert head is not None


@pytest.mark.parametrize("damaged", ["catalog", "list"])
def test_a_reference_that_cannot_be_read_does_not_keep_the_rest_of_its_realm(
    monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    world = TwoRealms()
    world.inactive()
    world.backend.create_reference(Reference(ReferenceKey(world.space, SYSTEM, "more"), (), 1))
    mine = sorted(one for one in world.backend._references if one.realm == world.space)
    bad = next(one for one in mine if one.name == (MAIN if damaged == "catalog" else CATALOGS))
    read, listed = world.backend.read_reference, world.backend.references

    def read_reference(key: ReferenceKey) -> Reference | None:
        if key == bad and key in world.backend._references:
            raise CorruptObject("the row cannot be read")
        return read(key)

    monkeypatch.setattr(world.backend, "read_reference", read_reference)
    found = world.realms().purge("acme")
    assert "the row cannot be read" in found.scanned
    assert [one for one in listed() if one.key.realm == world.space] == []
    assert not [key for key in world.backend._objects if key.realm == world.space]
    with pytest.raises(EntityNotFound):
        world.realms().get("acme")
