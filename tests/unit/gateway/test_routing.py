"""Which requests concern the gateway."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.gateway.routing import (
    CatalogPaths,
    ConfigDiscovery,
    DropWithPurge,
    Forwarded,
    KeyedMutation,
    Operation,
    Target,
    UnknownMutation,
    route_of,
)
from delegation.identifiers import TableIdentifier
from tests.unit.gateway.world import request

MUTATIONS = [
    ("POST", "namespaces", Operation.CREATE_NAMESPACE, (), None),
    ("DELETE", "namespaces/ns", Operation.DROP_NAMESPACE, ("ns",), None),
    ("POST", "namespaces/ns/properties", Operation.SET_PROPERTIES, ("ns",), None),
    ("POST", "namespaces/ns/tables", Operation.CREATE_TABLE, ("ns",), None),
    ("POST", "namespaces/ns/register", Operation.REGISTER_TABLE, ("ns",), None),
    ("POST", "namespaces/ns/tables/t", Operation.COMMIT_TABLE, ("ns",), "t"),
    ("DELETE", "namespaces/ns/tables/t", Operation.DROP_TABLE, ("ns",), "t"),
    ("POST", "namespaces/ns/tables/t/unregister", Operation.UNREGISTER_TABLE, ("ns",), "t"),
    ("POST", "tables/rename", Operation.RENAME_TABLE, (), None),
    ("POST", "transactions/commit", Operation.COMMIT_TRANSACTION, (), None),
    ("POST", "namespaces/ns/views", Operation.CREATE_VIEW, ("ns",), None),
    ("POST", "namespaces/ns/views/v", Operation.REPLACE_VIEW, ("ns",), "v"),
    ("POST", "namespaces/ns/register-view", Operation.REGISTER_VIEW, ("ns",), None),
    ("DELETE", "namespaces/ns/views/v", Operation.DROP_VIEW, ("ns",), "v"),
    ("POST", "views/rename", Operation.RENAME_VIEW, (), None),
]
NOT_MUTATIONS = [
    ("GET", "namespaces"),
    ("HEAD", "namespaces/ns/tables/t"),
    ("GET", "namespaces/ns/tables/t"),
    ("GET", "namespaces/ns/tables/t/credentials"),
    ("POST", "namespaces/ns/tables/t/metrics"),
    ("POST", "namespaces/ns/tables/t/plan"),
    ("DELETE", "namespaces/ns/tables/t/plan/1"),
    ("POST", "namespaces/ns/tables/t/tasks"),
    ("POST", "namespaces/ns/tables/t/sign"),
]
NAMES = st.text(st.characters(exclude_characters="\x1f\0/\\%", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in {".", ".."}
)


@pytest.mark.parametrize("prefix", ["", "lake", "a%2Fb", "namespaces", "tables", "views/rename"])
@pytest.mark.parametrize(("method", "end", "operation", "namespace", "name"), MUTATIONS)
def test_every_mutation_is_recognized_whatever_the_catalog_is_called(method, end, operation, namespace, name, prefix):
    path = f"v1/{prefix}/{end}" if prefix else f"v1/{end}"
    expected = Target(operation, prefix, namespace, name)
    assert route_of(request(method, path, idempotency_key="k")) == KeyedMutation(expected)
    assert route_of(request(method, path)) == Forwarded()


@pytest.mark.parametrize(("method", "end"), NOT_MUTATIONS)
def test_what_changes_nothing_is_forwarded_with_a_key_too(method, end):
    assert route_of(request(method, f"v1/lake/{end}", idempotency_key="k")) == Forwarded()


def test_tokens_are_forwarded_with_a_key_too():
    assert route_of(request("POST", "v1/oauth/tokens", idempotency_key="k")) == Forwarded()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "v2/lake/namespaces/ns"),
        ("DELETE", "v1/lake/namespaces/ns/tables"),
        ("POST", "v1/lake/namespaces//tables"),
        ("PUT", "v1/lake/namespaces/ns"),
        ("POST", "v1/lake/namespaces/ns/tables/t/notifications"),
        ("POST", "polaris/v1/lake/namespaces/ns/generic-tables"),
        ("PUT", "polaris/v1/lake/namespaces/ns/policies/p"),
        ("POST", "v1"),
    ],
)
def test_another_change_is_no_request_for_which_a_key_is_kept(method: str, path: str):
    assert route_of(request(method, path, idempotency_key="k")) == UnknownMutation()
    assert route_of(request(method, path)) == Forwarded()
    assert route_of(request("GET", path, idempotency_key="k")) == Forwarded()


@pytest.mark.parametrize("path", ["v1/config", "%761/c%6Fnfig"])
def test_discovery_is_recognized(path):
    assert route_of(request("GET", path, query="warehouse=lake")) == ConfigDiscovery()
    assert route_of(request("POST", path)) == Forwarded()


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_a_drop_with_purge_is_recognized_with_and_without_a_key(value):
    path = "v1/lake/namespaces/a%1Fb/tables/t%2Fu"
    dropped = TableIdentifier("lake", ("a", "b"), "t/u")
    for headers in ({}, {"idempotency_key": "k"}):
        found = route_of(request("DELETE", path, query=f"purgeRequested={value}", **headers))
        assert isinstance(found, DropWithPurge)
        assert (found.identifier, found.target.name) == (dropped, "t/u")


@pytest.mark.parametrize("query", ["", "purgeRequested=false", "purgeRequested=False", "purgeRequested", "purge=true"])
def test_a_drop_without_purge_is_an_ordinary_mutation(query):
    path = "v1/lake/namespaces/ns/tables/t"
    assert isinstance(route_of(request("DELETE", path, query=query, idempotency_key="k")), KeyedMutation)
    assert route_of(request("DELETE", path, query=query)) == Forwarded()


def test_of_a_view_and_of_a_server_without_catalogs_nothing_is_purged():
    for path in ("v1/lake/namespaces/ns/views/v", "v1/namespaces/ns/tables/t", "v1/lake/namespaces/ns/tables/%2E"):
        assert route_of(request("DELETE", path, query="purgeRequested=true")) == Forwarded()


@given(st.lists(NAMES, min_size=1, max_size=3), NAMES, NAMES, st.sampled_from(["\x1f", ".", "%"]))
def test_paths_name_what_they_were_made_of(levels, name, catalog, separator):
    paths = CatalogPaths(separator)
    plain = [level.replace(separator, "_").replace(".", "_") or "x" for level in levels]
    prefix = quote(catalog, safe="")
    found = route_of(request("POST", paths.table(prefix, plain, name), idempotency_key="k"), paths)
    assert found == KeyedMutation(Target(Operation.COMMIT_TABLE, prefix, tuple(plain), name))
    assert found.target.catalog == catalog


def test_a_client_may_join_levels_with_the_default_separator_whatever_the_catalogs_is():
    found = route_of(request("DELETE", "v1/lake/namespaces/a%1Fb", idempotency_key="k"), CatalogPaths("."))
    assert isinstance(found, KeyedMutation)
    assert found.target.namespace == ("a", "b")
