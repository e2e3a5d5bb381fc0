"""No combination of policies, properties and limits gives a looser rule than the limits, or than the policy alone."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from delegation.polaris.policies import ApplicablePolicy
from delegation.removal.path_guard import POLICY
from delegation.rewrites.terms import CompactionLimits
from delegation.upkeep.execution.asked import expiry_of
from delegation.upkeep.rules.limits import DAY_MS, FOREVER_MS, MOST, UpkeepLimits
from delegation.upkeep.rules.model import STOPPING, PolicyType, RuleStatus, UpkeepRule
from delegation.upkeep.rules.resolve import resolve
from delegation.upkeep.rules.settings import KEEP, ORPHAN_AGE, REF_AGE, SETTINGS, SNAPSHOT_AGE, RuleSetting
from tests.unit.upkeep.policies import TABLE, policy

NUMBERS = st.one_of(
    st.integers(-2, 60),
    st.integers(0, 60).map(str),
    st.floats(),
    st.sampled_from([10**400, FOREVER_MS, FOREVER_MS + 1, MOST, True, False, "", "x", "1e5", 0.5, "0.5"]),
)
WORDS = st.sampled_from(["error", "ignore", "delete", "bin-pack", "sort", "false", "true", "FALSE", "off"])
ANY = NUMBERS | WORDS
KEYS = [setting.key for settings in SETTINGS.values() for setting in settings]
TEXTS = ANY.map(str)
OWN = [f"{POLICY}{type_.short}.{key}" for type_ in PolicyType for key in ("enable", *KEYS[:4], "other")]
ICEBERG = [one.iceberg for settings in SETTINGS.values() for one in settings if one.iceberg is not None]


def contents() -> st.SearchStrategy[str]:
    """Contents of which most cannot be used."""
    members = st.fixed_dictionaries(
        {},
        optional={
            "enable": st.booleans() | st.sampled_from([None, "true"]),
            "config": st.dictionaries(st.sampled_from([*KEYS, "unknown"]), ANY, max_size=4),
            "max_orphan_file_age_in_days": NUMBERS,
            "version": st.sampled_from(["2025-02-03", "1"]),
        },
    )
    return members.map(json.dumps) | st.sampled_from(["", "{", "[" * 20_000])


DAYS = st.integers(0, 30)
GOOD: dict[PolicyType, st.SearchStrategy[dict[str, Any]]] = {
    PolicyType.SNAPSHOT_EXPIRY: st.fixed_dictionaries(
        {}, optional={SNAPSHOT_AGE: DAYS, KEEP: st.integers(1, 9), REF_AGE: DAYS, "unknown": DAYS}
    ).map(lambda config: {"config": config}),
    PolicyType.ORPHAN_FILE_REMOVAL: st.fixed_dictionaries(
        {},
        optional={
            ORPHAN_AGE: DAYS,
            "config": st.sampled_from([{"prefix_mismatch_mode": "ignore"}, {"prefix_mismatch_mode": "error"}]),
        },
    ),
    PolicyType.METADATA_COMPACTION: st.just({}),
    PolicyType.DATA_COMPACTION: st.fixed_dictionaries(
        {}, optional={"config": st.fixed_dictionaries({"max-concurrent-file-group-rewrites": st.integers(1, 9)})}
    ),
}
GOOD_OWN = {
    **{f"{POLICY}snapshot-expiry.{key}": DAYS.map(str) for key in (SNAPSHOT_AGE, REF_AGE)},
    f"{POLICY}snapshot-expiry.{KEEP}": st.integers(1, 9).map(str),
    f"{POLICY}orphan-file-removal.{ORPHAN_AGE}": DAYS.map(str),
    f"{POLICY}orphan-file-removal.prefix_mismatch_mode": st.sampled_from(["error", "ignore"]),
    f"{POLICY}data-compaction.max-concurrent-file-group-rewrites": st.integers(1, 9).map(str),
}


def usually(good: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Four times of five what is good, so that most rules are executed."""
    return st.integers(0, 4).flatmap(lambda chosen: other if chosen == 0 else good)


@st.composite
def applicables(draw: st.DrawFn) -> list[ApplicablePolicy]:
    """Usually one policy of each type that can be used; sometimes none, a second one, or one that cannot be used."""
    found = []
    for type_, members in GOOD.items():
        good = members.map(lambda given: json.dumps({"enable": True, **given}))
        number = draw(usually(st.just(1), st.integers(0, 2)))
        found += [policy(type_, draw(usually(good, contents()))) for _ in range(number)]
    return found


def limitses() -> st.SearchStrategy[UpkeepLimits]:
    ages = st.sampled_from([0, DAY_MS, 3 * DAY_MS, 30 * DAY_MS])
    return st.builds(
        UpkeepLimits,
        types=usually(st.just(frozenset(PolicyType)), st.frozensets(st.sampled_from(list(PolicyType)))),
        least_age_ms=ages,
        least_snapshots=st.integers(1, 9),
        least_orphan_age_ms=ages,
        include=usually(st.sampled_from([(), (("lake",),)]), st.just((("other",),))),
        exclude=usually(st.sampled_from([(), (("lake", "other"),)]), st.just((("lake", "sales"),))),
        dry_run_only=st.booleans(),
        compaction=st.builds(
            CompactionLimits,
            st.timedeltas(timedelta(0), timedelta(hours=5)).map(
                lambda age: timedelta(minutes=age // timedelta(minutes=1))
            ),
            st.floats(0, 9),
            st.one_of(st.none(), st.integers(1, 9)),
        ),
    )


OWN_PROPERTIES = usually(
    st.fixed_dictionaries({}, optional=GOOD_OWN), st.dictionaries(st.sampled_from(OWN), TEXTS, max_size=3)
)
ICEBERG_PROPERTIES = usually(
    st.dictionaries(st.sampled_from(ICEBERG), st.integers(1, 60 * DAY_MS).map(str), max_size=3),
    st.dictionaries(st.sampled_from(ICEBERG), TEXTS, max_size=3),
)


def executed(rules: Any) -> list[UpkeepRule]:
    return [rule for rule in rules.values() if rule.is_executed]


def setting_of(rule: UpkeepRule, key: str) -> RuleSetting:
    return next(setting for setting in SETTINGS[rule.type] if setting.key == key)


def is_as_strict(setting: RuleSetting, value: Any, other: Any) -> bool:
    """Whether a value deletes no more than another one."""
    return bool(value == other if setting.stricter is None else setting.stricter(value, other) == value)


@given(applicables(), OWN_PROPERTIES, ICEBERG_PROPERTIES, limitses())
def test_a_rule_is_never_looser_than_the_operators_limits(applicable, own, iceberg, limits):
    for rule in executed(resolve(TABLE, applicable, {**own, **iceberg}, limits)):
        assert limits.prevented(rule.type, TABLE) is None
        assert rule.status is (RuleStatus.DRY_RUN if limits.dry_run_only else RuleStatus.ACTIVE)
        for key, one in rule.values.items():
            setting = setting_of(rule, key)
            limit = None if setting.limit_of is None else setting.limit_of(limits)
            if limit is not None:
                assert is_as_strict(setting, one.value, limit)


@given(applicables(), OWN_PROPERTIES, ICEBERG_PROPERTIES, limitses())
def test_a_rule_is_never_looser_than_the_policy_alone(applicable, own, iceberg, limits):
    for rule in executed(resolve(TABLE, applicable, {**own, **iceberg}, limits)):
        [decisive] = [one for one in applicable if one.policy.type == rule.type.value]
        document = json.loads(decisive.policy.content)
        assert document["enable"] is True
        given = {**(document.get("config") or {})}
        if rule.type is PolicyType.ORPHAN_FILE_REMOVAL:
            given = {name: value for name, value in given.items() if name == "prefix_mismatch_mode"}
            if document.get("max_orphan_file_age_in_days") is not None:
                given["max_orphan_file_age_in_days"] = document["max_orphan_file_age_in_days"]
        for setting in SETTINGS[rule.type]:
            if setting.key in given:
                asked = setting.read(given[setting.key])
                assert is_as_strict(setting, rule.values[setting.key].value, asked)


@given(applicables(), OWN_PROPERTIES, ICEBERG_PROPERTIES, limitses())
def test_a_tables_own_property_never_loosens(applicable, own, iceberg, limits):
    without = resolve(TABLE, applicable, iceberg, limits)
    for rule in executed(resolve(TABLE, applicable, {**own, **iceberg}, limits)):
        assert without[rule.type].is_executed
        for key, one in rule.values.items():
            assert is_as_strict(setting_of(rule, key), one.value, without[rule.type].values[key].value)


@given(applicables(), OWN_PROPERTIES, ICEBERG_PROPERTIES, limitses())
def test_every_rule_is_complete_or_off_with_a_reason_and_says_why(applicable, own, iceberg, limits):
    for type_, rule in resolve(TABLE, applicable, {**own, **iceberg}, limits).items():
        if rule.is_executed:
            assert list(rule.values) == [setting.key for setting in SETTINGS[type_]]
            assert not STOPPING & {finding.code for finding in rule.findings}
        else:
            assert rule.reason
        assert len(json.dumps(rule.document())) < 20_000


@given(
    st.fixed_dictionaries({SNAPSHOT_AGE: DAYS, KEEP: st.integers(1, 9)}, optional={REF_AGE: DAYS}),
    OWN_PROPERTIES,
    ICEBERG_PROPERTIES,
    limitses(),
)
def test_the_retention_of_a_ref_is_never_looser_than_the_limits_or_the_policy(config, own, iceberg, limits):
    limits = replace(limits, types=frozenset(PolicyType), include=(), exclude=())
    applicable = [policy(PolicyType.SNAPSHOT_EXPIRY, {"enable": True, "config": config})]
    rule = resolve(TABLE, applicable, {**own, **iceberg}, limits)[PolicyType.SNAPSHOT_EXPIRY]
    expiry = expiry_of(rule, limits)
    assert (expiry is None) == (not rule.is_executed)
    if expiry is None:
        return
    assert expiry.least_ref_age_ms >= max(limits.least_age_ms, config.get(REF_AGE, 0) * DAY_MS)
    assert expiry.least_snapshots >= max(limits.least_snapshots, config[KEEP])
    assert expiry.least_age_ms >= max(limits.least_age_ms, config[SNAPSHOT_AGE] * DAY_MS)
