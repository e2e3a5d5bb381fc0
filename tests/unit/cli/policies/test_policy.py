"""`delegation policy …` with the stand-in for Polaris: as a caller creates, attaches, shows and detaches a policy."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.contract.polaris.world import SCHEMA, Polaris, PolarisView, stand_in
from tests.unit.cli.conftest import lines
from tests.unit.client.service import ROOT as API
from tests.unit.client.service import Service
from tests.unit.polaris.scripted import raw_json

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def polaris() -> Iterator[Polaris]:
    """A catalog `lake` with the table `sales.eu.orders`, whose writers keep 30 days."""
    with stand_in() as server, server.session() as http:
        url = f"{server.url}/v1/lake/namespaces"
        for levels in (["gov"], ["sales"], ["sales", "eu"]):
            assert http.post(url, json={"namespace": levels, "properties": {}}).status_code == 200
        own = {"delegation.policy.snapshot-expiry.max_snapshot_age_days": "30"}
        table = {"name": "orders", "schema": SCHEMA, "properties": own}
        assert http.post(f"{url}/sales%1Feu/tables", json=table).status_code == 200
        yield server


@pytest.fixture(autouse=True)
def _connected(polaris: Polaris, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DELEGATION_POLARIS_URL", polaris.url)
    monkeypatch.setenv("DELEGATION_POLARIS_CREDENTIAL", ":".join(polaris.credential))
    monkeypatch.setenv("DELEGATION_REALM", polaris.realm)
    yield
    with polaris.session() as http:
        path = f"{polaris.url}/polaris/v1/lake/namespaces/gov/policies"
        for each in http.get(path).json()["identifiers"]:
            http.delete(f"{path}/{each['name']}", params={"detach-all": "true"})


def created(run: Run, name: str = "keep", *words: str) -> Any:
    result = run("policy", "create", f"lake.gov.{name}", "--type", "snapshot-expiry", *words, "--json")
    assert result.exit_code == 0, result.output
    return lines(result.stdout)[0]


def shown(run: Run, *words: str) -> Any:
    (document,) = lines(run("policy", "show", "lake.sales.eu.orders", *words, "--json").stdout)
    return document


def expiry(document: Any) -> Any:
    return next(rule for rule in document["rules"] if rule["type"] == "system.snapshot-expiry")


def test_from_creation_to_detachment(run: Run) -> None:
    made = created(run, "keep", "--set", "max_snapshot_age_days=7", "--set", "min_snapshot_to_keep=3")
    assert json.loads(made["content"]) == {
        "version": "2025-02-03",
        "enable": True,
        "config": {"max_snapshot_age_days": 7, "min_snapshot_to_keep": 3},
    }
    assert (expiry(shown(run))["status"], expiry(shown(run))["policy"]) == ("OFF", None)
    attached = run("policy", "attach", "lake.gov.keep", "--namespace", "lake.sales")
    assert attached.stdout == "Attached the policy lake.gov.keep to lake.sales.\n"
    rule = expiry(shown(run))
    assert (rule["status"], rule["policy"]) == ("ACTIVE", "lake.gov.keep (version 0, inherited)")
    assert {key: (one["text"], one["origin"]) for key, one in rule["values"].items()} == {
        "min_snapshot_to_keep": ("3", "policy"),
        "max_snapshot_age_days": ("30 days", "table property"),
        "max_ref_age_days": ("forever", "default"),
    }
    detached = run("policy", "detach", "lake.gov.keep", "--namespace", "lake.sales")
    assert detached.stdout == "Detached the policy lake.gov.keep from lake.sales.\n"
    assert expiry(shown(run))["status"] == "OFF"
    again = run("policy", "detach", "lake.gov.keep", "--namespace", "lake.sales", "--json")
    assert (again.exit_code, lines(again.stderr)[0]["error_code"]) == (1, "POLICY_NOT_ATTACHED")
    assert run("policy", "delete", "lake.gov.keep").stdout == "Deleted the policy lake.gov.keep.\n"


def test_the_text_names_each_value_with_its_origin(run: Run) -> None:
    created(run, "keep", "--set", "min_snapshot_to_keep=3", "--set", "older_than=0")
    run("policy", "attach", "lake.gov.keep", "--table", "lake.sales.eu.orders")
    text = run("policy", "show", "lake.sales.eu.orders").stdout
    assert "snapshot-expiry  ACTIVE" in text
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line.startswith("  m")}
    assert rows == {
        "min_snapshot_to_keep": "3 policy lake.gov.keep (version 0)",
        "max_snapshot_age_days": ("30 days table property delegation.policy.snapshot-expiry.max_snapshot_age_days"),
        "max_ref_age_days": "forever default",
    }
    assert "POLICY_KEYS_UNKNOWN lake.gov.keep (version 0): this release ignores older_than" in text
    assert "The operator's limits are not known here" in text
    assert "orphan" not in text


def test_without_a_policy_nothing_is_done(run: Run) -> None:
    text = run("policy", "show", "lake.sales.eu.orders").stdout
    assert "No policy applies to lake.sales.eu.orders" in text


def test_a_namespace_and_a_catalog_show_what_their_tables_inherit(run: Run) -> None:
    created(run, "keep", "--set", "max_snapshot_age_days=7")
    run("policy", "attach", "lake.gov.keep", "--catalog", "lake")
    for name, kind in (("lake", "catalog"), ("lake.sales", "namespace"), ("lake.sales.eu", "namespace")):
        (document,) = lines(run("policy", "show", name, "--json").stdout)
        assert document[kind] == name
        assert expiry(document)["values"]["max_snapshot_age_days"]["text"] == "7 days"
    assert "snapshot-expiry  ACTIVE" in run("policy", "show", "lake.sales.eu").stdout
    missing = run("policy", "show", "lake.sales.nothing", "--json")
    assert (missing.exit_code, lines(missing.stderr)[0]["error_code"]) == (1, "NO_SUCH_TABLE")
    assert run("policy", "show", "lake.sales.", "--json").exit_code == 2


def test_policies_of_a_namespace_that_the_principal_may_not_read_are_named(run, polaris, monkeypatch):
    created(run, "keep", "--set", "max_snapshot_age_days=7")
    run("policy", "attach", "lake.gov.keep", "--namespace", "lake.sales")
    assert shown(run)["unreadable"] is None
    view = PolarisView(polaris)
    credential = view.credential({"type": "catalog", "privilege": "TABLE_READ_PROPERTIES"})
    monkeypatch.setenv("DELEGATION_POLARIS_CREDENTIAL", ":".join(credential))
    document = shown(run)
    assert expiry(document)["status"] == "ACTIVE"
    assert "needs NAMESPACE_READ_PROPERTIES on the namespace or the catalog" in document["unreadable"]
    text = " ".join(run("policy", "show", "lake.sales.eu.orders").stdout.split())
    assert "the policies of lake.sales.eu cannot be read with this credential" in text
    view.close()


def test_the_operators_limits_of_a_cdk_json_are_applied_and_named(run: Run, tmp_path: Path) -> None:
    created(run, "keep", "--set", "max_snapshot_age_days=7")
    run("policy", "attach", "lake.gov.keep", "--catalog", "lake")
    properties = {"delegation.upkeep.types": "snapshot-expiry", "delegation.upkeep.least-age": "90d"}
    file = tmp_path / "cdk.json"
    file.write_text(json.dumps({"context": {"delegation:properties": properties}}), encoding="utf-8")
    document = shown(run)
    assert document["limits_from"] == "cdk.json"
    age = expiry(document)["values"]["max_snapshot_age_days"]
    assert (age["text"], age["origin_name"], age["asked"]) == ("90 days", "delegation.upkeep.least-age", "30 days")
    text = run("policy", "show", "lake.sales.eu.orders").stdout
    assert "replaces the looser value" in " ".join(text.split())
    assert "cdk.json." in text
    file.write_text(json.dumps({"context": {"delegation:properties": {}}}), encoding="utf-8")
    stage = tmp_path / "prod.json"
    stage.write_text(json.dumps({"delegation:properties": {"delegation.upkeep.types": "none"}}), encoding="utf-8")
    rule = expiry(shown(run, "--stage-file", str(stage)))
    assert (rule["status"], rule["reason"]) == ("OFF", "the operator's delegation.upkeep.types does not allow it")
    stage.write_text(json.dumps({"delegation:properties": {"delegation.upkeep.type": "none"}}), encoding="utf-8")
    refused = run("policy", "show", "lake.sales.eu.orders", "--stage-file", str(stage), "--json")
    assert (refused.exit_code, lines(refused.stderr)[0]["error_code"]) == (1, "INVALID_PROPERTY")


def deployed(service: Service, properties: dict[str, str], **more: Any) -> None:
    """Let the running service answer with its properties."""
    maintenance = {"properties": properties, "policy_file": None, "error_code": None, **more}
    health = {"status": "up", "version": "1", "realm": "POLARIS", "dependencies": [], "paused": []}
    service.answer("GET", f"{API}/v1/health", raw_json(json.dumps({**health, "maintenance": maintenance})))


def test_the_limits_are_those_of_the_running_deployment_whatever_the_checkout_has(run, service, tmp_path, monkeypatch):
    monkeypatch.setenv("DELEGATION_EDGE_URL", "https://edge.test/delegation-service/api")
    created(run, "keep", "--set", "max_snapshot_age_days=7")
    run("policy", "attach", "lake.gov.keep", "--catalog", "lake")
    off = {"context": {"delegation:properties": {"delegation.upkeep.types": "none"}}}
    (tmp_path / "cdk.json").write_text(json.dumps(off), encoding="utf-8")
    deployed(service, {"delegation.upkeep.types": "snapshot-expiry", "delegation.upkeep.least-age": "90d"})
    document = shown(run)
    assert document["limits_from"] == "https://edge.test/delegation-service/api"
    assert expiry(document)["status"] == "ACTIVE"
    assert expiry(document)["values"]["max_snapshot_age_days"]["origin_name"] == "delegation.upkeep.least-age"
    assert expiry(shown(run, "--cdk", str(tmp_path / "cdk.json")))["status"] == "OFF"


def test_a_deployment_that_does_not_answer_is_said_beside_the_limits_of_the_file(run, service, tmp_path, monkeypatch):
    monkeypatch.setenv("DELEGATION_EDGE_URL", "https://edge.test/delegation-service/api")
    off = {"context": {"delegation:properties": {"delegation.upkeep.types": "none"}}}
    (tmp_path / "cdk.json").write_text(json.dumps(off), encoding="utf-8")
    service.answer("GET", f"{API}/v1/health", raw_json(json.dumps({"status": "up", "version": "0.1"})))
    text = run("policy", "show", "lake.sales.eu.orders").stdout
    assert all(fact in text for fact in ("cdk.json.", "release 0.1 does not return"))


def test_the_policies_of_the_deployments_file_are_not_taken_for_those_of_the_catalog(run, service, monkeypatch):
    monkeypatch.setenv("DELEGATION_EDGE_URL", "https://edge.test/delegation-service/api")
    deployed(service, {"delegation.upkeep.types": "snapshot-expiry"}, policy_file=["lake"])
    result = run("policy", "show", "lake.sales.eu.orders", "--json")
    assert (result.exit_code, lines(result.stderr)[0]["error_code"]) == (1, "POLICY_FILE_UNKNOWN")


def test_a_policy_file_replaces_the_catalogs_policies(run: Run, tmp_path: Path) -> None:
    created(run, "keep", "--set", "max_snapshot_age_days=7")
    run("policy", "attach", "lake.gov.keep", "--catalog", "lake")
    content = {"enable": True, "config": {"min_snapshot_to_keep": 9}}
    entry = {
        "name": "nine",
        "type": "system.snapshot-expiry",
        "content": content,
        "attached": [{"catalog": "lake", "namespace": ["sales"]}],
    }
    file = tmp_path / "policies.json"
    file.write_text(json.dumps({"format": 1, "policies": [entry]}), encoding="utf-8")
    document = shown(run, "--policy-file", str(file))
    assert document["policies_from"] == str(file)
    assert expiry(document)["policy"] == "nine of the policy file (inherited)"
    file.write_text("{", encoding="utf-8")
    refused = run("policy", "show", "lake.sales.eu.orders", "--policy-file", str(file), "--json")
    assert (refused.exit_code, lines(refused.stderr)[0]["error_code"]) == (1, "POLICY_FILE_INVALID")
    missing = run("policy", "show", "lake.sales.eu.orders", "--policy-file", "no.json", "--json")
    assert (missing.exit_code, lines(missing.stderr)[0]["error_code"]) == (1, "FILE_UNREADABLE")


def test_policies_are_listed_with_their_state(run: Run, polaris: Polaris) -> None:
    created(run, "off", "--disabled", "--description", "for later")
    created(run, "on")
    with polaris.session() as http:
        body = {"name": "orphans", "type": "system.orphan-file-removal", "content": '{"enable": true}'}
        assert http.post(f"{polaris.url}/polaris/v1/lake/namespaces/gov/policies", json=body).status_code == 200
    (document,) = lines(run("policy", "list", "lake.gov", "--json").stdout)
    assert [(one["policy"], one["state"], one["version"]) for one in document["policies"]] == [
        ("lake.gov.off", "disabled", 0),
        ("lake.gov.on", "enabled", 0),
        ("lake.gov.orphans", "enabled", 0),
    ]
    text = run("policy", "list", "lake.gov", "--type", "snapshot-expiry").stdout
    assert "lake.gov.off  snapshot-expiry  0        disabled  for later" in text
    assert "orphans" not in text
    assert run("policy", "list", "lake.sales").stdout == "No policies.\n"


@pytest.mark.parametrize(
    "values", [["max_snapshot_age_days=-1"], ["min_snapshot_to_keep=0"], ["max_ref_age_days=true"], ["x=NaN"]]
)
def test_a_policy_without_effect_is_not_created(run: Run, values: list[str]) -> None:
    words = [word for value in values for word in ("--set", value)]
    result = run("policy", "create", "lake.gov.bad", "--type", "snapshot-expiry", *words, "--json")
    assert (result.exit_code, lines(result.stderr)[0]["error_code"]) == (1, "POLICY_INVALID")
    assert run("policy", "list", "lake.gov").stdout == "No policies.\n"


def test_an_unknown_key_is_warned_of(run: Run) -> None:
    words = ("--type", "snapshot-expiry", "--set", "older_than=0")
    result = run("policy", "create", "lake.gov.odd", *words)
    assert result.exit_code == 0
    assert "Warning: this release ignores older_than" in result.stderr


def test_a_content_is_read_from_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "content.json"
    file.write_text('{"enable": true, "max_orphan_file_age_in_days": 7}', encoding="utf-8")
    words = ("--type", "orphan-file-removal", "--content", str(file))
    assert run("policy", "create", "lake.gov.orphans", *words).exit_code == 0
    both = run("policy", "create", "lake.gov.o", *words, "--set", "a=1", "--json")
    assert (both.exit_code, lines(both.stderr)[0]["error_code"]) == (2, "MISUSE")


@pytest.mark.parametrize(
    "words",
    [
        ("attach", "lake.gov.keep"),
        ("attach", "lake.gov.keep", "--catalog", "lake", "--namespace", "lake.sales"),
        ("attach", "lake.gov.keep", "--catalog", "other"),
        ("detach", "lake.gov.keep", "--table", "other.sales.orders"),
        ("detach", "lake.gov.keep", "--namespace", "lake"),
        ("attach", "lake.keep", "--catalog", "lake"),
        ("list", "lake"),
        ("list", "lake.gov", "--type", "expiry"),
        ("create", "lake.gov.keep", "--type", "expiry"),
        ("show", "lake..orders"),
    ],
)
def test_misuse_is_named_before_anything_is_done(run: Run, words: tuple[str, ...]) -> None:
    result = run("policy", *words, "--json")
    assert (result.exit_code, lines(result.stderr)[0]["error_code"]) == (2, "MISUSE")


def test_what_polaris_refuses_has_a_next_step(run: Run, polaris: Polaris) -> None:
    created(run)
    for words, code in (
        (("create", "lake.gov.keep", "--type", "snapshot-expiry"), "POLICY_ALREADY_EXISTS"),
        (("attach", "lake.gov.none", "--catalog", "lake"), "NO_SUCH_POLICY"),
        (("attach", "lake.gov.keep", "--table", "lake.sales.eu.none"), "NO_SUCH_TABLE"),
        (("show", "lake.sales.eu.none"), "NO_SUCH_TABLE"),
        (("list", "lake.none"), "NO_SUCH_NAMESPACE"),
    ):
        result = run("policy", *words, "--json")
        problem = lines(result.stderr)[0]
        assert (result.exit_code, problem["error_code"]) == (1, code)
        assert problem["next_step"]
    run("policy", "attach", "lake.gov.keep", "--catalog", "lake")
    assert lines(run("policy", "delete", "lake.gov.keep", "--json").stderr)[0]["error_code"] == "POLICY_IN_USE"
    assert run("policy", "delete", "lake.gov.keep", "--detach-all").exit_code == 0
