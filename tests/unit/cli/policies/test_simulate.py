"""`delegation policy simulate`, over healths that the service stored and the policies of a catalog."""

import json
from datetime import timedelta

import pytest

from delegation.cli.catalog import simulation as simulating
from delegation.cli.connection import Connection
from delegation.polaris.answers import PolarisForbidden
from delegation.polaris.policies import PolicyTarget
from tests.unit.cli.policies.test_policy import deployed
from tests.unit.upkeep.execution.catalogs import NOW, WEEK, UpkeepWorld, without_history


class _Catalog:
    requests = None


@pytest.fixture
def world(monkeypatch, tmp_path) -> UpkeepWorld:
    world = UpkeepWorld()
    monkeypatch.setattr(Connection, "health_store", lambda _self, _table: world.healths)
    monkeypatch.setattr(Connection, "catalog", lambda _self: _Catalog())
    monkeypatch.setattr(simulating, "PolicyClient", lambda _requests: world.policies)
    monkeypatch.setattr(simulating, "utc_now", lambda: NOW)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    world.write("old", [30.0, 20.0, 1.0])
    world.write("new", [1.0])
    return world


def test_what_would_run_is_shown_with_its_cost_and_nothing_is_written(run, world, stack):
    world.policies.attach(WEEK, "ns")
    before = list(world.healths.healths("lake"))
    found = json.loads(run("policy", "simulate", "lake", "--json", "--stack", str(stack)).stdout)
    [one] = found["runs"]
    assert (one["table"], one["policy"]) == ("lake.ns.old", "lake.gov.keep")
    assert one["begins"] == "2026-11-23T12:00:00.000000Z"
    assert one["expirable_snapshots"] == 2
    assert one["freed_bytes"]["at_most"] == 100 * 1024 * 1024
    assert one["cost"] > 0
    assert (found["waiting"], found["unknown"], found["limits_from"]) == ([], [], None)
    assert list(world.healths.healths("lake")) == before
    assert world.all_tasks() == []
    assert not world.loads


def test_without_a_policy_nothing_would_run(run, world, stack):
    text = run("policy", "simulate", "lake", "--stack", str(stack)).stdout
    assert "0 runs within 7 days" in text
    assert "Nothing was run" in text


def test_the_deployments_window_and_limits_count(run, world, stack, tmp_path):
    world.policies.attach(WEEK, "ns")
    properties = {"delegation.upkeep.types": "snapshot-expiry", "delegation.upkeep.window": "0 1 * * *"}
    file = tmp_path / "cdk.json"
    file.write_text(json.dumps({"context": {"delegation:properties": properties}}), encoding="utf-8")
    given = ("policy", "simulate", "lake", "--json", "--cdk", str(file), "--stack", str(stack))
    [one] = json.loads(run(*given).stdout)["runs"]
    assert one["begins"] == "2026-11-24T01:00:00.000000Z"
    properties["delegation.upkeep.least-age"] = "60d"
    file.write_text(json.dumps({"context": {"delegation:properties": properties}}), encoding="utf-8")
    assert json.loads(run(*given).stdout)["runs"] == []


def test_the_window_is_that_of_the_running_deployment(run, world, service, stack, tmp_path):
    world.policies.attach(WEEK, "ns")
    (tmp_path / "cdk.json").write_text(
        json.dumps({"context": {"delegation:properties": {"delegation.upkeep.types": "none"}}}), encoding="utf-8"
    )
    deployed(service, {"delegation.upkeep.types": "snapshot-expiry", "delegation.upkeep.window": "0 1 * * *"})
    [one] = json.loads(run("policy", "simulate", "lake", "--json", "--stack", str(stack)).stdout)["runs"]
    assert one["begins"] == "2026-11-24T01:00:00.000000Z"


def test_what_waits_has_its_reason_and_what_is_not_known_is_counted(run, world, stack, tmp_path):
    world.policies.attach(WEEK, "ns")
    world.write("huge", [30.0, 1.0])
    without_history(world, "huge")
    properties = {"delegation.upkeep.types": "snapshot-expiry", "delegation.upkeep.daily-bytes": "5"}
    file = tmp_path / "cdk.json"
    file.write_text(json.dumps({"context": {"delegation:properties": properties}}), encoding="utf-8")
    text = run("policy", "simulate", "lake", "--cdk", str(file), "--stack", str(stack)).stdout
    assert "one run needs more than the daily budget" in text
    assert "Not simulated: 1 table" in text


def test_a_run_that_ended_today_waits_for_another_day(run, world, stack):
    world.policies.attach(WEEK, "ns")
    world.run()
    world.later(minutes=1)
    world.finish("old")
    world.later(minutes=15)
    world.run()
    world.now = NOW + timedelta(minutes=20)
    world.write("old", [30.0, 20.0, 1.0])
    found = json.loads(run("policy", "simulate", "lake", "--json", "--stack", str(stack)).stdout)
    assert [one["begins"] for one in found["runs"]] == ["2026-11-24T00:00:00.000000Z"]


def test_policies_that_cannot_be_read_are_named_with_the_privilege(run, world, stack):
    needs = "the principal needs NAMESPACE_READ_PROPERTIES on the namespace or the catalog"
    world.policies.broken[PolicyTarget("lake", ("ns",))] = PolarisForbidden(needs, status=403)
    found = json.loads(run("policy", "simulate", "lake", "--json", "--stack", str(stack)).stdout)
    assert found["unknown"] == ["lake.ns.new", "lake.ns.old"]
    assert found["unreadable"] == [f"POLARIS_FORBIDDEN: {needs}"]
    text = " ".join(run("policy", "simulate", "lake", "--stack", str(stack)).stdout.split())
    assert f"POLARIS_FORBIDDEN: {needs}" in text
