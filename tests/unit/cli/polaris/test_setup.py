"""`delegation polaris setup`: what it adds, what it leaves, and that a secret is neither lost nor shown twice."""

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.cli.catalog.polaris import gives, wanted_grants
from delegation.cli.connection import Connection
from delegation.polaris.management import PolarisGrant, management_url
from tests.unit.cli.conftest import lines
from tests.unit.cli.polaris.management_api import ManagementApi

INDEX = ["NAMESPACE_LIST", "TABLE_LIST", "TABLE_READ_PROPERTIES", "TABLE_READ_DATA"]
UPKEEP = ["NAMESPACE_READ_PROPERTIES", "VIEW_LIST", "VIEW_READ_PROPERTIES"]


@pytest.fixture
def polaris(monkeypatch) -> ManagementApi:
    api = ManagementApi()
    monkeypatch.setattr(Connection, "http", lambda _self: api.client())
    monkeypatch.setenv("DELEGATION_POLARIS_URL", "https://polaris.test/api/catalog")
    monkeypatch.setenv("DELEGATION_POLARIS_ADMIN_CREDENTIAL", "root:hunter2")
    return api


def granted(polaris, role="delegation"):
    return [(grant["privilege"], tuple(grant.get("namespace", ()))) for grant in polaris.grants[role]]


def test_everything_is_created_and_the_secret_is_printed_once(run, polaris):
    (document,) = lines(run("polaris", "setup", "lake", "--namespace", "sales.eu", "--json").stdout)
    assert (document["client_id"], document["client_secret"]) == ("id-of-delegation", "secret-1")
    assert document["complete"]
    assert polaris.assigned == {"delegation": {"delegation"}}
    assert polaris.used == {"delegation": {"delegation"}}
    assert granted(polaris) == [
        *((privilege, ()) for privilege in (*INDEX, *UPKEEP)),
        ("TABLE_WRITE_DATA", ("sales", "eu")),
    ]


def test_a_second_run_changes_nothing(run, polaris):
    run("polaris", "setup", "lake")
    before = list(polaris.changes)
    result = run("polaris", "setup", "lake")
    assert (result.exit_code, polaris.changes) == (0, before)
    assert "Nothing to do" in result.stdout
    assert "secret" not in result.stdout


def test_a_dry_run_changes_nothing_and_names_the_same_steps(run, polaris):
    (planned,) = lines(run("polaris", "setup", "lake", "--dry-run", "--json").stdout)
    assert polaris.changes == []
    (done,) = lines(run("polaris", "setup", "lake", "--json").stdout)
    assert planned["steps"] == done["steps"]
    assert len(done["steps"]) == len(polaris.changes)
    assert "would create the principal" in run("polaris", "setup", "lake", "--principal", "p", "--dry-run").stdout


def test_only_what_is_missing_is_added(run, polaris):
    run("polaris", "setup", "lake")
    polaris.grants["delegation"].pop(2)
    polaris.changes.clear()
    run("polaris", "setup", "lake")
    assert polaris.changes == ["PUT catalogs/lake/catalog-roles/delegation/grants"]
    assert ("TABLE_READ_PROPERTIES", ()) in granted(polaris)


def test_a_secret_file_is_readable_by_its_owner_alone_and_is_never_replaced(run, polaris, tmp_path):
    path = tmp_path / "principal.json"
    result = run("polaris", "setup", "lake", "--secret-file", str(path))
    assert "secret-1" not in result.output
    assert json.loads(path.read_text()) == {"client_id": "id-of-delegation", "client_secret": "secret-1"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    polaris.principals.clear()
    before = list(polaris.changes)
    again = run("polaris", "setup", "lake", "--secret-file", str(path), "--json")
    assert json.loads(again.stderr)["error_code"] == "FILE_NOT_WRITTEN"
    assert polaris.changes == before


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_failure_after_the_principal_was_created_does_not_lose_its_secret(run, polaris, words):
    polaris.fails_at = 3
    result = run("polaris", "setup", "lake", *words)
    assert result.exit_code == 1
    assert "secret-1" in result.stdout
    if words:
        (document,) = lines(result.stdout)
        assert (document["complete"], len(document["steps"])) == (False, 2)
        assert json.loads(result.stderr)["error_code"] == "POLARIS_FORBIDDEN"
    polaris.fails_at = None
    assert run("polaris", "setup", "lake").exit_code == 0
    assert ("TABLE_WRITE_DATA", ()) in granted(polaris)


def test_a_new_secret_is_made_only_on_request(run, polaris):
    run("polaris", "setup", "lake")
    (document,) = lines(run("polaris", "setup", "lake", "--new-secret", "--json").stdout)
    assert document["client_secret"] == "secret-2"


def test_grants_on_namespaces_alone(run, polaris):
    run("polaris", "setup", "lake", "--namespace", "a", "--namespace", "b.c", "--only-namespaces")
    assert granted(polaris) == [("TABLE_WRITE_DATA", ("a",)), ("TABLE_WRITE_DATA", ("b", "c"))]
    assert run("polaris", "setup", "lake", "--only-namespaces").exit_code == 2


def test_an_unknown_catalog_and_a_missing_credential_are_named(run, polaris, monkeypatch):
    assert json.loads(run("polaris", "setup", "pond", "--json").stderr)["error_code"] == "UNKNOWN_CATALOG"
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
