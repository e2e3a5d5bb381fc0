"""Owners list the tables that they dropped, and restore them, without an operator."""

import json
from datetime import timedelta
from typing import Any

import pytest

from delegation.gateway.drop.caller import OwnersTombstones
from delegation.gateway.drop.tombstones import TombstoneState
from delegation.gateway.forwarding import GatewayCaller
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, answer_of
from delegation.gateway.routing import OwnTombstones, route_of
from delegation.storage.memory import Faults, Killed
from delegation.tasks.errors import StoreUnavailable
from infra.local.catalog.privileges import Privilege
from polaris_common.errors import DelegationError
from tests.unit.gateway.drop.world import HIDDEN, REALM, DropWorld

S = TombstoneState


class Owner:
    """A principal who sends requests for its own tombstones to the gateway."""

    def __init__(self, here: DropWorld, name: str = "ann", realm: str = REALM) -> None:
        self.here, self.name, self.realm = here, name, realm

    def answer(self, method: str, path: str, query: str = "", body: Any = None) -> tuple[int, dict[str, Any]]:
        headers = (("authorization", f"Bearer {self.here.tokens[self.name]}"), ("polaris-realm", self.realm))
        sent = b"" if body is None else json.dumps(body).encode()
        request = CatalogRequest(method, path, query, headers, sent)
        caller = GatewayCaller(self.name, headers[0][1], self.realm)
        owners = OwnersTombstones(lambda: self.here.tombstones, self.here.forward, REALM)
        answer: CatalogAnswer
        match route_of(request):
            case OwnTombstones(None):
                act = lambda: owners.list(request, caller)  # noqa: E731
            case OwnTombstones(str(found)):
                act = lambda: owners.restore(request, caller, found)  # noqa: E731
            case other:
                raise AssertionError(other)
        try:
            answer = act()
        except DelegationError as error:
            answer = answer_of(error)
        return answer.status, json.loads(answer.body or b"{}")

    def list(self, query: str = "mine=true") -> tuple[int, dict[str, Any]]:
        return self.answer("GET", "v1/tombstones", query)

    def restore(self, tombstone_id: str, to: Any = None) -> tuple[int, dict[str, Any]]:
        body = None if to is None else {"to": to}
        return self.answer("POST", f"v1/tombstones/{tombstone_id}/restore", body=body)


def test_an_owner_gets_its_own_table_back_and_nobody_else_s(graced):
    (shown,) = Owner(graced).list()[1]["tombstones"]
    assert (shown["name"], shown["state"], "scope" in shown) == ("orders", "RENAMED", False)
    assert Owner(graced, "service").list()[1]["tombstones"] == []
    status, refused = Owner(graced, "service").restore(shown["tombstone_id"])
    assert (status, refused["error"]["type"]) == (404, "NoSuchTombstoneException")
    assert graced.uuid() is None
    status, restored = Owner(graced).restore(shown["tombstone_id"])
    assert (status, restored["state"], graced.uuid(), graced.hidden()) == (200, "RESTORED", graced.own, [])
    assert Owner(graced).restore(shown["tombstone_id"])[0] == 200
    graced.clock.advance(timedelta(days=9))
    graced.settle()
    assert graced.uuid() == graced.own


def test_an_owner_restores_to_another_name_if_its_own_is_taken(graced):
    second = graced.table()
    tombstone = graced.record().tombstone_id
    status, refused = Owner(graced).restore(tombstone)
    assert (status, refused["error"]["type"]) == (409, "AlreadyExistsException")
    assert Owner(graced).restore(tombstone, {"namespace": ["ns"], "name": "again"})[0] == 200
    assert (graced.uuid(), graced.uuid("again")) == (second, graced.own)


def test_a_caller_that_may_not_create_tables_there_restores_nothing(graced):
    """The service could: its rename needs the caller's own proof."""
    graced.catalog.access.revoke("ann", Privilege.CATALOG_MANAGE_CONTENT)
    for to in (None, {"namespace": ["ns"], "name": "t"}):
        status, refused = Owner(graced).restore(graced.record().tombstone_id, to)
        assert (status, refused["error"]["type"]) == (403, "ForbiddenException")
    graced.catalog.access.grant("ann", Privilege.CATALOG_MANAGE_CONTENT)
    assert (graced.uuid(), graced.record().state, graced.drop_tasks()[0].status) == (None, S.RENAMED, "SUBMITTED")


def test_the_proof_is_a_catalog_s_answer_or_none(graced):
    path = "POST /api/catalog/v1/lake/namespaces/ns/tables"
    for fake in ((200, "", ""), (204, "", ""), (502, "", ""), (404, "", "")):
        graced.requests.fake = {path: fake}
        status, refused = Owner(graced).restore(graced.record().tombstone_id)
        assert (status, refused["error"]["type"]) == (503, "ServiceUnavailableException")
    assert (graced.uuid(), graced.record().state) == (None, S.RENAMED)


def test_the_proof_has_no_effect(graced):
    before = graced.data()
    graced.table()
    Owner(graced).restore(graced.record().tombstone_id)
    names = [one["name"] for one in graced.send("GET", "namespaces/ns/tables").json()["identifiers"]]
    assert names == ["orders"]
    assert {path for path in graced.data() - before if "restore_proof" in path} == set()


def test_another_realm_has_no_tombstones_here(graced):
    stranger = Owner(graced, realm="OTHER")
    assert stranger.list() == (200, {"tombstones": [], "next_page_token": None})
    assert stranger.restore(graced.record().tombstone_id)[0] == 404


def test_a_table_that_its_owner_never_dropped_goes_back_to_its_own_name_alone(graced):
    wrong = graced.record().model_copy(update={"expected_uuid": "another", "nonce": "n"})
    graced.records.replace(wrong, graced.record())
    assert Owner(graced).restore(wrong.tombstone_id, {"namespace": ["ns"], "name": "mine"})[0] == 409
    assert len(graced.hidden()) == 1
    assert Owner(graced).restore(wrong.tombstone_id)[0] == 200


def test_what_has_begun_to_be_purged_is_not_restored(graced):
    graced.clock.advance(timedelta(days=8))
    graced.run_due()
    status, refused = Owner(graced).restore(graced.record().tombstone_id)
    assert (status, "deleted" in refused["error"]["message"]) == (409, True)


@pytest.mark.parametrize(
    ("query", "status"),
    [("mine&page_size=0", 400), ("mine&page_size=x", 400), ("mine&page_token=X", 400), ("mine", 200)],
)
def test_a_wrong_request_is_named(graced, query, status):
    assert Owner(graced).list(query)[0] == status


@pytest.mark.parametrize("body", [{"to": {"namespace": [], "name": "x"}}, {"to": 1}, {"other": 1}, []])
def test_a_wrong_body_is_named(graced, body):
    path = f"v1/tombstones/{graced.record().tombstone_id}/restore"
    assert Owner(graced).answer("POST", path, body=body)[0] == 400
    assert graced.record().state is S.RENAMED


def test_an_error_names_the_list_or_the_restore_and_no_drop(graced, monkeypatch):
    tombstone = graced.record().tombstone_id

    def unavailable(*_args: Any, **_options: Any) -> Any:
        raise StoreUnavailable("the table of tasks did not answer")

    for method in ("newest", "get"):
        monkeypatch.setattr(type(graced.records), method, unavailable)
    answers = {"the list of": Owner(graced).list(), f"the restore of {tombstone}": Owner(graced).restore(tombstone)}
    for what, (status, document) in answers.items():
        message = document["error"]["message"]
        assert (status, message.startswith(what), "was interrupted" in message) == (503, True, True)


def test_pages_follow_each_other(world):
    here = world(grace="7d")
    for number in range(3):
        here.table(f"t{number}")
        assert here.drop(f"t{number}").status == 204
        here.clock.advance(timedelta(seconds=1))
    first = Owner(here).list("mine=true&page_size=2")[1]
    rest = Owner(here).list(f"mine=true&page_size=2&page_token={first['next_page_token']}")[1]
    assert [one["name"] for one in (*first["tombstones"], *rest["tombstones"])] == ["t2", "t1", "t0"]
    assert rest["next_page_token"] is None


def test_a_restore_that_is_killed_at_any_call_is_finished_by_its_repeat(world):
    def prepared():
        here = world(grace="7d")
        here.own = here.table()
        here.drop()
        here.restart()
        return here

    counted = prepared()
    Owner(counted).restore(counted.record().tombstone_id)
    for number in range(1, len(counted.faults.names) + 1):
        for after in (False, True):
            here = prepared()
            tombstone = here.record().tombstone_id
            here.restart(Faults(kill_at=number, after=after))
            with pytest.raises(Killed):
                Owner(here).restore(tombstone)
            here.restart()
            assert Owner(here).restore(tombstone)[0] == 200
            assert (here.uuid(), here.hidden()) == (here.own, [])
            here.close()


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "v1/tombstones", ""),
        ("POST", "v1/tombstones", "mine"),
        ("GET", "v1/tombstones/0123456789abcdef-1760000000000-aabbccdd/restore", ""),
        ("POST", "v1/tombstones/tables/restore", ""),
        ("POST", "v1/tombstones/tables/rename", ""),
        ("DELETE", "v1/tombstones/namespaces/ns/tables/t", ""),
        ("POST", f"v1/{HIDDEN[0]}/0123456789abcdef-1760000000000-aabbccdd/restore", ""),
    ],
)
def test_a_catalog_may_be_called_tombstones(method, path, query):
    assert not isinstance(route_of(CatalogRequest(method, path, query)), OwnTombstones)
