"""From any settings to any others, and from the last release: no table, key, subnet or export is lost unnoticed.

CloudFormation replaces, removes and refuses while it deploys; `delegation deploy-check` names it before.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from delegation.cli.deployment.deploying import Risk, dangers_of
from tests.effort import sampled
from tests.infra.deploying import table
from tests.infra.deploying.table import LETTERS, deployed_id
from tests.infra.deploying.templates import FORMER, RECORDED, SETTINGS, imports_in, skeleton, synthesized

KEY = {(Risk.REMOVED, "AWS::KMS::Key"), (Risk.EXPORT_IN_USE, None)}
APPLICATION = {(Risk.APPLICATION_LEFT, "AWS::EMRServerless::Application")}
SUBNETS = {(Risk.NETWORK_REPLACED, "AWS::EC2::Subnet")}
REFUSED: Mapping[tuple[str, str], set[tuple[Risk, str | None]]] = {
    ("as it is", "own key"): KEY,
    ("as it is", "regional"): {*KEY, *APPLICATION},
    ("as it is", "more Spark"): APPLICATION,
    ("more Spark", "as it is"): APPLICATION,
    ("as it is", "key for all"): APPLICATION,
    ("key for all", "as it is"): APPLICATION,
    ("as it is", "private only"): SUBNETS,
    ("private only", "as it is"): SUBNETS,
    ("gateway", "own key"): KEY,
    ("NAT gateway", "more Spark"): APPLICATION,
}
"""The named refusals; every other pair is deployed without one."""
ONE_WAY = {"as it is", "own key", "regional", "more Spark, and the former"}
PAIRS = [
    *[("as it is", other) for other in SETTINGS if other != "as it is"],
    *[
        (other, "as it is")
        for other in SETTINGS
        if other not in {"as it is", "own key", "regional", "more Spark, and the former"}
    ],
    *[("gateway", "NAT gateway"), ("NAT gateway", "gateway"), ("gateway", "own key"), ("NAT gateway", "more Spark")],
]


def is_short(pair: tuple[str, str]) -> bool:
    """Return whether a short run plays a pair: every choice of settings is synthesized, which takes seconds."""
    return {*pair} <= {"as it is", "own key", "private only"}


@pytest.fixture(scope="module")
def templates(node: str) -> Callable[[str], Any]:
    return lambda name: {stack: skeleton(template) for stack, template in synthesized(name).items()}


def refused(former: Any, new: Any) -> set[tuple[Risk, str | None]]:
    found = dangers_of(former, new, imports_in(former), deployed_id)
    kinds = {one.name: former[one.stack]["Resources"].get(one.name, {}).get("Type") for one in found}
    return {(one.harm, kinds[one.name]) for one in found}


@pytest.mark.parametrize(("former", "new"), sampled(PAIRS, is_short), ids=str)
def test_a_change_of_settings_loses_nothing_or_is_refused_by_name(
    former: str, new: str, templates: Callable[[str], Any]
) -> None:
    assert refused(templates(former), templates(new)) == REFUSED.get((former, new), set())


UPGRADES = {
    ("as it is", "as it is"): {*SUBNETS, *APPLICATION},
    ("as it is", "private only"): APPLICATION,
    ("as it is", "more Spark, and the former"): SUBNETS,
    ("NAT gateway", "NAT gateway"): APPLICATION,
    ("gateway", "gateway"): {*SUBNETS, *APPLICATION},
}
"""From the last release; subnets without room for others keep their ranges with `vpc-layout` = `private-only`."""


@pytest.mark.parametrize(("former", "new"), sampled(UPGRADES, is_short), ids=str)
def test_an_upgrade_from_the_last_release_loses_nothing_or_is_refused_by_name(
    former: str, new: str, templates: Callable[[str], Any]
) -> None:
    recorded = json.loads(FORMER.read_text(encoding="utf-8"))
    assert recorded.keys() == set(RECORDED)
    assert refused(recorded[former], templates(new)) == UPGRADES[former, new]


@pytest.mark.long
def test_a_change_of_spark_makes_an_application_beside_the_former_one_and_keeps_that(
    templates: Callable[[str], Any],
) -> None:
    """EMR changes an application only while no job runs; the former one's jobs are watched and cancelled by its id."""
    stack = "PolarisDelegation-prod-Service"
    before, after = (templates(name)[stack]["Resources"] for name in ("as it is", "more Spark, and the former"))
    [former], [new] = (
        [name for name, one in each.items() if one["Type"] == "AWS::EMRServerless::Application"]
        for each in (before, after)
    )
    assert former != new
    assert before[former]["DeletionPolicy"] == "RetainExceptOnCreate"
    assert before[former]["Properties"] | {"MaximumCapacity": None} == (
        after[new]["Properties"] | {"MaximumCapacity": None}
    )


@pytest.mark.long
def test_the_recorded_table_is_what_the_check_says(templates: Callable[[str], Any]) -> None:
    """`make template-diffs` writes it."""
    found = table.table({name: templates(name) for name in SETTINGS}, table.recorded())
    assert found == table.RECORD.read_text(encoding="utf-8")


def test_every_harm_has_a_letter() -> None:
    assert LETTERS.keys() == set(Risk)
    assert len({*LETTERS.values()}) == len(LETTERS)


def test_every_refusal_is_of_a_pair_that_is_played() -> None:
    assert REFUSED.keys() <= set(PAIRS)
