"""`delegation polaris setup` and `doctor` against the stand-in for Polaris, which answers as Apache Polaris 1.7."""

import pytest
from pydantic import SecretStr

from delegation.cli.catalog.polaris import UPKEEP_PRIVILEGES, WantedAccess, connect_management, steps_to, wanted_grants
from delegation.cli.connection import Connection, polaris_as
from delegation.cli.doctor.catalog import CatalogCheck, GrantCheck, ViewCheck
from delegation.polaris.policies import PolicyClient, PolicyTarget
from delegation.removal.orphans.catalog_places import CatalogPlaces
from delegation.removal.orphans.place import Place
from tests.unit.cli.conftest import lines
from tests.unit.cli.polaris.conftest import URL


def administrator():
    return connect_management(Connection(None))


def test_a_second_run_finds_all_that_the_first_one_made(run, stand_in):
    (planned,) = lines(run("polaris", "setup", "lake", "--dry-run", "--json").stdout)
    (first,) = lines(run("polaris", "setup", "lake", "--json").stdout)
    assert planned["steps"] == first["steps"] != []
    (again,) = lines(run("polaris", "setup", "lake", "--json").stdout)
    assert (again["steps"], "client_secret" in again) == ([], False)


def test_the_principal_can_then_do_what_doctor_checks(run, stand_in):
    (made,) = lines(run("polaris", "setup", "lake", "--json").stdout)
    credential = SecretStr(f"{made['client_id']}:{made['client_secret']}")
    client = polaris_as(URL, credential, scope="PRINCIPAL_ROLE:ALL", realm="POLARIS", http=stand_in)
    found = list(CatalogCheck(client, URL, "polaris_service_credential", "lake").findings())
    assert [each.ok for each in found] == [True, True]
    needed = wanted_grants([], whole_index=True)
    assert all(each.ok for each in GrantCheck(administrator(), URL, "lake", "delegation", needed).findings())


def test_doctor_finds_that_nobody_can_drop_a_view_and_setup_mends_it(run, stand_in):
    *_, before = ViewCheck(administrator(), URL, "lake").findings()
    assert (before.ok, "--drop-views" in before.fix) == (False, True)
    (made,) = lines(run("polaris", "setup", "lake", "--drop-views", "--json").stdout)
    assert made["steps"][-1]["step"] == "let-views-be-dropped"
    (again,) = lines(run("polaris", "setup", "lake", "--drop-views", "--json").stdout)
    *_, after = ViewCheck(administrator(), URL, "lake").findings()
    assert (again["steps"], after.ok) == ([], True)
    assert administrator().properties_of("lake")["default-base-location"] == "s3://lake"


def test_only_root_gives_a_new_secret_and_the_former_one_ends(run, stand_in):
    (made,) = lines(run("polaris", "setup", "lake", "--json").stdout)
    (reset,) = lines(run("polaris", "setup", "lake", "--new-secret", "--json").stdout)
    assert reset["client_secret"] != made["client_secret"]
    for secret, ok in ((made["client_secret"], False), (reset["client_secret"], True)):
        credential = SecretStr(f"{reset['client_id']}:{secret}")
        client = polaris_as(URL, credential, scope="PRINCIPAL_ROLE:ALL", realm="POLARIS", http=stand_in)
        assert next(CatalogCheck(client, URL, "polaris_service_credential").findings()).ok is ok


def test_a_wrong_administrator_or_catalog_is_named(run, stand_in, monkeypatch):
    assert "UNKNOWN_CATALOG" in run("polaris", "setup", "pond", "--json").stderr
    monkeypatch.setenv("DELEGATION_POLARIS_ADMIN_CREDENTIAL", "root:wrong")
    assert "POLARIS_UNAUTHORIZED" in run("polaris", "setup", "lake", "--json").stderr


def test_the_principal_can_then_do_what_upkeep_does(run, stand_in):
    """What the passes over policies, the expiries and the removals of orphan files ask Polaris for."""
    admin = polaris_as(URL, SecretStr("root:hunter2"), scope="PRINCIPAL_ROLE:ALL", realm="POLARIS", http=stand_in)
    admin.create_namespace("lake", ("sales",))
    (made,) = lines(run("polaris", "setup", "lake", "--json").stdout)
    credential = SecretStr(f"{made['client_id']}:{made['client_secret']}")
    client = polaris_as(URL, credential, scope="PRINCIPAL_ROLE:ALL", realm="POLARIS", http=stand_in)
    assert list(CatalogPlaces(client, ["lake"])()) == [Place("namespace", "lake.sales", "s3://lake/sales/")]
    assert PolicyClient(client.requests).applicable(PolicyTarget("lake", ("sales",))) == []


@pytest.mark.parametrize("privilege", UPKEEP_PRIVILEGES)
def test_doctor_names_what_upkeep_lacks(run, stand_in, privilege):
    run("polaris", "setup", "lake")
    needed = tuple(one for one in wanted_grants([], whole_index=True) if one.privilege != privilege)
    role = WantedAccess("lake", "other", "other", "other", needed)
    admin = administrator()
    for step in steps_to(admin, role):
        step.run()
    wanted = wanted_grants([], whole_index=True)
    found = {one.name: one for one in GrantCheck(admin, URL, "lake", "other", wanted).findings()}
    lacking = {name for name, one in found.items() if one.ok is False}
    # Reading a view's properties includes listing views.
    assert lacking == ({f"grant {privilege}"} if privilege != "VIEW_LIST" else set())
    if lacking:
        assert "delegation polaris setup lake --principal other" in (found[f"grant {privilege}"].fix or "")
