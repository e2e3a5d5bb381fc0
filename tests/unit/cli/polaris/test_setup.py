"""`delegation polaris setup`: what it adds, what it leaves, and that a secret is neither lost nor shown twice."""

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.cli.catalog.polaris import as_administrator, connect_management, gives, wanted_grants
from delegation.cli.connection import Connection
from delegation.polaris.management import PolarisGrant, management_url
from tests.unit.cli.conftest import lines

INDEX = ["NAMESPACE_LIST", "TABLE_LIST", "TABLE_READ_PROPERTIES", "TABLE_READ_DATA"]
UPKEEP = ["NAMESPACE_READ_PROPERTIES", "VIEW_LIST", "VIEW_READ_PROPERTIES"]


pytestmark = pytest.mark.usefixtures("stand_in")


@pytest.fixture
def admin():
    """Polaris' management, in a catalog with some namespaces."""
    catalog = as_administrator(Connection(None))
    for levels in (("a",), ("b",), ("b", "c")):
        catalog.create_namespace("lake", levels)
    return connect_management(Connection(None))


def granted(admin):
    return admin.grants_of("lake", "delegation")


def test_everything_is_created_and_the_secret_is_printed_once(run, polaris, admin):
    (document,) = lines(run("polaris", "setup", "lake", "--namespace", "b.c", "--json").stdout)
    assert document["client_id"] == admin.client_id_of("delegation")
    assert (document["complete"], [document["client_secret"]]) == (True, polaris.secrets)
    assert admin.principal_roles_of("delegation") == {"delegation"}
    assert admin.catalog_roles_of("delegation", "lake") == {"delegation"}
    assert granted(admin) == {*map(PolarisGrant, (*INDEX, *UPKEEP)), PolarisGrant("TABLE_WRITE_DATA", ("b", "c"))}


def test_a_dry_run_changes_nothing_and_names_the_same_steps(run, polaris):
    (planned,) = lines(run("polaris", "setup", "lake", "--dry-run", "--json").stdout)
    assert polaris.changes == []
    (done,) = lines(run("polaris", "setup", "lake", "--json").stdout)
    assert planned["steps"] == done["steps"]
    assert len(done["steps"]) == len(polaris.changes)
    assert "would create the principal" in run("polaris", "setup", "lake", "--principal", "p", "--dry-run").stdout


def test_only_what_is_missing_is_added(run, polaris, admin):
    run("polaris", "setup", "lake", "--namespace", "a", "--namespace", "b.c", "--only-namespaces")
    assert granted(admin) == {PolarisGrant("TABLE_WRITE_DATA", ("a",)), PolarisGrant("TABLE_WRITE_DATA", ("b", "c"))}
    assert run("polaris", "setup", "lake", "--only-namespaces").exit_code == 2
    polaris.changes.clear()
    run("polaris", "setup", "lake", "--namespace", "a")
    assert polaris.changes == ["PUT catalogs/lake/catalog-roles/delegation/grants"] * len((*INDEX, *UPKEEP))
    assert granted(admin) >= {*map(PolarisGrant, (*INDEX, *UPKEEP))}


def test_a_secret_file_is_readable_by_its_owner_alone_and_is_never_replaced(run, polaris, admin, tmp_path):
    path = tmp_path / "principal.json"
    result = run("polaris", "setup", "lake", "--secret-file", str(path))
    [secret] = polaris.secrets
    assert secret not in result.output
    assert json.loads(path.read_text()) == {"client_id": admin.client_id_of("delegation"), "client_secret": secret}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = list(polaris.changes)
    again = run("polaris", "setup", "lake", "--principal", "other", "--secret-file", str(path), "--json")
    assert json.loads(again.stderr)["error_code"] == "FILE_NOT_WRITTEN"
    assert polaris.changes == before


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_failure_after_the_principal_was_created_does_not_lose_its_secret(run, polaris, admin, words):
    polaris.fails_at = 3
    result = run("polaris", "setup", "lake", *words)
    assert result.exit_code == 1
    assert polaris.secrets[0] in result.stdout
    if words:
        (document,) = lines(result.stdout)
        assert (document["complete"], len(document["steps"])) == (False, 2)
        assert json.loads(result.stderr)["error_code"] == "POLARIS_FORBIDDEN"
    polaris.fails_at = None
    assert run("polaris", "setup", "lake").exit_code == 0
    assert PolarisGrant("TABLE_WRITE_DATA") in granted(admin)


def test_a_missing_credential_is_named(run, monkeypatch):
    monkeypatch.delenv("DELEGATION_POLARIS_ADMIN_CREDENTIAL")
    result = run("polaris", "setup", "lake", "--json")
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (2, "SETTINGS_INVALID")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://p.test/api/catalog", "https://p.test/api/management/v1"),
        ("http://p.test:8181/polaris/api/catalog/", "http://p.test:8181/polaris/api/management/v1"),
    ],
)
def test_the_management_api_is_beside_the_catalogs(url, expected):
    assert management_url(url) == expected


@pytest.mark.parametrize(
    ("granted", "needed", "expected"),
    [
        (("TABLE_WRITE_DATA", ()), ("TABLE_READ_DATA", ("a",)), True),
        (("TABLE_WRITE_DATA", ("a",)), ("TABLE_WRITE_DATA", ("a", "b")), True),
        (("TABLE_WRITE_DATA", ("a", "b")), ("TABLE_WRITE_DATA", ("a",)), False),
        (("TABLE_READ_DATA", ()), ("TABLE_WRITE_DATA", ()), False),
        (("TABLE_READ_DATA", ()), ("TABLE_LIST", ()), True),
        (("TABLE_READ_PROPERTIES", ()), ("TABLE_READ_DATA", ()), False),
        (("CATALOG_MANAGE_CONTENT", ()), ("TABLE_WRITE_DATA", ("a",)), True),
        (("TABLE_WRITE_DATA", ()), ("NAMESPACE_LIST", ()), False),
        (("NAMESPACE_LIST", ()), ("NAMESPACE_READ_PROPERTIES", ()), False),
        (("NAMESPACE_FULL_METADATA", ()), ("NAMESPACE_READ_PROPERTIES", ("a",)), True),
        (("VIEW_READ_PROPERTIES", ()), ("VIEW_LIST", ()), True),
        (("VIEW_LIST", ()), ("VIEW_READ_PROPERTIES", ()), False),
        (("TABLE_WRITE_DATA", ()), ("VIEW_LIST", ()), False),
    ],
)
def test_a_grant_gives_what_it_includes_there_and_below(granted, needed, expected):
    assert gives(PolarisGrant(*granted), PolarisGrant(*needed)) is expected


NAMESPACES = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), max_size=3)


@given(namespaces=NAMESPACES, whole_index=st.booleans())
def test_each_wanted_grant_gives_what_it_is_wanted_for(namespaces, whole_index):
    wanted = wanted_grants(namespaces, whole_index=whole_index)
    assert wanted
    assert all(gives(grant, grant) for grant in wanted)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ({"type": "EXTERNAL"}, "EXTERNAL"),
        ({"type": "INTERNAL", "storageConfigInfo": {"storageType": "AZURE"}}, "storage type is AZURE"),
    ],
)
def test_a_federated_catalog_and_one_of_another_storage_are_refused(run, polaris, kind, word):
    polaris.kind = kind
    result = run("polaris", "setup", "lake", "--json")
    [problem] = lines(result.stderr)
    assert (result.exit_code, problem["error_code"], polaris.changes) == (1, "CATALOG_UNSUPPORTED", [])
    assert word in problem["message"]
