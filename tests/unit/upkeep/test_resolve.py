"""Where each value of a rule comes from, and what turns a rule off."""

import json
from typing import Any

import pytest

from delegation.upkeep.health.reading import rule_properties
from delegation.upkeep.rules.limits import DAY_MS, FOREVER_MS, UpkeepLimits
from delegation.upkeep.rules.model import FindingCode, OriginKind, PolicyInvalid, PolicyType, RuleStatus, UpkeepRule
from delegation.upkeep.rules.resolve import check_content, resolve
from tests.unit.upkeep.policies import ALL, TABLE, expiry, orphans, policy

EXPIRY, ORPHANS = PolicyType.SNAPSHOT_EXPIRY, PolicyType.ORPHAN_FILE_REMOVAL
OWN = "delegation.policy.snapshot-expiry."


def rule(*applicable: Any, limits: Any = ALL, **properties: str) -> UpkeepRule:
    """Return the rule of snapshot expiry; `own_` and `history_` begin the names of properties."""
    names = {
        name.replace("own_", OWN, 1).replace("history_", "history.expire.", 1): text
        for name, text in properties.items()
    }
    return resolve(TABLE, applicable, names, limits)[EXPIRY]


def values(found: UpkeepRule) -> dict[str, tuple[Any, OriginKind]]:
    return {key: (one.value, one.origin.kind) for key, one in found.values.items()}


def codes(found: UpkeepRule) -> list[FindingCode]:
    return [finding.code for finding in found.findings]


def test_without_a_policy_nothing_is_done() -> None:
    for found in resolve(TABLE, [], {"history.expire.max-snapshot-age-ms": "1", f"{OWN}enable": "true"}, ALL).values():
        assert (found.status, found.reason) == (RuleStatus.OFF, "no policy of this type applies")
        assert (found.policy, found.values, found.findings) == (None, {}, ())


def test_a_policy_of_an_unknown_type_is_ignored() -> None:
    other = policy(EXPIRY, "{}")
    masking = type(other)(type(other.policy)("custom.mask", "m", "", 0), (), inherited=False)
    assert rule(masking, expiry()).status is RuleStatus.ACTIVE


def test_a_disabled_policy_does_nothing() -> None:
    found = rule(expiry(enable=False, max_snapshot_age_days=7))
    assert (found.status, found.reason) == (RuleStatus.OFF, "policy lake.gov.keep (version 3) is not enabled")


def test_what_the_policy_sets_precedes_icebergs_properties_and_defaults() -> None:
    icebergs = {"history_min-snapshots-to-keep": "4", "history_max-snapshot-age-ms": "1"}
    found = rule(expiry(max_snapshot_age_days=7), **icebergs)
    assert found.status is RuleStatus.ACTIVE
    assert values(found) == {
        "min_snapshot_to_keep": (4, OriginKind.ICEBERG_PROPERTY),
        "max_snapshot_age_days": (7 * DAY_MS, OriginKind.POLICY),
        "max_ref_age_days": (FOREVER_MS, OriginKind.DEFAULT),
    }
    assert found.values["max_snapshot_age_days"].origin.name == "lake.gov.keep (version 3)"
    assert found.values["min_snapshot_to_keep"].origin.name == "history.expire.min-snapshots-to-keep"
    assert found.findings == ()


def test_a_table_property_may_keep_more() -> None:
    found = rule(
        expiry(max_snapshot_age_days=7, min_snapshot_to_keep=2),
        own_max_snapshot_age_days="30",
        own_min_snapshot_to_keep="3",
    )
    assert values(found)["max_snapshot_age_days"] == (30 * DAY_MS, OriginKind.TABLE_PROPERTY)
    assert values(found)["min_snapshot_to_keep"] == (3, OriginKind.TABLE_PROPERTY)
    assert found.values["max_snapshot_age_days"].origin.name == f"{OWN}max_snapshot_age_days"
    assert found.findings == ()


def test_a_table_property_that_keeps_less_has_no_effect_and_is_reported() -> None:
    found = rule(expiry(max_snapshot_age_days=7), own_max_snapshot_age_days="1")
    assert values(found)["max_snapshot_age_days"] == (7 * DAY_MS, OriginKind.POLICY)
    [finding] = found.findings
    assert (finding.code, finding.subject) == (FindingCode.TABLE_PROPERTY_LOOSER, f"{OWN}max_snapshot_age_days")
    by_default = rule(expiry(), own_max_snapshot_age_days="1")
    assert values(by_default)["max_snapshot_age_days"] == (5 * DAY_MS, OriginKind.DEFAULT)


def test_a_table_can_be_left_out_by_itself() -> None:
    found = rule(expiry(), own_enable="False")
    assert (found.status, found.reason) == (RuleStatus.OFF, f"the table property {OWN}enable is false")
    assert rule(expiry(), own_enable="true").status is RuleStatus.ACTIVE
    assert rule(expiry(enable=False), own_enable="true").status is RuleStatus.OFF


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("enable", "fals"),
        ("enable", ""),
        ("max_snapshot_age_days", "a month"),
        ("max_snapshot_age_days", "-1"),
        ("max_snapshot_age_days", "1" + "0" * 400),
        ("max_snapshot_age_days", "nan"),
        ("min_snapshot_to_keep", "0"),
        ("min_snapshot_to_keep", "2.5"),
        ("max_snapshot_age_day", "90"),
        ("x" * 10_000, "\n" * 10_000),
    ],
)
def test_a_table_property_that_cannot_be_meant_turns_the_rule_off(key: str, text: str) -> None:
    found = rule(expiry(), **{f"own_{key}": text})
    assert found.status is RuleStatus.OFF
    assert codes(found) == [FindingCode.TABLE_PROPERTY_INVALID]
    assert len(json.dumps(found.document())) < 3_000
    assert resolve(TABLE, [expiry(), orphans()], {f"{OWN}{key}": text}, ALL)[ORPHANS].status is RuleStatus.ACTIVE


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9" * 400])
def test_an_iceberg_property_that_cannot_be_read_turns_the_rule_off_unless_the_policy_sets_it(text: str) -> None:
    name = "history_max-snapshot-age-ms"
    found = rule(expiry(), **{name: text})
    assert (found.status, codes(found)) == (RuleStatus.OFF, [FindingCode.ICEBERG_PROPERTY_INVALID])
    assert rule(expiry(max_snapshot_age_days=7), **{name: text}).status is RuleStatus.ACTIVE


@pytest.mark.parametrize(
    "config",
    [
        *({"max_snapshot_age_days": value} for value in (-1, True, "soon", 10**30)),
        *({"min_snapshot_to_keep": value} for value in (0, 1.5)),
        {"max_ref_age_days": [1]},
    ],
)
def test_a_policy_whose_value_cannot_be_used_has_no_effect_at_all(config: dict[str, Any]) -> None:
    found = resolve(TABLE, [expiry(**config), orphans()], {}, ALL)
    assert (found[EXPIRY].status, codes(found[EXPIRY])) == (RuleStatus.OFF, [FindingCode.POLICY_INVALID])
    assert found[EXPIRY].values == {}
    assert found[ORPHANS].status is RuleStatus.ACTIVE


def test_two_policies_of_a_type_decide_nothing() -> None:
    found = rule(expiry(max_snapshot_age_days=1), expiry(max_snapshot_age_days=30))
    assert (found.status, codes(found)) == (RuleStatus.OFF, [FindingCode.POLICY_AMBIGUOUS])


def test_an_unknown_key_is_reported_and_not_obeyed() -> None:
    found = rule(expiry(max_snapshot_age_days=7, **{"older_than": 0, "delete_everything": True, "x" * 200: 1}))
    assert found.status is RuleStatus.ACTIVE
    [finding] = found.findings
    assert finding.code is FindingCode.POLICY_KEYS_UNKNOWN
    assert "delete_everything, older_than" in finding.text
    many = rule(expiry(**{f"k{number:03}": 1 for number in range(100)}))
    assert "and 95 more" in many.findings[0].text


def test_the_operators_limit_replaces_a_looser_value_and_says_so() -> None:
    limits = UpkeepLimits(types=frozenset(PolicyType), least_age_ms=2 * DAY_MS, least_snapshots=5)
    found = rule(expiry(max_snapshot_age_days=0, max_ref_age_days=1), limits=limits)
    assert found.status is RuleStatus.ACTIVE
    assert values(found) == {
        "min_snapshot_to_keep": (5, OriginKind.LIMIT),
        "max_snapshot_age_days": (2 * DAY_MS, OriginKind.LIMIT),
        "max_ref_age_days": (2 * DAY_MS, OriginKind.LIMIT),
    }
    assert codes(found) == [FindingCode.LIMIT_APPLIED] * 3
    document = found.document()
    assert json.loads(json.dumps(document)) == document
    assert document["values"]["max_snapshot_age_days"] == {
        "value": 2 * DAY_MS,
        "text": "2 days",
        "origin": "operator's limit",
        "origin_name": "delegation.upkeep.least-age",
        "asked": "0 days",
        "asked_by": "policy lake.gov.keep (version 3)",
    }


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (UpkeepLimits(), "types"),
        (UpkeepLimits(types=frozenset({ORPHANS})), "types"),
        (UpkeepLimits(types=frozenset({EXPIRY}), exclude=(("lake", "sales"),)), "exclude"),
        (UpkeepLimits(types=frozenset({EXPIRY}), include=(("other",),)), "include"),
    ],
)
def test_what_the_operator_does_not_allow_is_off_with_its_values(limits: UpkeepLimits, name: str) -> None:
    found = rule(expiry(max_snapshot_age_days=7), limits=limits)
    assert found.status is RuleStatus.OFF
    assert f"delegation.upkeep.{name} " in found.reason
    assert values(found)["max_snapshot_age_days"] == (7 * DAY_MS, OriginKind.POLICY)


def test_a_rule_of_orphan_file_removal() -> None:
    limits = UpkeepLimits(types=frozenset(PolicyType))
    found = resolve(
        TABLE,
        [orphans(max_orphan_file_age_in_days=1, locations=["s3://b/t"], config={"prefix_mismatch_mode": "ignore"})],
        {"delegation.policy.orphan-file-removal.prefix_mismatch_mode": "error"},
        limits,
    )[ORPHANS]
    assert values(found) == {
        "max_orphan_file_age_in_days": (3 * DAY_MS, OriginKind.LIMIT),
        "prefix_mismatch_mode": ("error", OriginKind.TABLE_PROPERTY),
        "locations": (("s3://b/t",), OriginKind.POLICY),
    }


def test_orphans_of_other_prefixes_and_places_that_the_table_names_are_never_deleted() -> None:
    found = resolve(TABLE, [orphans(config={"prefix_mismatch_mode": "delete"})], {}, ALL)[ORPHANS]
    assert codes(found) == [FindingCode.POLICY_INVALID]
    found = resolve(TABLE, [orphans()], {"delegation.policy.orphan-file-removal.locations": "s3://b"}, ALL)[ORPHANS]
    assert (found.status, codes(found)) == (RuleStatus.OFF, [FindingCode.TABLE_PROPERTY_INVALID])


def test_rules_of_compaction() -> None:
    data = policy(
        PolicyType.DATA_COMPACTION,
        {"enable": True, "config": {"target_file_size_bytes": 134217728, "max-concurrent-file-group-rewrites": 8}},
    )
    metadata = policy(PolicyType.METADATA_COMPACTION, {"enable": True, "config": {"spec_id": "2"}})
    properties = {"delegation.policy.data-compaction.max-concurrent-file-group-rewrites": "2"}
    found = resolve(TABLE, [data, metadata], properties, ALL)
    assert values(found[PolicyType.DATA_COMPACTION]) == {
        "target_file_size_bytes": (134217728, OriginKind.POLICY),
        "compaction_strategy": ("bin-pack", OriginKind.DEFAULT),
        "max-concurrent-file-group-rewrites": (2, OriginKind.TABLE_PROPERTY),
        "min-input-files": (5, OriginKind.DEFAULT),
        "delete-file-threshold": (None, OriginKind.DEFAULT),
        "cold-after": (3_600_000, OriginKind.DEFAULT),
        "min-benefit": (0.0, OriginKind.DEFAULT),
    }
    assert values(found[PolicyType.METADATA_COMPACTION]) == {
        "spec_id": (2, OriginKind.POLICY),
        "min-benefit": (0.0, OriginKind.DEFAULT),
    }
    open_size = policy(PolicyType.DATA_COMPACTION, {"enable": True})
    found = resolve(TABLE, [open_size], {"write.target-file-size-bytes": "1000000"}, ALL)
    assert values(found[PolicyType.DATA_COMPACTION])["target_file_size_bytes"] == (
        1_000_000,
        OriginKind.ICEBERG_PROPERTY,
    )


NEARLY = ["max_snapshot_age_dayz", "max-snapshot-age-days", "maxSnapshotAgeDays", "MAX_SNAPSHOT_AGE_DAYS"]


@pytest.mark.parametrize("key", [*NEARLY, "min_snapshots_to_keep", "max_ref_age_day"])
def test_a_key_within_two_letters_of_a_known_one_holds_the_policy(key: str) -> None:
    found = rule(expiry(**{key: 90}))
    assert (found.status, codes(found)) == (RuleStatus.OFF, [FindingCode.POLICY_INVALID])
    [finding] = found.findings
    near = {"min_snapshots_to_keep": "min_snapshot_to_keep", "max_ref_age_day": "max_ref_age_days"}
    assert finding.text == f"this release does not know {key}; did you mean {near.get(key, 'max_snapshot_age_days')}?"
    with pytest.raises(PolicyInvalid, match="did you mean"):
        check_content(EXPIRY, json.dumps({"enable": True, "config": {key: 90}}))


def test_a_member_that_is_written_into_config_holds_the_policy() -> None:
    found = resolve(TABLE, [orphans(config={"max_orphan_file_age_in_days": 90})], {}, ALL)[ORPHANS]
    assert (found.status, codes(found)) == (RuleStatus.OFF, [FindingCode.POLICY_INVALID])
    assert "config.max_orphan_file_age_in_days; did you mean max_orphan_file_age_in_days?" in found.findings[0].text


@pytest.mark.parametrize(
    "name",
    [
        "delegation.policy.snapshot-expiri.enable",
        "delegation.policy.snapshot_expiry.enable",
        "delegaton.policy.snapshot-expiry.enable",
        "delegation.policys.snapshot-expiry.max_ref_age_days",
    ],
)
def test_a_table_property_that_is_nearly_one_of_the_type_turns_the_rule_off(name: str) -> None:
    found = resolve(TABLE, [expiry(), orphans()], {name: "false"}, ALL)
    assert (found[EXPIRY].status, codes(found[EXPIRY])) == (RuleStatus.OFF, [FindingCode.TABLE_PROPERTY_INVALID])
    assert f"{OWN}" in found[EXPIRY].findings[0].text
    assert rule(expiry(), **rule_properties({"properties": {name: "false"}})).status is RuleStatus.OFF
    assert found[ORPHANS].status is RuleStatus.ACTIVE


def test_another_property_with_the_services_prefix_is_reported() -> None:
    found = rule(expiry(), **{"delegation.keep-forever": "true", "owner": "a", "delegation.protected": "false"})
    assert (found.status, codes(found)) == (RuleStatus.ACTIVE, [FindingCode.TABLE_PROPERTY_UNKNOWN])
    assert found.findings[0].subject == "delegation.keep-forever"
