"""What a policy permits while its task runs."""

from typing import Any

import pytest

from delegation.polaris.policies import ApplicablePolicy, StoredPolicy
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.retention import Permission, Retention, Withdrawn
from delegation.upkeep.execution.asked import CatalogPolicies, effective
from delegation.upkeep.execution.permissions import PolicyPermissions
from delegation.upkeep.rules.limits import DAY_MS, UpkeepLimits
from delegation.wire.requests import TableState
from tests.unit.upkeep.execution.catalogs import ALLOWED, EXPIRY, NOW, WEEK, MemoryPolicies, UpkeepWorld, named

NOW_MS = int(NOW.timestamp() * 1000)
ASKED = Retention(older_than_ms=NOW_MS - 7 * DAY_MS, retain_last=1)


def permission(
    policies: MemoryPolicies, limits: UpkeepLimits = ALLOWED, *, policy: str = "lake.gov.keep", **properties: str
) -> Permission:
    world = UpkeepWorld()
    world.write("a", [1.0], properties=properties)
    state = TableState.of(world.loaded("a"))
    expiry = TableExpiry(realm="R", identifier=named("a"), table=state, policy=policy)
    return PolicyPermissions(policies, limits).of_expiry(expiry, ASKED, NOW)(world.loaded("a"))


def attached(content: Any = WEEK) -> MemoryPolicies:
    policies = MemoryPolicies()
    policies.attach(content, "ns")
    return policies


def test_the_same_policy_permits_what_it_required_within_its_floors() -> None:
    found = permission(attached())
    assert isinstance(found, Retention)
    assert (found.older_than_ms, found.retain_last, found.least_age_ms) == (ASKED.older_than_ms, 1, 7 * DAY_MS)


@pytest.mark.parametrize(
    ("config", "older_than_ms"), [(30, NOW_MS - 30 * DAY_MS), (1, NOW_MS - 7 * DAY_MS)], ids=["stricter", "looser"]
)
def test_a_changed_policy_permits_the_stricter_of_both(config: int, older_than_ms: int) -> None:
    found = permission(attached({"enable": True, "config": {"max_snapshot_age_days": config}}))
    assert isinstance(found, Retention)
    assert found.older_than_ms == older_than_ms


@pytest.mark.parametrize("inheritable", [True, False])
def test_a_table_has_only_the_inheritable_policies_of_its_namespace(inheritable: bool) -> None:
    policy = StoredPolicy(EXPIRY.value, "keep", "{}", 1, inheritable=inheritable)
    policies = CatalogPolicies(lambda target: (ApplicablePolicy(policy, target.namespace, False),))
    assert [each.inherited for each in policies.applying(named("a"), None)] == [True] * inheritable


def test_a_table_property_that_was_set_meanwhile_counts() -> None:
    found = permission(attached(), **{"delegation.policy.snapshot-expiry.min_snapshot_to_keep": "50"})
    assert isinstance(found, Retention)
    assert found.retain_last == 50


@pytest.mark.parametrize(
    ("policies", "limits", "reason"),
    [
        (MemoryPolicies(), ALLOWED, "no policy of this type applies"),
        (attached({"enable": False}), ALLOWED, "lake.gov.keep no longer requires this"),
        (attached("broken"), ALLOWED, "not JSON"),
        (attached(), UpkeepLimits(), "delegation.upkeep.types"),
        (attached(), UpkeepLimits(types=frozenset({EXPIRY}), exclude=(("lake", "ns"),)), "delegation.upkeep.exclude"),
        (attached(), UpkeepLimits(types=frozenset({EXPIRY}), dry_run_only=True), "the operator now allows only plans"),
    ],
)
def test_work_that_is_no_longer_required_is_withdrawn(policies, limits, reason):
    found = permission(policies, limits)
    assert isinstance(found, Withdrawn)
    assert reason in found.reason


def test_another_policy_that_applies_by_now_starts_a_run_of_its_own() -> None:
    found = permission(attached(), policy="lake.gov.former")
    assert found == Withdrawn("the policy lake.gov.keep applies now instead of lake.gov.former")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"enable": 1}', '{"enable": true, "config": {"max_snapshot_age_days": "' + "7" * 900 + '"}}'],
)
def test_of_a_content_without_effect_nothing_is_kept(content: str) -> None:
    assert effective(content) == ""


def test_of_a_content_only_what_has_an_effect_is_kept() -> None:
    text = '{"version": "2025-02-03", "enable": true, "config": {"max_snapshot_age_days": 7, "owner": "' + "x" * 900
    assert effective(text + '"}}') == '{"enable": true, "config": {"max_snapshot_age_days": 7}}'
