"""Policies of a deployment: its file for the catalogs that it names, the catalogs' own for others."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delegation.polaris.answers import PoliciesNotSupported
from delegation.polaris.policies import PolicyTarget
from delegation.references.recurring import RecurringCatalog
from delegation.upkeep.execution.expiries import PolicyExpiries
from delegation.upkeep.execution.kinds import KeptTables, UpkeepCounts
from delegation.upkeep.execution.passes import catalog_upkeep
from delegation.upkeep.policy_file import DeployedPolicies, PolicyFileInvalid, StoredPolicyFile
from tests.unit.upkeep.execution.catalogs import ALLOWED, WEEK, MemoryPolicies, UpkeepWorld
from tests.unit.upkeep.test_policy_file import entry

EXPIRY = "system.snapshot-expiry"
ORDERS = PolicyTarget("lake", ("sales",), "orders")


def write(path: Path, *policies: dict[str, object]) -> None:
    path.write_text(json.dumps({"format": 1, "policies": policies}), encoding="utf-8")


def test_the_file_serves_the_catalogs_that_it_names_and_the_catalog_all_others(tmp_path: Path) -> None:
    orphans = entry("orphans", {"catalog": "lake"}, type_="system.orphan-file-removal")
    write(tmp_path / "p.json", entry("week", {"catalog": "lake"}, max_snapshot_age_days=7), orphans)
    catalogs = MemoryPolicies()
    catalogs.attach(WEEK, "sales", name="own")
    policies = DeployedPolicies(catalogs, StoredPolicyFile(tmp_path / "p.json"))
    assert [one.policy.name for one in policies.applicable(ORDERS, EXPIRY)] == ["week"]
    assert [one.policy.name for one in policies.applicable(ORDERS)] == ["week", "orphans"]
    assert not catalogs.asked
    policies.applicable(PolicyTarget("pond", ("sales",)), EXPIRY)
    assert catalogs.asked == {PolicyTarget("pond", ("sales",)): 1}


def test_a_file_that_changes_is_read_again_and_one_that_is_torn_stops_all(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write(path, entry("week", {"catalog": "lake"}))
    policies = DeployedPolicies(MemoryPolicies(), StoredPolicyFile(path))
    assert policies.applicable(ORDERS, EXPIRY)
    write(path)
    os.utime(path, ns=(1, 1))
    assert policies.applicable(ORDERS, EXPIRY) == []
    path.write_text('{"format": 1', encoding="utf-8")
    for catalog in ("lake", "pond"):
        with pytest.raises(PolicyFileInvalid, match="not JSON"):
            policies.applicable(PolicyTarget(catalog, ("sales",)), EXPIRY)
    path.unlink()
    with pytest.raises(PolicyFileInvalid, match="cannot be read"):
        policies.applicable(ORDERS, EXPIRY)


@pytest.mark.parametrize("error", [PolicyFileInvalid("torn"), PoliciesNotSupported("no", status=404)])
def test_what_cannot_be_read_as_a_whole_ends_no_recurrence_and_an_invalid_file_is_counted(error: Exception) -> None:
    counted: list[UpkeepCounts] = []

    class Torn(PolicyExpiries):
        def evaluate(self, _tables: KeptTables) -> Any:
            raise error

    world = UpkeepWorld()
    kind = Torn(**world.parts(), tasks=world.tasks, limits=ALLOWED)
    declared = catalog_upkeep(lambda _run: [kind], every=timedelta(minutes=15), counted=counted.append)
    report = declared.work(RecurringCatalog(catalog="lake"), None)  # type: ignore[arg-type]
    assert str(error) in str(report.problem)
    named = [one.invalid for one in counted]
    assert named == ([frozenset({"the policy file"})] if isinstance(error, PolicyFileInvalid) else [])
