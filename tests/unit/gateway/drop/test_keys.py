"""Drops with purge under an Idempotency-Key: the key decides, also after the table was made anew."""

import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from delegation.gateway.app import Gateway
from delegation.gateway.drop.keyed import KeyedDrops
from delegation.gateway.drop.tombstones import TombstoneState
from delegation.gateway.forwarding import GatewayCaller, KnownCatalogs
from delegation.gateway.keys.service import CatalogMutations, Patience, policy_for
from delegation.gateway.messages import CatalogOutcomeUnknown, CatalogRequest, MutationNotVerified
from delegation.idempotency.keys import KeyConflict
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import MemoryReservationStore
from delegation.storage.memory import Faults, Killed
from tests.kit.tasks.builders import nonce
from tests.unit.gateway.drop.world import HIDDEN, REALM, DropWorld

RENAME = "POST /api/catalog/v1/lake/tables/rename"


def with_keys(here: DropWorld, store: MemoryReservationStore | None = None) -> MemoryReservationStore:
    """Have the gateway honour keys, whose records are in `store`."""
    store = store or MemoryReservationStore()
    mutations = Mutations(store, policy=policy_for(12, timedelta(minutes=30)), clock=here.clock, nonce=nonce)
    patience = replace(Patience.within(12), sleep=here.sleep, monotonic=here.seconds)
    here.drops = KeyedDrops(here.drops, mutations, REALM, here.forward, patience, here.clock)
    return store


def test_the_same_key_is_replayed_although_the_table_was_made_anew(here):
    here.table()
    with_keys(here)
    assert here.drop(key="one").status == 204
    second = here.table()
    assert here.drop(key="one").status == 204
    assert here.uuid() == second
    assert here.drop(key="two").status == 204
    assert here.uuid() is None


def test_a_refusal_is_replayed(here):
    uuid = here.table(**{"gc.enabled": "false"})
    with_keys(here)
    answers = [here.drop(key="one") for _ in range(2)]
    assert answers[0] == answers[1]
    assert (answers[0].status, answers[0].code) == (409, "ConflictException")
    assert here.uuid() == uuid


def test_a_key_is_bound_to_its_request(here):
    here.table()
    with_keys(here)
    assert here.drop(key="one").status == 204
    with pytest.raises(KeyConflict):
        here.drop(key="one", query="purgeRequested=True")


@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_was_killed_is_reconciled_by_its_repeat(world, after):
    here = world()
    here.table()
    here.drop()  # counts nothing; only to learn the calls
    names = here.faults.names
    rename = next(number for number, name in enumerate(names, 1) if name.endswith("tables/rename"))
    here = world()
    here.table()
    here.restart(Faults(kill_at=rename, after=after))
    keys = with_keys(here)
    with pytest.raises(Killed):
        here.drop(key="one")
    here.restart()
    with_keys(here, keys)
    assert here.drop(key="one").status == 204
    here.settle()
    assert (here.uuid(), here.data()) == (None, set())
    states = {one.state for one in here.records.newest(9).tombstones}
    assert states <= {TombstoneState.DROPPED, TombstoneState.CLEARED}


class _Service:
    """A gateway process before `here`: asks which catalogs exist, and forwards as the world does."""

    def __init__(self, here: DropWorld, store: MemoryReservationStore) -> None:
        self._here = here
        forwarder = here.forwarder
        mutations = Mutations(store, policy=policy_for(12, timedelta(minutes=30)), clock=here.clock, nonce=nonce)
        keys = CatalogMutations(mutations, forwarder, here.clock, Patience(0.0), REALM, timedelta(minutes=30))
        callers = SimpleNamespace(caller=lambda request: GatewayCaller("ann", request.header("authorization"), REALM))
        self._gateway = Gateway(
            forwarder, callers, keys=keys, drops=lambda: here.drops, catalogs=KnownCatalogs(forwarder)
        )

    def drop(self, key: str | None) -> tuple[int, str | None]:
        """Return the status and the error's type of a drop with purge."""
        headers = [
            ("authorization", f"Bearer {self._here.tokens['ann']}"),
            *([("idempotency-key", key)] if key else []),
        ]
        path = "v1/lake/namespaces/ns/tables/orders"
        answer = self._gateway.answer(CatalogRequest("DELETE", path, "purgeRequested=true", tuple(headers)))
        return answer.status, json.loads(answer.body)["error"]["type"] if answer.body else None


@pytest.mark.parametrize("status", [400, 404])
def test_a_drop_that_may_have_been_performed_is_not_refused_since_its_catalog_is_gone(world, status):
    here = world()
    here.table()
    here.drop()  # counts nothing; only to learn the calls
    rename = next(number for number, name in enumerate(here.faults.names, 1) if name.endswith("tables/rename"))
    here = world()
    here.table()
    here.restart(Faults(kill_at=rename, after=True))
    keys = with_keys(here)
    with pytest.raises(Killed):
        here.drop(key="one")
    here.restart()
    with_keys(here, keys)
    here.requests.fake = {"GET /api/catalog/v1/config": (status, "NotFoundException", "no catalog lake")}
    assert _Service(here, keys).drop("one") == (500, "CommitStateUnknownException")
    # Of what was never begun the refusal is the truth, and a request without a key relies on no other.
    assert _Service(here, keys).drop("two") == (status, "NotFoundException")
    assert _Service(here, keys).drop(None) == (status, "NotFoundException")
    here.requests.fake = {}
    here.clock.advance(timedelta(minutes=1))
    assert _Service(here, keys).drop("one") == (204, None)


@pytest.mark.parametrize("status", [400, 403, 404, 409])
@pytest.mark.parametrize("asked", ["GET /api/catalog/v1/lake/namespaces/ns/tables/orders", RENAME])
def test_a_proxy_s_refusal_is_neither_passed_on_nor_stored(here, asked, status):
    here.table()
    with_keys(here)
    here.requests.fake = {asked: (status, "", "")}
    assert here.drop(key="one").status == 503
    here.requests.fake = {}
    here.clock.advance(timedelta(minutes=1))
    assert here.drop(key="one").status == 204
    here.settle()
    assert (here.uuid(), here.data(), here.hidden()) == (None, set(), [])


@pytest.fixture
def passing(world):
    """A world without tombstones, whose drops the catalog purges itself, and whose next DELETE gets no answer."""
    here = world(unsupported="pass")
    here.catalog.warehouse.replace_properties({"polaris.config.drop-with-purge.enabled": "true"})
    here.send("DELETE", f"namespaces/{HIDDEN[0]}")
    here.table()
    with_keys(here)
    here.requests.lose = lambda request: "answer" if request.method == "DELETE" else None
    with pytest.raises(CatalogOutcomeUnknown):
        here.drop(key="one")
    here.requests.lose = lambda _request: None
    assert here.uuid() is None
    return here


def test_a_drop_that_the_catalog_may_have_performed_drops_no_other_table(passing):
    second = passing.table()
    with pytest.raises(MutationNotVerified):
        passing.drop(key="one")
    assert passing.uuid() == second
    assert passing.drop(key="two").status == 204


def test_a_drop_that_the_catalog_may_have_performed_is_not_answered_as_of_no_table(passing):
    with pytest.raises(MutationNotVerified):
        passing.drop(key="one")
    assert passing.drop(key="two").status == 404


def test_a_drop_that_is_left_to_the_catalog_is_sent_without_the_callers_key(passing):
    """Catalogs have rules of their own: Polaris 1.7 refuses a key that is no UUID."""
    passing.table()
    keys = []

    def seen(request):
        if request.method == "DELETE":
            keys.append(request.headers.get("idempotency-key"))

    passing.requests.lose = seen
    assert passing.drop(key="two").status == 204
    assert keys == [None]


def test_a_proxy_s_answer_to_a_drop_that_is_left_to_the_catalog_is_not_stored(world):
    here = world(unsupported="pass")
    here.send("DELETE", f"namespaces/{HIDDEN[0]}")
    here.table()
    keys = with_keys(here)
    here.requests.fake = {"DELETE /api/catalog/v1/lake/namespaces/ns/tables/orders": (403, "", "")}
    with pytest.raises(MutationNotVerified):
        here.drop(key="one")
    assert [one.answer for one in keys._records.values()] == [None]


def test_where_drops_are_left_to_the_catalog_a_rename_that_was_lost_is_sent_again(world):
    here = world(unsupported="pass")
    here.table()
    with_keys(here)
    here.requests.lose = lambda request: "request" if request.url.path.endswith("tables/rename") else None
    assert here.drop(key="one").status == 503
    here.requests.lose = lambda _request: None
    assert here.drop(key="one").status == 204
