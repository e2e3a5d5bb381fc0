"""The rule of snapshot expiry in Iceberg's terms, and the retention of single refs."""

from dataclasses import replace
from typing import Any

import pytest

from delegation.removal.expiry.requests import OPTIONS
from delegation.removal.expiry.retention import decide
from delegation.upkeep.execution.asked import ExpiryRule, expiry_of
from delegation.upkeep.rules.limits import DAY_MS, FOREVER_MS, MOST, UpkeepLimits
from delegation.upkeep.rules.model import PolicyType
from delegation.upkeep.rules.resolve import resolve
from tests.unit.upkeep.policies import TABLE, expiry, orphans

EXPIRY = PolicyType.SNAPSHOT_EXPIRY
LIMITS = UpkeepLimits(types=frozenset(PolicyType))


def made(*applicable: Any, limits: Any = LIMITS, **properties: str) -> ExpiryRule:
    found = expiry_of(resolve(TABLE, applicable, properties, limits)[EXPIRY], limits)
    assert found is not None
    return found


def age_of_tag(rule: ExpiryRule, own_ms: int | None) -> int:
    """Return how old a tag may be: its own age, else the rule's, and the least of the rule."""
    return max(rule.max_ref_age_ms if own_ms is None else own_ms, rule.least_ref_age_ms)


@pytest.mark.parametrize("plans_alone", [False, True])
def test_the_rule_has_icebergs_options(plans_alone: bool) -> None:
    limits = replace(LIMITS, dry_run_only=plans_alone)
    found = made(expiry(min_snapshot_to_keep=3, max_snapshot_age_days=7, max_ref_age_days=90), limits=limits)
    assert (found.older_than_ms(10 * DAY_MS), found.older_than_ms(DAY_MS)) == (3 * DAY_MS, 0)
    assert found.options() == {
        "max-snapshot-age-ms": str(7 * DAY_MS),
        "retain-last": "3",
        "max-ref-age-ms": str(90 * DAY_MS),
        "dry-run": "true" if plans_alone else "false",
    }


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"min_snapshot_to_keep": MOST, "max_snapshot_age_days": FOREVER_MS // DAY_MS, "max_ref_age_days": 10**9},
        {"min_snapshot_to_keep": 1, "max_snapshot_age_days": 0, "max_ref_age_days": 0},
        {"max_snapshot_age_days": 7, "max_ref_age_days": 0.5},
    ],
)
def test_a_task_accepts_the_options_of_every_rule(config: dict[str, Any]) -> None:
    limits = UpkeepLimits(types=frozenset({EXPIRY}), least_age_ms=0)
    options = made(expiry(**config), limits=limits).options()
    chosen = OPTIONS.chosen(options, OPTIONS.limits())
    assert {name: chosen[name] for name in options} == options


def test_a_rule_that_is_off_or_of_another_type_has_none() -> None:
    limits = UpkeepLimits()
    assert expiry_of(resolve(TABLE, [expiry()], {}, limits)[EXPIRY], limits) is None
    found = resolve(TABLE, [orphans()], {}, LIMITS)
    assert expiry_of(found[PolicyType.ORPHAN_FILE_REMOVAL], LIMITS) is None


def least(rule: ExpiryRule) -> tuple[int, int, int]:
    return rule.least_snapshots, rule.least_age_ms, rule.least_ref_age_ms


def test_icebergs_table_properties_bound_no_refs_own_retention_and_those_of_this_service_do() -> None:
    rule = made(expiry(), **{"history.expire.max-snapshot-age-ms": str(30 * DAY_MS)})
    assert least(rule) == (1, DAY_MS, DAY_MS)
    rule = made(expiry(), **{"delegation.policy.snapshot-expiry.max_snapshot_age_days": "30"})
    assert least(rule) == (1, 30 * DAY_MS, DAY_MS)


NOW = 1_000 * DAY_MS


def history(ages: list[float], refs: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with a line of snapshots 1, 2, … of these ages in days, and refs."""
    snapshots = [
        {"snapshot-id": at + 1, "timestamp-ms": int(NOW - age * DAY_MS), "schema-id": 0, "manifest-list": "s3://b/l"}
        | ({"parent-snapshot-id": at} if at else {})
        for at, age in enumerate(ages)
    ]
    main = {"main": {"snapshot-id": len(ages), "type": "branch"}}
    shape = {"current-schema-id": 0, "schemas": [{"schema-id": 0}], "default-spec-id": 0, "partition-specs": []}
    return {"current-snapshot-id": len(ages), "snapshots": snapshots, "refs": {**main, **refs}, **shape}


@pytest.mark.parametrize(
    ("limits", "config", "kept"),
    [
        (LIMITS, {"max_ref_age_days": 90}, True),
        (UpkeepLimits(types=frozenset({EXPIRY}), least_age_ms=30 * DAY_MS), {}, True),
        (UpkeepLimits(types=frozenset({EXPIRY}), least_age_ms=30 * DAY_MS), {"max_ref_age_days": 3}, True),
        (LIMITS, {"max_ref_age_days": 3}, False),
        (LIMITS, {}, False),
    ],
)
def test_an_expiry_removes_no_ref_that_the_policy_or_the_operator_keeps(limits, config, kept):
    """A tag of 20 days with an own age of two days, chosen by somebody who may tag."""
    tag = {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 2 * DAY_MS}
    rule = made(expiry(**config), limits=limits)
    found = decide(history([20, 1], {"old": tag}), rule.retention(NOW), now_ms=NOW)
    assert (found.expired.refs == frozenset()) is kept
    assert (1 not in found.expired.snapshot_ids) is kept


@pytest.mark.parametrize("config", [{}, {"max_ref_age_days": 90, "max_snapshot_age_days": 7}])
@pytest.mark.parametrize("least", [0, 1, 45])
def test_an_expiry_keeps_of_each_ref_what_the_rule_says_of_it(config: dict[str, Any], least: int) -> None:
    limits = UpkeepLimits(types=frozenset({EXPIRY}), least_age_ms=least * DAY_MS, least_snapshots=least + 1)
    rule = made(expiry(**config), limits=limits)
    own = [None, 1, 8 * DAY_MS, 60 * DAY_MS, 200 * DAY_MS]
    refs: dict[str, Any] = {
        f"tag-{age}": {"snapshot-id": 1, "type": "tag", **({} if age is None else {"max-ref-age-ms": age})}
        for age in own
    }
    found = decide(history([100, 1], refs), rule.retention(NOW), now_ms=NOW)
    removed = {name for name, ref in refs.items() if age_of_tag(rule, ref.get("max-ref-age-ms")) < 100 * DAY_MS}
    assert found.expired.refs == removed
    for name, age in found.refs.items():
        if name in refs:
            assert (age or FOREVER_MS) == age_of_tag(rule, refs[name].get("max-ref-age-ms"))


@pytest.mark.parametrize("least", [0, 3])
def test_an_expiry_keeps_of_a_branch_what_the_rule_says_of_it(least: int) -> None:
    limits = UpkeepLimits(types=frozenset({EXPIRY}), least_age_ms=least * DAY_MS)
    rule = made(expiry(max_snapshot_age_days=7, min_snapshot_to_keep=3), limits=limits)
    document = history([30, 20, 10, 6, 2], {})
    document["refs"]["main"] |= {"min-snapshots-to-keep": 1, "max-snapshot-age-ms": DAY_MS}
    assert decide(document, rule.retention(NOW), now_ms=NOW).expired.snapshot_ids == {1, 2}
