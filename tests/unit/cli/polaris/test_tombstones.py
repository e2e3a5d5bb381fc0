"""`delegation polaris setup --tombstones` and what `doctor` says of it, against the stand-in for Polaris."""

import httpx
import pytest

from delegation.cli.catalog.polaris import as_administrator, connect_management
from delegation.cli.connection import Connection
from delegation.cli.doctor.command import catalog_findings, wanted_of
from delegation.polaris.answers import NamespaceNotEmpty, NoSuchNamespace
from delegation.polaris.client import PolarisClient
from tests.unit.cli.conftest import lines

WORDS = ("polaris", "setup", "lake", "--namespace", "sales", "--tombstones", "ops.dropped", "--callers", "analysts")


@pytest.fixture
def client(stand_in: httpx.Client) -> PolarisClient:
    """Polaris as its administrator, with a namespace of tables and a role of callers."""
    found = as_administrator(Connection(None))
    found.create_namespace("lake", ("sales",))
    connect_management(Connection(None)).create_principal_role("analysts")
    return found


def checks(tombstones: str | None = "lake.ops.dropped", callers: tuple[str, ...] = ("analysts",)) -> dict[str, object]:
    wanted = wanted_of("lake.sales", tombstones, callers, "delegation", whole_index=True)
    return {f"{one.name}: {one.detail}": one for one in catalog_findings(Connection(None), wanted)}


def test_the_namespace_its_grants_and_the_callers_role_are_made_once(run, client):
    (planned,) = lines(run(*WORDS, "--dry-run", "--json").stdout)
    assert not client.has_namespace("lake", ("ops",))
    (made,) = lines(run(*WORDS, "--json").stdout)
    assert planned["steps"] == made["steps"]
    texts = [step["text"] for step in made["steps"]]
    assert texts[:2] == ["create the namespace ops in lake", "create the namespace ops.dropped in lake"]
    assert texts[-6:] == [
        "grant TABLE_WRITE_DATA on namespace ops.dropped to delegation",
        "grant TABLE_DROP on namespace ops.dropped to delegation",
        "grant TABLE_CREATE on namespace sales to delegation",
        "create the catalog role delegation_callers in lake",
        "grant TABLE_CREATE on namespace ops.dropped to delegation_callers",
        "give the principal role analysts the catalog role delegation_callers of lake",
    ]
    assert client.has_namespace("lake", ("ops", "dropped"))
    (again,) = lines(run(*WORDS, "--json").stdout)
    assert again["steps"] == []


def test_doctor_finds_nothing_missing_after_setup(run, client):
    run(*WORDS, "--drop-views")
    found = checks()
    assert not [name for name, one in found.items() if one.ok is False and not name.startswith("Polaris")]
    assert "tombstones: the namespace lake.ops.dropped exists" in found
    assert "callers: analysts may rename tables into the namespace, by TABLE_CREATE on namespace ops.dropped" in found
    for privilege, place in (
        ("TABLE_WRITE_DATA", "ops.dropped"), ("TABLE_DROP", "ops.dropped"), ("TABLE_CREATE", "sales"),
    ):  # fmt: skip
        assert any(
            name.startswith(f"grant {privilege}: held on namespace {place}") and one.ok for name, one in found.items()
        ), (privilege, place)


def test_doctor_names_each_missing_part_and_the_command_that_adds_it(run, client):
    run("polaris", "setup", "lake", "--namespace", "sales")
    found = checks()
    missing = found["tombstones: there is no namespace lake.ops.dropped"]
    assert missing.fix == "Create it: `delegation polaris setup lake --tombstones ops.dropped`."
    client.create_namespace("lake", ("ops",))
    client.create_namespace("lake", ("ops", "dropped"))
    found = checks(callers=("analysts", "nobody"))
    lacking = found["callers: analysts lacks TABLE_CREATE on namespace ops.dropped, so its drops are refused"]
    assert lacking.fix == "`delegation polaris setup lake --tombstones ops.dropped --callers analysts` adds it."
    assert found["callers: there is no principal role nobody"].ok is False
    setup = "delegation polaris setup lake --principal delegation --tombstones ops.dropped"
    assert found["grant TABLE_DROP: missing on namespace ops.dropped"].fix == f"`{setup}` adds it."
    assert found["grant TABLE_CREATE: missing on namespace sales"].fix == f"`{setup} --namespace sales` adds it."
    assert next(one for name, one in checks(callers=()).items() if name.startswith("callers")).ok is None


def test_without_tombstones_nothing_of_them_is_made_or_checked(run, client):
    (made,) = lines(run("polaris", "setup", "lake", "--namespace", "sales", "--json").stdout)
    assert not [step for step in made["steps"] if "TABLE_DROP" in step["text"] or "TABLE_CREATE" in step["text"]]
    assert not [name for name in checks(tombstones=None, callers=()) if "TABLE_DROP" in name or "tombstones" in name]


def test_an_unknown_role_of_callers_is_refused_before_the_first_change(run, client):
    refused = run(
        "polaris", "setup", "lake", "--tombstones", "ops", "--callers", "analysts", "--callers", "typo", "--json"
    )
    assert "UNKNOWN_PRINCIPAL_ROLE" in refused.stderr
    assert "typo" in refused.stderr
    assert not client.has_namespace("lake", ("ops",))


@pytest.mark.parametrize(
    "words",
    [
        ("polaris", "setup", "lake", "--callers", "analysts"),
        ("polaris", "setup", "lake", "--tombstones", "a", "--namespace", "sales", "--only-namespaces"),
        ("polaris", "setup", "lake", "--tombstones", "a..b"),
        ("doctor", "--callers", "analysts"),
        ("doctor", "--tombstones", "lake"),
        ("doctor", "--namespace", "lake.sales", "--tombstones", "pond.dropped"),
    ],
)
def test_options_that_do_not_go_together_are_a_misuse(run, client, words):
    assert run(*words).exit_code == 2


def test_a_namespace_is_dropped_when_it_is_empty(client):
    client.create_namespace("lake", ("ops",))
    client.create_namespace("lake", ("ops", "dropped"))
    client.create_namespace("lake", ("ops", "dropped"))
    with pytest.raises(NamespaceNotEmpty):
        client.drop_namespace("lake", ("ops",))
    client.drop_namespace("lake", ("ops", "dropped"))
    with pytest.raises(NoSuchNamespace):
        client.drop_namespace("lake", ("ops", "dropped"))
    assert not client.has_namespace("lake", ("ops", "dropped"))
