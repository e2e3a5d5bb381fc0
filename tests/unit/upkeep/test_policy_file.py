"""The deployment's policy file means what the same policies mean in Polaris."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.polaris.policies import PolicyTarget
from delegation.upkeep.policy_file import LONGEST_FILE, PolicyFile, PolicyFileInvalid
from delegation.upkeep.rules.limits import DAY_MS
from delegation.upkeep.rules.model import FindingCode, PolicyType, RuleStatus
from delegation.upkeep.rules.resolve import resolve
from infra.local.catalog.policies import PolicyStore
from infra.local.catalog.state import MemoryState
from tests.unit.upkeep.policies import ALL, TABLE

EXPIRY = "system.snapshot-expiry"


def entry(name: str, *attached: dict[str, Any], type_: str = EXPIRY, **config: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "content": {"enable": True, "config": config}, "attached": list(attached)}


def parsed(*policies: dict[str, Any]) -> PolicyFile:
    return PolicyFile.parse(json.dumps({"format": 1, "policies": policies}))


def test_the_nearest_policy_of_a_type_applies_whole() -> None:
    file = parsed(
        entry("all", {"catalog": "lake"}, max_snapshot_age_days=7, min_snapshot_to_keep=5),
        entry("sales", {"catalog": "lake", "namespace": ["sales"]}, max_snapshot_age_days=30),
        entry("own", {"catalog": "lake", "namespace": ["sales", "eu"], "table": "other"}, max_snapshot_age_days=90),
    )
    assert file.catalogs == {"lake"}
    [found] = file.applicable(PolicyTarget.of(TABLE))
    assert (found.policy.name, found.inherited) == ("sales", True)
    rule = resolve(TABLE, [found], {}, ALL)[PolicyType.SNAPSHOT_EXPIRY]
    assert rule.values["max_snapshot_age_days"].value == 30 * DAY_MS
    assert rule.values["min_snapshot_to_keep"].value == 1
    assert rule.policy == "sales of the policy file (inherited)"


def test_the_content_of_one_policy_stops_that_policy_alone() -> None:
    file = parsed(
        {**entry("bad", {"catalog": "lake"}), "content": {"enable": "yes"}},
        entry("good", {"catalog": "lake"}, type_="system.orphan-file-removal"),
    )
    rules = resolve(TABLE, file.applicable(PolicyTarget.of(TABLE)), {}, ALL)
    assert [finding.code for finding in rules[PolicyType.SNAPSHOT_EXPIRY].findings] == [FindingCode.POLICY_INVALID]
    assert rules[PolicyType.ORPHAN_FILE_REMOVAL].status is RuleStatus.ACTIVE


LAKE = {"catalog": "lake"}
NO_POLICIES: list[list[dict[str, Any]]] = [
    *([entry("a b", LAKE)], [entry("a", LAKE, type_="system.other")], [entry("a", {"catalog": ""})]),
    *([entry("a", {"catalog": "lake", "table": "t"})], [entry("a", {"namespace": ["sales"]})]),
    *([{**entry("a", LAKE), "content": "{}"}], [entry("a", LAKE), entry("a")], [entry("a", LAKE), entry("b", LAKE)]),
]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", "[" * 60_000, " " * (LONGEST_FILE + 1), '{"format": 2, "policies": []}'),
        '{"format": 1, "policies": [], "more": 1}',
        *(json.dumps({"format": 1, "policies": policies}) for policies in NO_POLICIES),
    ],
)
def test_a_file_that_is_none_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(PolicyFileInvalid) as caught:
        PolicyFile.parse(text)
    assert len(str(caught.value)) < 1_500


LEVELS = st.sampled_from([("a",), ("a", "b"), ("a", "b", "c"), ("b",), ()])
PLACES = st.tuples(LEVELS, st.none() | st.just("t")).filter(lambda place: place[1] is None or bool(place[0]))


@given(
    st.dictionaries(st.tuples(PLACES, st.sampled_from(list(PolicyType))), st.integers(0, 3), max_size=8),
    PLACES,
)
def test_a_file_inherits_as_polaris_does(attached, asked):
    """Against the stand-in's store, which the contract tests compare with Polaris."""
    store = PolicyStore(MemoryState())
    ids: dict[tuple[tuple[str, ...], str | None], int] = {}

    def path(place: tuple[tuple[str, ...], str | None]) -> list[int]:
        levels = [(place[0][:length], None) for length in range(len(place[0]) + 1)]
        names = levels if place[1] is None else [*levels, place]
        return [ids.setdefault(name, len(ids)) for name in names]

    policies: dict[str, dict[str, Any]] = {}
    for (place, type_), number in attached.items():
        name = f"{type_.name}-{number}"
        if name not in policies:
            policies[name] = entry(name, type_=type_.value)
            store.create((("p",), name), type_.value, None, json.dumps(policies[name]["content"]))
        table = {} if place[1] is None else {"table": place[1]}
        policies[name]["attached"].append({"catalog": "lake", "namespace": list(place[0]), **table})
        store.attach((("p",), name), path(place)[-1], "x")
    found = parsed(*policies.values()).applicable(PolicyTarget("lake", *asked))
    expected = [(one["name"], one["inherited"]) for one in store.applicable(path(asked), None)]
    assert sorted((one.policy.name, one.inherited) for one in found) == sorted(expected)
