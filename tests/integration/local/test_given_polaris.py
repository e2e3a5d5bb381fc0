"""What `delegation local up --polaris-url` says about a Polaris that it cannot use."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from infra.local.catalog.privileges import Privilege
from infra.local.errors import PolarisUnusable
from infra.local.given_polaris import GivenPolaris, GivenPrincipal, check_polaris
from tests.integration.local.catalog_world import REALM, SCOPE, Stack, connect, emptied, objects, running


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    yield from running()


@pytest.fixture(autouse=True)
def clean(stack: Stack) -> Iterator[None]:
    yield from emptied(stack)


def principal(role: str, name: str, **changes: Any) -> GivenPrincipal:
    known = GivenPrincipal(role, f"{name}-id", SecretStr(f"{name}-secret"), SCOPE, f"--polaris-{role}-…")
    return dataclasses.replace(known, **changes)


def given(stack: Stack, **changes: Any) -> GivenPolaris:
    owner, service = principal("owner", "owner"), principal("service", "service")
    return dataclasses.replace(GivenPolaris(stack.catalog.url, "lake", REALM, owner, service), **changes)


def complaint(polaris: GivenPolaris) -> str:
    with pytest.raises(PolarisUnusable) as refused:
        check_polaris(polaris)
    return str(refused.value)


def test_a_polaris_that_can_be_used_is_left_as_it_was(stack: Stack) -> None:
    check_polaris(given(stack))
    assert objects(stack) == []
    assert connect(stack, "owner").list_namespaces() == []


def test_the_owner_may_be_the_services_principal_too(stack: Stack) -> None:
    check_polaris(given(stack, service=principal("service", "owner")))
    assert objects(stack) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"url": "http://127.0.0.1:9/api/catalog"}, "check --polaris-url, and that Polaris runs"),
        ({"realm": "other"}, "other is not a realm there: set --polaris-realm"),
        ({"warehouse": "pond"}, "it has no catalog pond: set --warehouse"),
        (
            {"owner": principal("owner", "owner", client_secret=SecretStr("no"))},
            "the credentials of the owner are refused: check --polaris-owner-…",
        ),
        (
            {"service": principal("service", "service", client_id="no")},
            "the credentials of the service are refused: check --polaris-service-…",
        ),
        ({"owner": principal("owner", "owner", scope="everything")}, "the scope everything is refused"),
        (
            {"service": principal("service", "service", scope="PRINCIPAL_ROLE:auditor")},
            "the principal probably lacks auditor",
        ),
        ({"owner": principal("owner", "reader")}, "the owner needs NAMESPACE_CREATE"),
        (
            {"service": principal("service", "reader")},
            "grant TABLE_WRITE_DATA on the catalog to the service's principal reader-id",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_option_or_grant(stack: Stack, changes: dict[str, Any], named: str) -> None:
    text = complaint(given(stack, **changes))
    assert named in text
    assert "secret" not in text.replace("client-secret", "")
    for namespace in connect(stack, "owner").list_namespaces():
        raise AssertionError(f"{namespace} is left")


def test_an_url_without_the_apis_path_is_named(stack: Stack) -> None:
    url = stack.catalog.url.removesuffix("/api/catalog")
    assert "which ends in /api/catalog" in complaint(given(stack, url=url))


def test_a_missing_grant_of_the_service_is_named(stack: Stack) -> None:
    # The right to read a namespace's properties includes the right to list namespaces.
    lists = (Privilege.NAMESPACE_LIST, Privilege.NAMESPACE_READ_PROPERTIES)
    for privilege in lists:
        stack.catalog.access.revoke("service", privilege)
    try:
        assert "the principal needs NAMESPACE_LIST on the catalog" in complaint(given(stack))
    finally:
        for privilege in lists:
            stack.catalog.access.grant("service", privilege)


def test_a_catalog_without_sts_is_named(stack: Stack) -> None:
    warehouse = stack.catalog.warehouse
    stored = warehouse.body()
    warehouse.update(stored["entityVersion"], None, stored["storageConfigInfo"] | {"stsUnavailable": True})
    try:
        assert "no STS" in complaint(given(stack))
    finally:
        warehouse.update(stored["entityVersion"] + 1, None, stored["storageConfigInfo"])
