"""What a purge of a realm and a drop of a catalog touch, counted: one small realm among the rows of many others."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from polaris_persistence.backends.base import (
    SYSTEM,
    Backend,
    ObjectKey,
    Reference,
    ReferenceKey,
    StoredObject,
    key_text,
)
from polaris_persistence.catalogs.realms import CATALOGS, MAIN, Realms, RealmStatus
from polaris_persistence.commits.directories import entity_committer
from polaris_persistence.testing.rows import all_rows
from tests.kit.clocks import MicrosecondClock
from tests.persistence.contract.backends import moto_backend
from tests.persistence.worlds import naming, process_on

OTHERS, ROWS = 50, 2_000
Touched = list[str]
"""The text of the key of each row that was read, scanned or deleted, as often as it was."""


class TouchedCalls:
    """Notes the keys that the calls of a DynamoDB client name, and the rows that a scan reads."""

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


@pytest.fixture
def counter() -> TouchedCalls:
    return TouchedCalls()


@pytest.fixture
def backend(counter: TouchedCalls) -> Iterator[Backend]:
    with moto_backend(counter.on) as in_moto:
        yield in_moto


def a_realm_among_others(backend: Backend) -> tuple[Realms, str]:
    """Return the realms, and the space of one with about 20 objects in one catalog."""
    for other in range(OTHERS):
        backend.create_reference(Reference(ReferenceKey(f"other{other}", "c", MAIN), (), 1))
    backend.put_many(
        StoredObject(ObjectKey(f"other{number % OTHERS}", "c", "entity", number + 1), b"\xa0", 1)
        for number in range(ROWS)
    )
    realms = process_on(backend, MicrosecondClock()).realms()
    realms.create("acme", {})
    committer = entity_committer(realms.create_catalog("acme", "sales", {}), MAIN)
    for number in range(9):
        committer.commit(naming(f"t{number}"))
    return realms, realms.get("acme").space


def of_others(touched: Touched, space: str) -> Touched:
    """Return the touched keys that are neither of the realm nor of the list of realms and the lease of ids."""
    own = (key_text(space, ""), key_text(SYSTEM, SYSTEM, ""))
    return [one for one in touched if not one.startswith(own)]


def test_a_purge_touches_the_keys_of_its_own_realm_only(backend: Backend, counter: TouchedCalls) -> None:
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


def test_a_drop_of_a_catalog_touches_the_keys_of_its_own_realm_only(backend: Backend, counter: TouchedCalls) -> None:
    realms, space = a_realm_among_others(backend)
    counter.touched.clear()
    counter.scans = 0
    realms.drop_catalog("acme", "sales")
    assert (counter.scans, of_others(counter.touched, space)) == (0, [])
    assert len(counter.touched) <= 20
    assert [one.key.name for one in backend.references(realm=space)] == [CATALOGS]
    assert len(list(backend.references())) == OTHERS + 2
