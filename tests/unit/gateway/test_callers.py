"""Who calls: proved by the token alone."""

import base64
from datetime import UTC, datetime

import pytest

from delegation.edge.errors import KeysUnavailable, Unauthorized
from delegation.edge.trust.tokens import Principal
from delegation.gateway.forwarding import GatewayCaller, TokenCallers
from delegation.gateway.messages import CatalogRequest, GatewayError
from tests.kit.errors import coded
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


@pytest.mark.parametrize("name", ["Authorization", "Polaris-Realm"])
def test_a_repeated_header_is_refused_because_servers_differ_in_which_one_counts(name):
    asked = CatalogRequest("GET", "v1/x", headers=((name, "a"), ("X", "y"), (name.lower(), "a")))
    with pytest.raises(GatewayError, match=name, check=coded("HEADER_REPEATED")):
        TokenCallers(Tokens(Principal("abc", "alice", frozenset()))).caller(asked)


def test_a_name_that_nothing_can_send_proves_nobody():
    assert caller_of(Principal("abc", "\ud800", frozenset()), authorization="Bearer t").principal is None
    payload = base64.urlsafe_b64encode(b'{"sub": "\\ud800"}').decode()
    assert caller_of(None, authorization=f"Bearer a.{payload}.c") == GatewayCaller(None, f"Bearer a.{payload}.c")


def test_keys_that_cannot_be_fetched_prove_nothing_about_a_token():
    with pytest.raises(KeysUnavailable):
        caller_of(KeysUnavailable("no"))
