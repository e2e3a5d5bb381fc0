"""What the client makes of Polaris' refusals: which privilege is missing, which role is not held, no STS."""

import httpx
import pytest
from pydantic import SecretStr

from delegation.polaris import answers
from delegation.polaris.answers import error_of
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from infra.local.catalog.privileges import OPERATIONS
from tests.kit.clocks import Clock
from tests.unit.polaris.scripted import Server, error

BASE = "https://polaris.test/api/catalog"
LONG = ", ".join(f"role_{n}" for n in range(100))


@pytest.mark.parametrize(
    ("operation", "needed"),
    [
        ("LIST_NAMESPACES", "NAMESPACE_LIST on the catalog"),
        ("LIST_TABLES", "TABLE_LIST on the namespace"),
        ("LOAD_TABLE", "TABLE_READ_PROPERTIES"),
        ("LOAD_TABLE_WITH_READ_DELEGATION", "TABLE_WRITE_DATA"),
        ("DROP_TABLE_WITHOUT_PURGE", "TABLE_DROP"),
    ],
)
def test_a_missing_privilege_is_named_before_polaris_own_words(operation: str, needed: str) -> None:
    message = f"Principal 'p' with activated PrincipalRoles '[{LONG}]' is not authorized for op {operation}"
    refused = error_of(error(403, "ForbiddenException", message))
    assert isinstance(refused, answers.PolarisForbidden)
    assert str(refused).startswith(f"Polaris answered 403 ForbiddenException: the principal needs {needed}")


def test_a_refusal_for_another_reason_names_no_privilege() -> None:
    message = "Table 'ns.t' has locations outside the catalog's current allowed locations: Invalid locations"
    refused = error_of(error(403, "ForbiddenException", message))
    assert isinstance(refused, answers.PolarisForbidden)
    assert "needs" not in str(refused)
    unknown = error_of(error(403, "ForbiddenException", "is not authorized for op SOMETHING_NEW"))
    assert "needs" not in str(unknown)


def test_a_catalog_without_sts_is_a_failure_to_vend() -> None:
    message = "Credential vending was requested for table ns.t, but no credentials are available"
    refused = error_of(error(400, "IllegalArgumentException", message))
    assert isinstance(refused, answers.CredentialVendingFailed)
    assert "STS" in str(refused)
    other = error_of(error(400, "IllegalArgumentException", "Unrecognized snapshots: zz"))
    assert not isinstance(other, answers.CredentialVendingFailed)


CALLED = (
    *("LIST_NAMESPACES", "LIST_TABLES", "LIST_VIEWS", "LOAD_TABLE", "LOAD_VIEW", "LOAD_NAMESPACE_METADATA"),
    *("LOAD_TABLE_WITH_READ_DELEGATION", "LOAD_TABLE_WITH_WRITE_DELEGATION", "TABLE_EXISTS", "CREATE_NAMESPACE"),
    *("DROP_NAMESPACE", "DROP_TABLE_WITHOUT_PURGE", "RENAME_TABLE", "UPDATE_TABLE"),
    *(one for one in OPERATIONS if "POLIC" in one and "GRANT" not in one),
)
"""What the service asks of a catalog, by Polaris' names."""


@pytest.mark.parametrize("operation", CALLED)
def test_every_operation_of_the_service_names_the_privilege_that_is_missing(operation: str) -> None:
    refused = str(error_of(error(403, "ForbiddenException", f"Principal 'p' is not authorized for op {operation}")))
    wanted, given = OPERATIONS[operation].on_target, refused.partition("the principal needs ")[2]
    assert wanted
    assert all(privilege.name in given for privilege in wanted)


def test_a_privilege_that_another_one_includes_is_named_with_that_one() -> None:
    """A service without TABLE_WRITE_DATA meets the refusal of a listing first."""
    for operation in ("LIST_TABLES", "LOAD_TABLE", "TABLE_EXISTS"):
        refused = error_of(error(403, "ForbiddenException", f"Principal 'p' is not authorized for op {operation}"))
        assert "TABLE_WRITE_DATA" in str(refused)


@pytest.mark.parametrize(
    ("scope", "named"),
    [
        ("PRINCIPAL_ROLE:purger PRINCIPAL_ROLE:auditor", "purger or auditor"),
        ("PRINCIPAL_ROLE:ALL", "the token endpoint belongs to another Polaris"),
    ],
)
def test_a_role_of_the_scope_that_is_not_held_is_named(server: Server, clock: Clock, scope: str, named: str) -> None:
    server.answer("POST", "/api/catalog/v1/oauth/tokens", httpx.Response(200, json={"access_token": "t"}))
    server.answer("GET", "/api/catalog/v1/config", httpx.Response(401))
    tokens = OAuth2TokenSource(
        BASE + "/v1/oauth/tokens",
        lambda: ClientCredentials("purger", SecretStr("pssst")),
        clock=clock,
        scope=scope,
        transport=server.transport,
    )
    with pytest.raises(answers.PolarisUnauthorized, match=named):
        list(PolarisClient(BASE, tokens, transport=server.transport).list_namespaces("lake"))
