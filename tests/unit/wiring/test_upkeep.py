"""How the maintenance that policies ask for begins: nowhere by default, else where the operator names catalogs."""

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from delegation.references import CATALOG_HEALTH, CATALOG_UPKEEP, REFERENCE_INDEX
from delegation.references.recurring import reference_index
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wiring import operations, upkeep
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.operations import begin_upkeep, survey
from delegation.wiring.policies import shown_settings
from tests.kit.dynamodb import MemoryHealthStore
from tests.kit.tasks.services import task_service
from tests.paths import ROOT

ALLOWED = {"delegation.upkeep.types": "snapshot-expiry", "delegation.upkeep.include": "lake.sales, other, lake"}


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> DeployedTasks:
    """A deployment whose purges have a reference index, without a catalog."""
    store = MemoryTaskStore()
    tasks = task_service(store)
    indexing = reference_index(lambda _run: None, every=timedelta(hours=1))  # type: ignore[arg-type, return-value]
    access: Any = (SimpleNamespace(references=object(), reference_task=lambda: indexing), None)
    for module in (operations, upkeep):
        monkeypatch.setattr(module, "shared_access", lambda _tasks: access)
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")
    monkeypatch.setenv("DELEGATION_PLAN_BUCKET", "plans")
    return DeployedTasks(store, tasks, {}, ())  # type: ignore[arg-type]


def given(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    monkeypatch.setenv("DELEGATION_PROPERTIES", json.dumps(properties))


def kinds(deployed: DeployedTasks) -> list[str]:
    return sorted(one.task_type for one in deployed.store.heads().tasks)  # type: ignore[attr-defined]


@pytest.mark.parametrize("properties", [{}, {**ALLOWED, "delegation.upkeep.types": "none"}])
def test_by_default_nothing_begins(deployed, monkeypatch, properties):
    given(monkeypatch, properties)
    begin_upkeep(deployed)
    assert kinds(deployed) == []
    survey(deployed, "lake")
    assert kinds(deployed) == [CATALOG_HEALTH]


def test_the_catalogs_that_the_operator_names_are_indexed_once(deployed, monkeypatch):
    given(monkeypatch, ALLOWED)
    begin_upkeep(deployed)
    begin_upkeep(deployed)
    assert kinds(deployed) == [REFERENCE_INDEX] * 2


def test_after_a_pass_of_the_index_the_policies_are_executed(deployed, monkeypatch):
    given(monkeypatch, {**ALLOWED, "delegation.upkeep.interval": "5m"})
    survey(deployed, "lake")
    survey(deployed, "lake")
    assert kinds(deployed) == [CATALOG_HEALTH, CATALOG_UPKEEP]
    recurring = {one.task_type: one.recurrence_seconds for one in deployed.store.heads().tasks}  # type: ignore[attr-defined]
    assert recurring[CATALOG_UPKEEP] == 300


def test_a_pass_reads_healths_in_its_visits_if_there_is_an_index(deployed, monkeypatch):
    given(monkeypatch, {})
    monkeypatch.setattr(upkeep, "health_store", MemoryHealthStore)
    assert callable(upkeep.visited_healths(deployed))
    monkeypatch.setattr(upkeep, "shared_access", lambda _tasks: (SimpleNamespace(references=None), None))
    assert upkeep.visited_healths(deployed) is None


def test_only_one_module_of_the_wiring_chooses_where_policies_are_read():
    """A task that asked the catalog would find the rules of a policy file withdrawn."""
    wiring = ROOT / "functions" / "delegation" / "wiring"
    choosing = {
        path.relative_to(wiring).as_posix() for path in wiring.rglob("*.py") if "PolicyClient(" in path.read_text()
    }
    assert choosing == {"policies.py"}


def test_the_api_returns_what_bounds_policies_and_no_other_property(monkeypatch, tmp_path):
    properties = {**ALLOWED, "delegation.expiry.least-snapshots": "2", "delegation.notifications.callback.a": "x"}
    shown = {name: value for name, value in properties.items() if "callback" not in name}
    assert shown_settings(properties) == {"properties": shown, "policy_file": None, "error_code": None}
    target = {"catalog": "lake", "namespace": ["ns"]}
    policy = {"name": "keep", "type": "system.snapshot-expiry", "content": {"enable": True}, "attached": [target]}
    file = tmp_path / "policies.json"
    file.write_text(json.dumps({"format": 1, "policies": [policy]}), encoding="utf-8")
    monkeypatch.setenv("DELEGATION_POLICY_FILE", str(file))
    assert shown_settings(properties)["policy_file"] == ["lake"]
    file.write_text("{", encoding="utf-8")
    assert shown_settings(properties)["error_code"] == "POLICY_FILE_INVALID"
