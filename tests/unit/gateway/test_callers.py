"""Who calls: proved by the token alone."""

from datetime import UTC, datetime

import pytest

from delegation.edge.errors import KeysUnavailable, Unauthorized
from delegation.edge.trust.tokens import Principal
from delegation.gateway.callers import GatewayCaller, TokenCallers
from tests.unit.gateway.world import request

NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Tokens:
    def __init__(self, verified):
        self.verified = verified

    def verify(self, authorization):
        if isinstance(self.verified, Exception):
            raise self.verified
        return self.verified


def caller_of(verified, **headers):
    tokens = None if verified is None else Tokens(verified)
    return TokenCallers(tokens).caller(request("GET", "v1/x", **headers))


def test_the_principal_is_polaris_name_of_it_with_the_roles_that_the_token_names():
    scopes = frozenset({"PRINCIPAL_ROLE:etl", "PRINCIPAL_ROLE:ALL", "email"})
    found = caller_of(Principal("abc", "alice", scopes), authorization="Bearer t", polaris_realm="R")
    assert found == GatewayCaller("alice", "Bearer t", "R", frozenset({"etl"}))
    assert "Bearer" not in repr(found)


def test_a_token_without_a_subject_is_its_clients():
    assert caller_of(Principal("abc", "", frozenset())).principal == "abc"


@pytest.mark.parametrize("verified", [None, Unauthorized("expired")])
def test_a_token_that_proves_nobody_is_not_believed(verified):
    assert caller_of(verified, authorization="Bearer t") == GatewayCaller(None, "Bearer t")


def test_keys_that_cannot_be_fetched_prove_nothing_about_a_token():
    with pytest.raises(KeysUnavailable):
        caller_of(KeysUnavailable("no"))
