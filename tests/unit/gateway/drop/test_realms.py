"""Drops of another realm than the deployment's: refused before the catalog is asked for anything."""

from datetime import timedelta

import pytest

from delegation.gateway.messages import CatalogOutcomeUnknown, MutationNotVerified
from tests.unit.gateway.drop.test_keys import with_keys
from tests.unit.gateway.drop.world import REALM


@pytest.mark.parametrize("realms", [("OTHER",), (REALM, "OTHER"), ("OTHER", REALM), (REALM.lower(),)])
@pytest.mark.parametrize("key", [None, "one"])
def test_a_request_of_another_realm_is_refused_and_nothing_is_sent(here, realms, key):
    uuid = here.table()
    with_keys(here)
    here.faults.names.clear()
    answers = [here.drop(realms=realms, key=key) for _ in range(2)]
    assert [(one.status, "realm" in one.text) for one in answers] == [(403, True)] * 2
    assert [name for name in here.faults.names if name.startswith(("GET", "POST", "DELETE", "HEAD"))] == []
    assert (here.uuid(), here.records.newest(1).tombstones) == (uuid, ())


@pytest.mark.parametrize("realms", [(), (REALM,), (REALM, REALM)])
def test_the_deployment_s_realm_is_that_of_requests_without_one(here, realms):
    here.table()
    assert here.drop(realms=realms).status == 204


@pytest.mark.parametrize("key", [None, "one"])
@pytest.mark.parametrize(
    ("words", "status"),
    [({"uuid": "f47ac10b-58cc-4372-a567-0e02b2c3d479"}, 403), ({"more": (("X-Delegation-Table-UID", "0"),)}, 400)],
)
def test_a_word_that_the_catalog_ignores_is_not_left_to_it(world, key, words, status):
    here = world(unsupported="pass")
    uuid = here.table()
    with_keys(here)
    here.faults.names.clear()
    assert here.drop(realms=("OTHER",), key=key, **words).status == status
    assert [name for name in here.faults.names if name.startswith("DELETE")] == []
    assert here.uuid() == uuid


def test_a_drop_of_another_realm_that_the_catalog_may_have_performed_is_not_refused(world):
    here = world(unsupported="pass")
    here.table()
    with_keys(here)
    here.requests.lose = lambda request: "answer" if request.method == "DELETE" else None
    with pytest.raises(CatalogOutcomeUnknown):
        here.drop(realms=("OTHER",), key="one")
    here.requests.lose = lambda _request: None
    here.clock.advance(timedelta(minutes=1))
    with pytest.raises(MutationNotVerified):
        here.drop(realms=("OTHER",), key="one")
