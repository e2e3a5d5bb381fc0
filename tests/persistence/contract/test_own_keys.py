"""What a purge of a realm and a drop of a catalog touch, counted: one small realm among the rows of many others."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from polaris_persistence.backends.base import (
    SYSTEM,
    WHOLE,
    Backend,
    Locator,
    ObjectKey,
    Reference,
    ReferenceKey,
    ScanPage,
    Segment,
    StoredObject,
    key_text,
)
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.catalogs.realms import CATALOGS, MAIN, Realms, RealmStatus
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.directories import entity_committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.objects.types import ObjectTypes
from polaris_persistence.testing.rows import all_rows
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, Entity
from tests.persistence.contract.backends import moto_backend

OTHERS, ROWS = 50, 2_000
Touched = list[str]
"""The text of the key of each row that was read, scanned or deleted, as often as it was."""


class TouchedStore(MemoryBackend):
    """A store in memory that notes the key of every row that a call reads, passes over or deletes."""

    def __init__(self) -> None:
        self.touched: Touched = []
        self.scans = 0
        super().__init__()

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        locators = list(wanted)
        self.touched += [_text(one.key) for one in locators]
        return super().fetch_many(locators, consistent=consistent)

    def delete_many(self, locators: Iterable[Locator]) -> None:
        doomed = list(locators)
        self.touched += [_text(one.key) for one in doomed]
        super().delete_many(doomed)

    def scan(
        self, *, realm: str | None = None, after: str | None = None, limit: int = 1_000, segment: Segment = WHOLE
    ) -> ScanPage:
        self.scans += 1
        # A table without an index by realm passes over the rows of all.
        self.touched += [_text(row.key) for row in super().scan(after=after, limit=limit, segment=segment).rows]
        return super().scan(realm=realm, after=after, limit=limit, segment=segment)

    def references(self, *, realm: str | None = None) -> Iterator[Reference]:
        self.scans += 1
        found = list(super().references())
        self.touched += [_text(one.key) for one in found]
        return (one for one in found if realm is None or one.key.realm == realm)

    def read_reference(self, key: ReferenceKey) -> Reference | None:
        self.touched.append(_text(key))
        return super().read_reference(key)


class TouchedCalls:
    """The same of the calls of a DynamoDB client: the keys that they name, and those of the rows that a scan reads."""

    def __init__(self) -> None:
        self.touched: Touched = []
        self.scans = 0

    def on(self, client: Any) -> Any:
        client.meta.events.register("before-call.dynamodb.*", self._called)
        client.meta.events.register("after-call.dynamodb.Scan", self._scanned)
        return client

    def _called(self, params: Any, **_more: Any) -> None:
        body = json.loads(params["body"])
        if "Key" in body:
            self.touched.append(body["Key"]["key"]["S"])
        for requests in body.get("RequestItems", {}).values():
            reads = requests["Keys"] if isinstance(requests, dict) else []
            deletes = [] if isinstance(requests, dict) else [one["DeleteRequest"]["Key"] for one in requests
                                                             if "DeleteRequest" in one]  # fmt: skip
            self.touched += [one["key"]["S"] for one in (*reads, *deletes)]

    def _scanned(self, parsed: Any, **_more: Any) -> None:
        self.scans += 1
        self.touched += ["scanned"] * parsed["ScannedCount"]


def _text(key: ObjectKey | ReferenceKey) -> str:
    named = (key.type, str(key.id)) if isinstance(key, ObjectKey) else (key.name,)
    return key_text(key.realm, key.catalog, *named)


Counter = TouchedStore | TouchedCalls


@pytest.fixture(params=["memory", "moto"])
def counted(request: pytest.FixtureRequest) -> Iterator[tuple[Backend, Counter]]:
    with contextlib.ExitStack() as opened:
        if request.param == "memory":
            store = TouchedStore()
            yield store, store
            return
        calls = TouchedCalls()
        yield opened.enter_context(moto_backend(calls.on)), calls


def realms_on(backend: Backend) -> Realms:
    clock = MicrosecondClock()
    return PersistenceProcess(
        backend,
        types=ObjectTypes([*OWN_TYPES, ENTITY]),
        now_ns=lambda: clock.us * 1_000,
        clock=clock.seconds,
        sleep=clock.sleep,
    ).realms()


def a_realm_among_others(backend: Backend) -> tuple[Realms, str]:
    """Return the realms, and the space of one with about 20 objects in one catalog."""
    for other in range(OTHERS):
        backend.create_reference(Reference(ReferenceKey(f"other{other}", "c", MAIN), (), 1))
    backend.put_many(
        StoredObject(ObjectKey(f"other{number % OTHERS}", "c", "entity", number + 1), b"\xa0", 1)
        for number in range(ROWS)
    )
    realms = realms_on(backend)
    realms.create("acme", {})
    committer = entity_committer(realms.create_catalog("acme", "sales", {}), MAIN)
    for number in range(9):
        committer.commit(naming(f"t{number}"))
    return realms, realms.get("acme").space


def naming(name: str) -> Callable[[CommitAttempt[EntityHead]], Changed[EntityHead, None]]:
    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        entities = EntityChanges(attempt)
        entities.put(IndexKey.of(name), Entity(name=name))
        return Changed(entities.head, None)

    return change


def of_others(touched: Touched, space: str) -> Touched:
    """Return the touched keys that are neither of the realm nor of the list of realms and the lease of ids."""
    own = (key_text(space, ""), key_text(SYSTEM, SYSTEM, ""))
    return [one for one in touched if not one.startswith(own)]


def test_a_purge_touches_the_keys_of_its_own_realm_only(counted: tuple[Backend, Counter]) -> None:
    backend, counter = counted
    realms, space = a_realm_among_others(backend)
    mine = all_rows(backend, realm=space, limit=1_000)
    assert 18 <= len(mine) <= 30
    realms.set_status("acme", RealmStatus.INACTIVE)
    counter.touched.clear()
    counter.scans = 0
    done = realms.purge("acme")
    assert (counter.scans, of_others(counter.touched, space)) == (0, [])
    # Each row is named a few times: found, read, deleted.
    assert len(counter.touched) <= 5 * len(mine)
    assert (done.references, done.objects, done.scanned) == (2, len(mine), ())
    assert all_rows(backend, realm=space, limit=1_000) == []
    assert list(backend.references(realm=space)) == []
    rest = {row.key for row in all_rows(backend, limit=1_000) if row.key.realm not in (space, SYSTEM)}
    assert len(rest) == ROWS


def test_a_drop_of_a_catalog_touches_the_keys_of_its_own_realm_only(counted: tuple[Backend, Counter]) -> None:
    backend, counter = counted
    realms, space = a_realm_among_others(backend)
    counter.touched.clear()
    counter.scans = 0
    realms.drop_catalog("acme", "sales")
    assert (counter.scans, of_others(counter.touched, space)) == (0, [])
    assert len(counter.touched) <= 20
    assert [one.key.name for one in backend.references(realm=space)] == [CATALOGS]
    assert len(list(backend.references())) == OTHERS + 2
