"""Keyed drops whose token the gateway cannot verify: refused, whatever the catalog thinks of the token."""

import pytest

from delegation.gateway.messages import GatewayError
from tests.kit.errors import coded
from tests.unit.gateway.drop.test_keys import with_keys


def test_a_token_that_the_catalog_accepts_and_the_gateway_does_not_drops_nothing(here):
    uuid = here.table()
    store = with_keys(here)
    for _ in range(2):
        with pytest.raises(GatewayError, match="without the Idempotency-Key", check=coded("CALLER_NOT_VERIFIED")):
            here.drop(key="one", principal=None)
    assert (here.uuid(), here.hidden(), here.records.newest(1).tombstones) == (uuid, [], ())
    assert store._records == {}


def test_a_forged_token_gets_the_catalog_s_refusal(here):
    uuid = here.table()
    store = with_keys(here)
    own, here.tokens["ann"] = here.tokens["ann"], "forged"
    assert here.drop(key="one", principal=None).status == 401
    here.tokens["ann"] = own
    assert (here.uuid(), store._records) == (uuid, {})
    assert here.drop(key="one").status == 204


def test_without_a_key_an_unverified_caller_drops_by_its_credentials(here):
    here.table()
    with_keys(here)
    assert here.drop(principal=None).status == 204
    assert here.record().caller.startswith("credentials:")
