"""Drops of another realm than the deployment's: refused before the catalog is asked for anything."""

import pytest

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
